"""A failure may stop a topic: the handler or its policy has said Stop, or a circuit breaker has had enough.

What decides about a breaker is `state.breaker`; here are its clock and its pauses. A topic that is paused by a
breaker goes on as soon as one message of it was handled. Topics are paused as `app.pause` does, with reasons that
add up, so that a pause of the app holds whatever a breaker says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from rocketapp.consumer.handler import Handler
from rocketapp.consumer.pausing import Pausing
from rocketapp.model.policy import Breaker
from rocketapp.state.breaker import BreakerState, Circuit
from rocketapp.state.pauses import Leave
from rocketapp.state.redelivery import Failure

_FIRST_LOOK, _LONGEST_LOOK = 0.05, 1.0
"""Seconds until it is looked whether the message that was tried is done, and the longest time between later looks."""


class Stopping:
    """Pauses the topics of one group for which a failure says so."""

    def __init__(self, handlers: Iterable[Handler], pausing: Pausing) -> None:
        self._pausing, known = pausing, list(handlers)
        self._own = {id(handler) for handler in known}
        self._breakers = {
            id(handler): CircuitBreaker(handler, about, pausing)
            for handler in known
            if handler.subscription.retry is not None and (about := handler.subscription.retry.breaker) is not None
        }

    def __repr__(self) -> str:
        return f"<Stopping: {list(self._breakers.values())}>"

    def failed(self, handler: Handler, failure: Failure) -> None:
        """An attempt has failed."""
        if failure.stop and id(handler) in self._own:  # what forwards messages says it of one message
            self._pausing.pause(handler.subscription.topic, f"{handler.name} said stop: {failure}")
        breaker = self._breakers.get(id(handler))
        if breaker is not None:
            breaker.failed(failure)

    def stop(self) -> None:
        """The group has ended."""
        for breaker in self._breakers.values():
            breaker.stop()


class CircuitBreaker:
    """The breaker of one handler: pauses its topic while most of its calls fail."""

    def __init__(self, handler: Handler, about: Breaker, pausing: Pausing) -> None:
        self._handler, self._about, self._pausing = handler, about, pausing
        self._topic = handler.subscription.topic
        self._state = BreakerState(about)
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._looking: asyncio.TimerHandle | None = None
        self._reason = ""
        """Of its pause."""
        self._handled = 0
        """Messages handled when one was let through."""
        self._leave: Leave | None = None
        """For the one message that is tried."""

    def __repr__(self) -> str:
        return f"<CircuitBreaker {self._handler.name}: {self._state.circuit.value}>"

    def failed(self, failure: Failure) -> None:
        """An attempt of its handler has failed."""
        if self._state.circuit is not Circuit.CLOSED and (self._was_resumed() or self._has_handled()):
            self._close()
        if failure.dead or failure.stop:
            if self._state.circuit is Circuit.HALF_OPEN and self._reason:
                self._probe()  # that message says nothing about the others
            return
        seconds = self._state.failed(self._loop.time(), self._handler.stats.handled)
        if seconds is not None:
            self._open(seconds, failure)

    def stop(self) -> None:
        """Its group has ended."""
        for timer in (self._timer, self._looking):
            if timer is not None:
                timer.cancel()

    def _open(self, seconds: float, failure: Failure) -> None:
        self.stop()
        about, before, self._leave = self._about, self._reason, None
        self._reason = (
            f"circuit breaker of {self._handler.name}: {about.failures} failed attempts within {seconds:.0f} s, "
            f"the last: {failure}; one message is tried after {about.pause:g} s"
        )
        self._pausing.replace(self._topic, before, self._reason)
        self._timer = self._loop.call_later(about.pause, self._probe)

    def _probe(self) -> None:
        """Let one message through; another one when that gives no answer within a pause."""
        self.stop()
        if self._was_resumed():
            self._close()
            return
        self._state.try_one()
        self._handled = self._handler.stats.handled
        self._leave = Leave(self._handler.name, self._begin_to_look)
        self._pausing.probe(self._topic, self._reason, self._leave)
        self._timer = self._loop.call_later(self._about.pause, self._no_answer)

    def _no_answer(self) -> None:
        if self._leave is None or self._leave.is_taken or self._was_resumed():
            self._probe()
        else:
            self._let_all()

    def _let_all(self) -> None:
        """For a whole pause its handler had no message to try: perhaps it stands behind those of another handler.

        The topic goes on, and the next message of the handler decides.
        """
        self.stop()
        reason, self._reason, self._leave = self._reason, "", None
        self._pausing.resume(self._topic, reason)

    def _begin_to_look(self) -> None:
        self._handled = self._handler.stats.handled
        self._looking = self._loop.call_later(_FIRST_LOOK, self._look, _FIRST_LOOK)

    def _look(self, wait: float) -> None:
        """Handled messages are not reported one by one, so the counter is read."""
        if self._has_handled():
            self._close()
        else:
            wait = min(2 * wait, _LONGEST_LOOK)
            self._looking = self._loop.call_later(wait, self._look, wait)

    def _close(self) -> None:
        self.stop()
        self._state.close()
        if self._reason:
            self._pausing.resume(self._topic, self._reason)
        self._reason, self._leave = "", None

    def _has_handled(self) -> bool:
        """Whether one of its messages was handled since one was let through."""
        return self._state.circuit is Circuit.HALF_OPEN and self._handler.stats.handled > self._handled

    def _was_resumed(self) -> bool:
        """The app has lifted the pause."""
        return bool(self._reason) and not self._pausing.pauses.has(self._topic, self._reason)
