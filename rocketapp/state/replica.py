"""What one slave has of the log, and what it is to get next.

A slave says where its log ends. From there on it gets all that is durable at the master, and no byte more: what a loss
of power may take from the master must be nowhere else. An end that its master cannot have sent is the end of another
log. It is refused, because neither of the two logs may be cut to fit the other.
"""

from __future__ import annotations

MOST_BLOCK_BYTES = 32_768
"""Java: haTransferBatchSize. A slave has room for 4 MiB."""


class Replica:
    """Where one slave is in the log, by what it reports."""

    def __init__(self) -> None:
        self.confirmed: int = -1
        """Where its log ends, as it said last; -1 before it has said anything."""
        self.position: int = -1
        """The next byte to send."""
        self._begun: int = -1
        """Where the last block that was begun ends. A slave may confirm it before its sender hears that it is sent."""

    def __repr__(self) -> str:
        return f"<Replica has {self.confirmed}, gets {self.position}>"

    def reported(self, end: int, *, begin: int, durable: int) -> str | None:
        """The slave said where its log ends; the reason why it gets nothing more, or None.

        `begin`: where the master's log begins. An empty slave gets all of it; Java's master sends the last file only.
        """
        if self.position < 0:
            if end < 0 or end > durable:
                return f"its log ends at {end}, ours at {durable}: it is of another history"
            if 0 < end < begin:
                return f"its log ends at {end}, ours begins at {begin}: what lies between is deleted"
            self.position = self._begun = end or begin
        elif end > self._begun:
            return f"its log ends at {end}, it has got bytes up to {self._begun} only: somebody else writes there"
        self.confirmed = max(self.confirmed, end)
        return None

    def begin_block(self, durable: int, file_end: int) -> int:
        """Begin the next block; return its size, 0 for none. `file_end`: of the file that holds the position."""
        size = max(min(MOST_BLOCK_BYTES, durable - self.position, file_end - self.position), 0)
        self._begun = self.position + size
        return size
