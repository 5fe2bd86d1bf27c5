"""What a failed attempt means, for the whole app: app.py gives it to every handler that says nothing else."""

from __future__ import annotations

import msgspec

from rocketapp import DeadLetter, Policy


class RefusedError(Exception):
    """What was asked for is refused: a person has to look at it, and no retry helps. Subclasses say by which part."""


RETRIES = 3
POLICY = Policy(
    # Seconds before each further attempt. What is not named below is tried again.
    delays=[1, 5, 30],
    on={msgspec.DecodeError: DeadLetter},
)
