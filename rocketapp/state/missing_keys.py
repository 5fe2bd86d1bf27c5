"""Whether the first messages of a handler have the property that `order_by=` names: otherwise nothing would tell."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final

FIRST: Final = 100
"""Messages without the property, and none with it, after which the name is probably wrong."""


class MissingKeys:
    """Counts a handler's first messages until one has a key, or until it has told that none has."""

    __slots__ = ("_count", "_tell", "is_over")

    def __init__(self, tell: Callable[[int], None]) -> None:
        """`tell`: called once at most, with the number of messages."""
        self._tell, self._count = tell, 0
        self.is_over: bool = False
        """Nothing is left to find out."""

    def __repr__(self) -> str:
        return f"<MissingKeys {self._count} messages{', over' if self.is_over else ''}>"

    def saw(self, key: Hashable) -> None:
        """The key of one more message; None: it lacks the property."""
        if self.is_over:
            return
        if key is not None:
            self.is_over = True
            return
        self._count += 1
        if self._count == FIRST:
            self.is_over = True
            self._tell(self._count)
