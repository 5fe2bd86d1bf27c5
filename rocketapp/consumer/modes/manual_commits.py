"""Orderly handlers with `commit="manual"`: what was handled is acknowledged when they say so, or handled again.

A message that was handled stays unfinished, so no offset passes it, and it counts against the limits of its queue.
`commit` finishes everything that its queue has handled so far, `rollback` has it handled again in the same order, by
the same handlers. What is left when the session ends is delivered again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from rocketapp.consumer.modes.by_offset import Prompting
from rocketapp.consumer.workers.caller import Caller
from rocketapp.model.outcome import COMMIT, Decisions, Retry
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.state.redelivery import Failure
from rocketapp.wire.record import Message

Handled = tuple[Caller, list[Message]]
"""Messages that one handler has handled, one behind the other."""


class Uncommitted:
    """What one session has handled and not committed, in the order of its handling."""

    def __init__(self, process_queue: ProcessQueue[Message]) -> None:
        self._process_queue = process_queue
        self._runs: list[Handled] = []

    def __repr__(self) -> str:
        return f"<Uncommitted {self._process_queue}: {len(self)} messages>"

    def __len__(self) -> int:
        return sum(len(messages) for _, messages in self._runs)

    def add(self, caller: Caller, messages: Sequence[Message]) -> None:
        if self._runs and self._runs[-1][0] is caller:
            self._runs[-1][1].extend(messages)
        elif messages:
            self._runs.append((caller, list(messages)))

    def commit(self) -> None:
        """All of them are done."""
        for caller, messages in self._runs:
            caller.handler.stats.handled += len(messages)
            self._process_queue.finish_all(messages)
        self._runs.clear()

    def take(self) -> list[Handled]:
        """All of them are to be handled again."""
        runs, self._runs = self._runs, []
        return runs


class ManualCommits(Prompting):
    """Keeps what one handler has handled until it commits."""

    def __init__(
        self,
        process_queue: ProcessQueue[Message],
        caller: Caller,
        decisions: Decisions,
        uncommitted: Uncommitted,
        prompt: Callable[[ProcessQueue[Message]], None],
    ) -> None:
        super().__init__(process_queue, caller.handler, prompt)
        self._caller, self._decisions, self._uncommitted = caller, decisions, uncommitted
        self.rolled_back: bool = False

    def done_all(self, messages: Sequence[Message]) -> None:
        """These were handled."""
        self._uncommitted.add(self._caller, messages)

    def settle(self, item: Any, result: object, raised: bool) -> list[tuple[Message, Failure]]:
        """Make use of what the handler decided, if its call has not failed; the messages that it has not done, and why.

        After a rollback those are the messages of this call, which counts as an attempt.
        """
        decision = self._decisions.take(self._process_queue.message_queue)
        failures = super().settle(item, result, raised)
        # The code around a handler may make another outcome of its rollback.
        self.rolled_back = isinstance(decision, Retry) and result is decision
        if self.rolled_back:
            return [(one, replace(failure, kind="Rollback", text="by the handler")) for one, failure in failures]
        if decision == COMMIT and not failures:
            self._uncommitted.commit()
            self._prompt(self._process_queue)
        return failures
