"""Which topics of a group are paused, and why. Reasons add up: a topic goes on when all of them were lifted.

A pause is in effect at once: what pulls the queues and what calls the handlers hear of every change.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from rocketapp.model.snapshot import HandlerStats

EVERY = ""
"""Stands for every topic."""


class Probe:
    """Permission to start one message of a handler although its topic is paused for a reason."""

    __slots__ = ("_handled", "_handler", "_stats")

    def __init__(self, handler: str, stats: HandlerStats) -> None:
        """`stats`: the counters of this handler."""
        self._handler, self._stats = handler, stats
        self._handled: int | None = None
        """Messages that had gone well before it was made use of."""

    @property
    def is_taken(self) -> bool:
        """A message was started with it."""
        return self._handled is not None

    @property
    def was_of_use(self) -> bool:
        """Whether a message of the handler succeeded after the probe was taken."""
        return self._handled is not None and self._stats.went_well > self._handled

    def take(self, handler: str) -> bool:
        """Take it; False when it belongs to another handler or is taken already."""
        if self.is_taken or handler != self._handler:
            return False
        self._handled = self._stats.went_well
        return True


class Pauses:
    """The paused topics of one group, with their reasons."""

    def __init__(self) -> None:
        self._reasons: dict[str, list[str]] = {}
        self._probes: dict[tuple[str, str], Probe] = {}
        """By topic and reason."""
        self._watchers: dict[str, dict[Callable[[], None], None]] = {}

    def __repr__(self) -> str:
        return f"<Pauses {self._reasons}>"

    def pause(self, topic: str, reason: str, *, before: str = "") -> None:
        """Start no more handlers of this topic and pull no more of its messages, until `resume` lifts the reason.

        `before`: a reason that is lifted with it, with nothing started in between.
        """
        self._probes.pop((topic, reason), None)
        reasons = self._reasons.setdefault(topic, [])
        if reason not in reasons:
            reasons.append(reason)
        if before != reason:
            self._lift(topic, [before])
        self._tell(topic)

    def resume(self, topic: str, reason: str | None = None) -> None:
        """Lift this reason, or without one all of them. Nothing happens if the topic is not paused for it."""
        self._lift(topic, self._reasons.get(topic, []) if reason is None else [reason])
        self._tell(topic)

    def probe(self, topic: str, reason: str, probe: Probe) -> None:
        """Although it is paused for this reason, pull its messages, and start one with this probe."""
        if self.has(topic, reason):
            self._probes[topic, reason] = probe
        self._tell(topic)

    def _lift(self, topic: str, lifted: Collection[str]) -> None:
        left = [reason for reason in self._reasons.get(topic, ()) if reason not in lifted]
        for reason in lifted:
            self._probes.pop((topic, reason), None)
        if left:
            self._reasons[topic] = left
        else:
            self._reasons.pop(topic, None)

    # Who hears of it.

    def watch(self, topic: str, changed: Callable[[], None]) -> None:
        """Call this after every change of this topic, or of EVERY one."""
        self._watchers.setdefault(topic, {})[changed] = None

    def unwatch(self, topic: str, changed: Callable[[], None]) -> None:
        """Call it no more. Nothing happens if it did not watch."""
        self._watchers.get(topic, {}).pop(changed, None)

    def _tell(self, topic: str) -> None:
        for changed in [*self._watchers.get(topic, ()), *self._watchers.get(EVERY, ())]:
            changed()

    # What may start.

    def may_probe(self, topic: str, handler: str) -> bool:
        """Whether a message of this handler may start although its topic is paused. True once for each probe."""
        return any(probe.take(handler) for probe in self._given(topic))

    def _given(self, topic: str) -> list[Probe]:
        """The probes of a paused topic, if every reason for its pause has one."""
        probes = [self._probes.get((topic, reason)) for reason in self._reasons.get(topic, [])]
        given = [probe for probe in probes if probe is not None]
        return given if len(given) == len(probes) else []

    def probes(self, topics: Collection[str]) -> bool:
        """Whether one message of any of these topics may start as a probe."""
        return any(topic in topics and bool(self._given(topic)) for topic, _ in self._probes)

    def has(self, topic: str, reason: str) -> bool:
        """Whether it is paused for this reason."""
        return reason in self._reasons.get(topic, ())

    @property
    def are_any(self) -> bool:
        """Whether any topic is paused."""
        return bool(self._reasons)

    def is_paused(self, topic: str) -> bool:
        """Whether the topic is paused, for any reason."""
        return topic in self._reasons

    def reason(self, topic: str) -> str | None:
        """Why a topic is paused, in words; None when it is not."""
        reasons = self._reasons.get(topic)
        return f"paused: {', '.join(reasons)}" if reasons else None

    def reason_of_any(self) -> str | None:
        """Why topics are paused, in words; None when none is."""
        return self.reason_of_all(self._reasons)

    def reason_of_all(self, topics: Collection[str]) -> str | None:
        """Why all these topics are paused, in words; None when one of them is not, or when there is none."""
        if not topics or len(self._reasons) < len(topics):
            return None  # most often: a retry queue asks it of a thousand topics after each change
        reasons = [self._reasons.get(topic, []) for topic in topics]
        if not all(reasons):
            return None
        every = dict.fromkeys(reason for some in reasons for reason in some)
        return f"paused: {', '.join(every)}"
