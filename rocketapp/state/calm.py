"""After a broker came back no queue changes hands for a moment.

Members that were cut off together come back one after the other. A member that decided on the first list would
take queues from members that are about to return.
"""

from __future__ import annotations

REGROUP = 2.0
"""Seconds after a lost broker was reached again: living members dial it about once a second."""
LONGEST_CALM = 10.0
"""Seconds after the first disturbance of a row: a broker that is lost again and again delays nothing for longer."""


class Calm:
    """Until when nothing is decided."""

    __slots__ = ("_since", "until")

    def __init__(self, now: float) -> None:
        self._since = now
        self.until = now
        """The loop's time from which on lists of members are acted on."""

    def __repr__(self) -> str:
        return f"<Calm until {self.until:.3f}>"

    def disturb(self, now: float) -> None:
        """A broker came back."""
        if now > self.until + REGROUP:
            self._since = now
        self.until = max(self.until, min(now + REGROUP, self._since + LONGEST_CALM))

    def is_over(self, now: float) -> bool:
        """Whether a list of members may be acted on."""
        return now >= self.until
