"""The two facts of a received message that decisions need: its offset and its size."""

from __future__ import annotations

from typing import Protocol


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
