"""The words of idempotency: a claim for a key, and what the store answers to it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal, NamedTuple

SecondCopy = Literal["wait", "retry", "skip"]
"""What becomes of a second copy while the first one is handled."""


class Claim(NamedTuple):
    """A caller wants to handle the message with this key."""

    key: str
    """32 hexadecimal digits: a hash of the handler and of what makes two messages copies of each other."""
    holder: str
    """Names this one attempt. A store compares holders and does not look into them."""


class MarkState(Enum):
    """What a store knows of a key when it is claimed."""

    CLAIMED = "claimed"
    """It is the caller's now, until its lease ends."""
    RUNNING = "running"
    """Another holder has it."""
    DONE = "done"
    """A message with this key was handled."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The store's answer to one claim."""

    state: MarkState
    holder: str = ""
    """Who has it, when it is RUNNING."""
    seconds: float = 0.0
    """Until the lease of that holder ends, unless it is renewed."""


CLAIMED = Answer(MarkState.CLAIMED)
"""The caller has the key now."""
DONE = Answer(MarkState.DONE)
"""The message was handled before."""
