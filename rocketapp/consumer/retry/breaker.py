"""Pauses a topic after failures: when the handler or its policy says Pause, or its circuit breaker opens.

A breaker is closed until `state.breaker` says that there are enough failures. Open, it pauses its topic. After its
pause it is half open: one message is tried, and its outcome closes or opens it. A topic paused by a breaker goes on as
soon as one message of it was handled. These pauses work as `app.pause`: reasons add up, so a pause of the app holds
whatever a breaker says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from rocketapp.consumer.handler import Handler
from rocketapp.consumer.member import Member
from rocketapp.model.policy import Breaker
from rocketapp.state.breaker import RecentFailures
from rocketapp.state.pauses import Pauses, Probe
from rocketapp.state.redelivery import Failure

_LOOK = 0.1
"""Seconds between looks whether the message that is tried is done: handled ones are not reported one by one."""


class FailurePauses:
    """Pauses the topics of one group after failures."""

    def __init__(self, member: Member) -> None:
        self._pauses, known = member.pauses, member.stats.handlers
        self._breakers = {
            id(handler): CircuitBreaker(handler, about, member.pauses)
            for handler in known
            if handler.subscription.retry is not None and (about := handler.subscription.retry.breaker) is not None
        }

    def __repr__(self) -> str:
        return f"<FailurePauses: {list(self._breakers.values())}>"

    def failed(self, handler: Handler, failure: Failure) -> None:
        """An attempt has failed: pause the topic if that is called for."""
        if failure.pause:
            self._pauses.pause(handler.subscription.topic, f"{handler.name} said pause: {failure}")
        breaker = self._breakers.get(id(handler))
        if breaker is not None:
            breaker.failed(failure)

    def heard(self, handler: Handler, judged: Iterable[tuple[object, Failure | None]]) -> None:
        """A call ended whose queue was given back. Its messages come again, but a Pause takes effect."""
        for _, failure in judged:
            if failure is not None:
                self.failed(handler, failure)

    def stop(self) -> None:
        """The group has ended."""
        for breaker in self._breakers.values():
            breaker.stop()


class CircuitBreaker:
    """The circuit breaker of one handler."""

    def __init__(self, handler: Handler, about: Breaker, pauses: Pauses) -> None:
        self._handler, self._about, self._pauses = handler, about, pauses
        self._topic = handler.subscription.topic
        self._failures = RecentFailures(about)
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._reason = ""
        """Why it has paused the topic; empty while it has not."""
        self._tried: Probe | None = None
        """The probe that was made last; None while it is closed or open."""
        self._until = 0.0
        """The loop's time until which its message is waited for."""

    def __repr__(self) -> str:
        return f"<CircuitBreaker {self._handler.name}: {self._reason or 'closed'}>"

    def failed(self, failure: Failure) -> None:
        """An attempt of the handler has failed."""
        if self._was_resumed() or (self._tried is not None and self._tried.was_of_use):
            self._close()
        is_half_open = self._tried is not None
        if failure.dead or failure.parked:
            if is_half_open and self._reason:
                self._probe()  # that message says nothing about the others
        elif is_half_open or not self._reason:  # otherwise its call began before it opened
            self._failures.add(self._loop.time(), self._handler.stats.went_well)
            if is_half_open or self._failures.are_enough:
                self._open(failure)

    def stop(self) -> None:
        """The group has ended."""
        if self._timer is not None:
            self._timer.cancel()

    def _open(self, failure: Failure) -> None:
        self.stop()
        self._tried = None
        about, before, seconds = self._about, self._reason, self._failures.seconds
        self._reason = (
            f"circuit breaker of {self._handler.name}: {about.failures} failed attempts within {seconds:.0f} s, "
            f"the last: {failure}; one message is tried after {about.pause:g} s"
        )
        self._pauses.pause(self._topic, self._reason, before=before)
        self._timer = self._loop.call_later(about.pause, self._probe)

    def _probe(self) -> None:
        """Let one message through; another one when the first has no outcome within a pause."""
        probe = self._tried = Probe(self._handler.name, self._handler.stats)
        self._until = self._loop.time() + self._about.pause
        self._pauses.probe(self._topic, self._reason, probe)
        self._look(probe)

    def _look(self, probe: Probe) -> None:
        self.stop()
        if self._was_resumed() or probe.was_of_use:
            self._close()
        elif self._loop.time() < self._until:
            self._timer = self._loop.call_later(_LOOK, self._look, probe)
        elif probe.is_taken:
            self._probe()
        else:
            # For a whole pause its handler had no message to try: perhaps it stands behind those of another handler.
            # The topic goes on, and the next message of the handler decides.
            probe.take(self._handler.name)
            self._resume()

    def _close(self) -> None:
        self.stop()
        self._tried = None
        self._failures.clear()
        self._resume()

    def _resume(self) -> None:
        reason, self._reason = self._reason, ""
        if reason:
            self._pauses.resume(self._topic, reason)

    def _was_resumed(self) -> bool:
        """Whether the app has lifted the pause."""
        return bool(self._reason) and not self._pauses.has(self._topic, self._reason)
