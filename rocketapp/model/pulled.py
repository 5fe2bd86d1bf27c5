"""The little that decisions need to know of a received message."""

from __future__ import annotations

from typing import Protocol


class Pulled(Protocol):
    """What `state` sees of a message."""

    @property
    def offset(self) -> int:
        """Its place in its queue."""
        ...

    @property
    def size(self) -> int:
        """Bytes of its stored record, for flow control."""
        ...
