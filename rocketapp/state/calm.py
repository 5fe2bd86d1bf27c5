"""After a broker came back its list of members is not acted on for a moment.

Members that were cut off together come back one after the other. A member that decided on the first list would
take queues from members that are about to return.
"""

from __future__ import annotations

REGROUP = 2.0
"""Seconds after a lost broker was reached again: living members dial it about once a second."""
LONGEST_CALM = 10.0
"""Seconds after the first disturbance of a row: a broker that is lost again and again delays nothing for longer."""


class Calm:
    """Until when the lists of which brokers are not acted on."""

    __slots__ = ("_since", "_until")

    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        self._until: dict[str, float] = {}

    def __repr__(self) -> str:
        return f"<Calm until {self._until}>"

    def disturb(self, broker_name: str, now: float) -> None:
        """The broker came back."""
        until = self._until.get(broker_name)
        if until is None or now > until + REGROUP:
            self._since[broker_name] = until = now
        self._until[broker_name] = max(until, min(now + REGROUP, self._since[broker_name] + LONGEST_CALM))

    def is_over(self, broker_name: str, now: float) -> bool:
        """Whether the list of this broker may be acted on."""
        return now >= self._until.get(broker_name, now)

    def next_end(self, now: float) -> float | None:
        """When the next list may be acted on; None when all may."""
        return min((until for until in self._until.values() if until > now), default=None)
