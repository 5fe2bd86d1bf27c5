"""Whether a queue is still the one that was read: the last record that was read is looked for again.

A topic that was created again, a cluster that was moved, an unclean failover and an empty broker of the same name all
leave a queue of the same name with other messages. A position in the old queue means nothing in the new one, whether
it lies below its end or above it.

Whoever keeps a position keeps a landmark beside it, and reads without a filter what the queue holds there now before it
goes on.
"""

from __future__ import annotations

import json
from enum import Enum
from typing import NamedTuple

_LONGEST = 255
"""Characters that stores keep of a landmark."""


class Landmark(NamedTuple):
    """A record that was read before, by which its queue is recognised."""

    offset: int
    stored_ms: int
    key: str

    def text(self) -> str | None:
        """As text for a store: ASCII, at most 255 characters; None when its key is longer."""
        text = json.dumps(self, separators=(",", ":"))
        return text if len(text) <= _LONGEST else None

    @classmethod
    def of_text(cls, text: str) -> Landmark | None:
        """Parse what `text` returned; None for any other text."""
        try:
            offset, stored_ms, key = json.loads(text)
        except (ValueError, TypeError, RecursionError):
            return None
        is_one = type(offset) is type(stored_ms) is int and isinstance(key, str) and 0 <= offset < 2**63
        return cls(offset, stored_ms, key) if is_one else None


class Identity(Enum):
    """Whether a queue is the one that was read before."""

    SAME = "same"
    """The record is there."""
    GONE = "gone"
    """The record was deleted, and what follows it was stored no earlier: the queue grew older."""
    OTHER = "other"
    """Another queue: the place has another record, what follows was stored earlier, or the queue ends below."""


def recognise(known: Landmark, found: Landmark | None, *, end: int) -> Identity:
    """Compare a landmark with `found`, the first record at its offset or behind (None: no record).

    `end`: the next offset.
    """
    if found == known:
        return Identity.SAME
    if found is None:
        is_older = end > known.offset
    else:
        is_older = found.offset > known.offset and found.stored_ms >= known.stored_ms
    return Identity.GONE if is_older else Identity.OTHER
