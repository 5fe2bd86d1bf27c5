"""Acknowledgement by offset: finished messages leave their process queue, whose commit offset passes them.

With `commit="manual"` an orderly handler says when. A message that was handled stays unfinished, so no offset passes
it, and it counts against the limits of its queue. `commit` finishes everything that its queue has handled so far,
`rollback` has it handled again in the same order, by the same handlers. What is left when the session ends is delivered
again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

from rocketapp.consumer.handler import Handler, messages_of
from rocketapp.consumer.modes.outcomes import failures_of
from rocketapp.consumer.retry.breaker import FailurePauses
from rocketapp.consumer.workers.caller import Caller
from rocketapp.model.outcome import COMMIT, Decisions, Outcome, Retry
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.state.redelivery import Failure
from rocketapp.wire.record import Message


class ByOffset:
    """Acknowledges the messages of one handler in one session."""

    rolled_back: bool = False
    """Whether the call that ended last asked for everything that is not committed to be handled again."""

    def __init__(self, process_queue: ProcessQueue[Message], handler: Handler) -> None:
        self._process_queue, self._handler = process_queue, handler
        self.done: Callable[[Message], None] = process_queue.finisher(handler.stats)
        """Acknowledges one message."""

    def done_all(self, messages: Sequence[Message]) -> None:
        """Acknowledge messages that one or several calls have handled."""
        self._handler.stats.handled += len(messages)
        self._process_queue.finish_all(messages)

    def acknowledge(self, item: Any, result: object, raised: bool) -> list[tuple[Message, Failure]]:
        """Acknowledge what a call has done. Returns the other messages, each with its failure."""
        pairs = self.judged(item, result, raised)
        self.done_all([message for message, failure in pairs if failure is None])
        failed = [(message, failure) for message, failure in pairs if failure is not None]
        for message, failure in failed:
            if failure.parked and not failure.pause:  # a pause is told by itself
                self._process_queue.parked = message, failure.text
        return failed

    def judged(self, item: Any, result: object, raised: bool) -> list[tuple[Message, Failure | None]]:
        """The messages of one call, each with why it is not done."""
        messages = messages_of(item)
        failures: list[Failure | None]
        try:
            failures = _named(failures_of(result, raised, messages, self._handler.subscription), result, self._handler)
        except Exception as error:
            # The user's own outcome may raise when it is read: that is a failed attempt too, never the worker's end.
            failures = [Failure(type(error).__name__, "the outcome cannot be read")] * len(messages)
        return list(zip(messages, failures, strict=True))


def _named(failures: list[Failure | None], error: object, handler: Handler) -> list[Failure | None]:
    """The failures, marked when a plugin's code raised: then the handler is not to blame."""
    plugin = handler.owner_of(error) if isinstance(error, BaseException) and not isinstance(error, Outcome) else ""
    if not plugin:
        return failures
    return [failure and replace(failure, text=f"in plugin {plugin}: {failure.text}") for failure in failures]


class FailedMessages(Protocol):
    """Handles failed messages: redelivery, nacks of a popped queue, or an answer to the owner of a forwarded one."""

    @property
    def park(self) -> Callable[[Sequence[Message], float], None] | None:
        """A function that parks messages of one call; None: the session starts them again after these seconds."""
        ...

    def fail(self, handler: Handler, queue: ProcessQueue[Message], message: Message, failure: Failure) -> None: ...


class SentBack(ByOffset):
    """Acknowledges by offset, or popped messages by handle; sends failed messages back, or parks them."""

    def __init__(
        self,
        process_queue: ProcessQueue[Message],
        handler: Handler,
        failures: FailedMessages,
        park: Callable[[Sequence[Message], float], None],
        stopping: FailurePauses,
    ) -> None:
        """`park`: that of the session."""
        super().__init__(process_queue, handler)
        self._failures, self._park, self._stopping = failures, failures.park or park, stopping

    def ended(self, item: Any, result: object, raised: bool) -> None:
        """Acknowledge what a call has done, and send the other messages back."""
        if self._process_queue.closed:  # its next owner gets them again
            self._stopping.heard(self._handler, self.judged(item, result, raised))
            return
        parked: dict[float, list[Message]] = {}
        for message, failure in self.acknowledge(item, result, raised):
            self._stopping.failed(self._handler, failure)
            if not failure.parked:
                self._failures.fail(self._handler, self._process_queue, message, failure)
            elif self._process_queue.holds(message):  # otherwise it was sent back while its call ran
                parked.setdefault(failure.after or 0.0, []).append(message)
        for after, messages in parked.items():  # together: those of a batch are one again
            self._park(messages, after)


Handled = tuple[Caller, list[Message]]
"""Messages that one handler has handled, one behind the other."""


class Uncommitted:
    """The messages of one session that were handled and not committed, in the order of handling."""

    def __init__(self, process_queue: ProcessQueue[Message], failed: dict[int, Any]) -> None:
        """`failed`: by offset what is being tried again; a handled message is removed from it."""
        self._process_queue, self._failed = process_queue, failed
        self._runs: list[Handled] = []

    def __repr__(self) -> str:
        return f"<Uncommitted {self._process_queue}: {len(self)} messages>"

    def __len__(self) -> int:
        return sum(len(messages) for _, messages in self._runs)

    def add(self, caller: Caller, messages: Sequence[Message]) -> None:
        for message in messages:
            self._failed.pop(message.offset, None)
        if self._runs and self._runs[-1][0] is caller:
            self._runs[-1][1].extend(messages)
        elif messages:
            self._runs.append((caller, list(messages)))

    def commit(self) -> None:
        """The handler has committed: everything handled so far is done."""
        for caller, messages in self._runs:
            caller.handler.stats.handled += len(messages)
            caller.handler.stats.uncommitted -= len(messages)
            self._process_queue.finish_all(messages)
        self._runs.clear()

    def take(self) -> list[Handled]:
        """Remove and return all: they are handled again."""
        runs, self._runs = self._runs, []
        return runs


class ManualCommits(ByOffset):
    """Keeps the handled messages of one handler until it commits."""

    def __init__(
        self, process_queue: ProcessQueue[Message], caller: Caller, decisions: Decisions, uncommitted: Uncommitted
    ) -> None:
        super().__init__(process_queue, caller.handler)
        self._caller, self._decisions, self._uncommitted = caller, decisions, uncommitted

    def done_all(self, messages: Sequence[Message]) -> None:
        """These were handled; they are done when the handler commits."""
        self._handler.stats.uncommitted += len(messages)
        self._uncommitted.add(self._caller, messages)

    def acknowledge(self, item: Any, result: object, raised: bool) -> list[tuple[Message, Failure]]:
        """Apply the handler's decision if its call did not fail. Returns the messages that are not done, with why.

        After a rollback those are the messages of this call, which counts as an attempt.
        """
        decision = self._decisions.take(self._process_queue.message_queue)
        failures = super().acknowledge(item, result, raised)
        # The code around a handler may make another outcome of its rollback.
        self.rolled_back: bool = isinstance(decision, Retry) and result is decision
        if self.rolled_back:
            return [(one, replace(failure, kind="Rollback", text="by the handler")) for one, failure in failures]
        if decision == COMMIT and not failures:
            self._uncommitted.commit()
        return failures
