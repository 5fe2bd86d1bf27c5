"""Names inside a document: legal in references, unique, and the same every time."""

from __future__ import annotations

import re

_OTHERS = re.compile(r"[^A-Za-z0-9_.-]+")


def identifier(text: str) -> str:
    """The text with a dash for each run of characters that a reference would have to escape."""
    return _OTHERS.sub("-", text).strip("-.").rstrip("_") or "unnamed"


class Names:
    """Gives each name once; the second time it gets a number."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def take(self, text: str) -> str:
        """The identifier of a text, unlike all before it."""
        wanted = name = identifier(text)
        number = 1
        while name in self._taken:
            number += 1
            name = f"{wanted}-{number}"
        self._taken.add(name)
        return name
