"""The facts that decisions need of a received message, and of several that stay together: offsets and sizes."""

from __future__ import annotations

from typing import Protocol, Self


class Pulled(Protocol):
    """A received message as `state` sees it."""

    @property
    def offset(self) -> int:
        """Its offset in its queue."""
        ...

    @property
    def size(self) -> int:
        """Bytes of its stored record, for flow control."""
        ...


class PulledRecords(Protocol):
    """Pulled messages of one queue that are not told apart, as `state` sees them."""

    @property
    def offset(self) -> int:
        """Of the first message."""
        ...

    @property
    def end(self) -> int:
        """The offset behind the last message."""
        ...

    @property
    def size(self) -> int:
        """Bytes of the stored records."""
        ...

    def __len__(self) -> int:
        """How many messages."""
        ...

    def since(self, offset: int) -> Self | None:
        """Only the messages from this offset on; None without such messages."""
        ...
