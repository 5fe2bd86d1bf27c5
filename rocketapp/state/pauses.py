"""Which topics of a group are paused, and why. Reasons add up: a topic goes on when all of them were lifted."""

from __future__ import annotations

from collections.abc import Iterable


class Pauses:
    """The reasons for which the topics of one group are paused."""

    def __init__(self) -> None:
        self._reasons: dict[str, list[str]] = {}
        self.changes = 0
        """How often topics were paused or resumed."""

    def __repr__(self) -> str:
        return f"<Pauses {self._reasons}>"

    def pause(self, topic: str, reason: str) -> None:
        """Add a reason. One that is there already is not added twice."""
        self.changes += 1
        reasons = self._reasons.setdefault(topic, [])
        if reason not in reasons:
            reasons.append(reason)

    def resume(self, topic: str, reason: str | None = None) -> None:
        """Lift this reason, or without one all of them. Nothing happens if the topic is not paused for it."""
        self.changes += 1
        reasons = self._reasons.get(topic, [])
        if reason is None:
            reasons.clear()
        elif reason in reasons:
            reasons.remove(reason)
        if not reasons:
            self._reasons.pop(topic, None)

    def is_paused(self, topic: str) -> bool:
        """Whether there is a reason."""
        return topic in self._reasons

    def reason(self, topic: str) -> str | None:
        """Why a topic is paused, in words; None when it is not."""
        reasons = self._reasons.get(topic)
        return f"paused: {', '.join(reasons)}" if reasons else None

    def reason_of_all(self, topics: Iterable[str]) -> str | None:
        """Why all these topics are paused, in words; None when one of them is not, or when there is none."""
        reasons = [self._reasons.get(topic, []) for topic in topics]
        if not reasons or not all(reasons):
            return None
        every = dict.fromkeys(reason for some in reasons for reason in some)
        return f"paused: {', '.join(every)}"
