"""A concurrent queue changes hands between living members: who waits for whom, and how long.

The member that gives a queue away drops what was not started, commits at once, lets running handlers go on for
`RUN_ON` seconds, and commits again. Members cannot tell each other more than offsets. So the next owner waits
until the committed offset has reached the end of the queue, or until the member before must be through.
"""

from __future__ import annotations

RUN_ON = 1.0
"""Seconds that running handlers of a queue get when it is given to another member."""
MOMENT = 0.25
"""Seconds in which all members hear that the group has changed. Before that the previous owner still pulls, so an
empty queue proves nothing."""
LONGEST_WAIT = 1.4
"""Seconds after which the next owner begins at the committed offset: `RUN_ON`, and time to hear the news and commit."""
LOOK_INTERVAL = 0.25
"""Seconds between two looks at the queue."""
_GRAIN = 0.01
"""Least seconds between two looks: clocks are not exact."""


def may_begin(waited: float, committed: int | None = None, end: int | None = None) -> bool:
    """Whether the next owner begins after `waited` seconds.

    `committed`: the group's offset, and `end`: the queue's end; None when it is not known, or when there is none.
    """
    if waited >= LONGEST_WAIT:
        return True
    return waited >= MOMENT and committed is not None and end is not None and committed >= end


def next_look(waited: float) -> float:
    """Seconds until the next look."""
    wait = MOMENT - waited if waited < MOMENT else min(LOOK_INTERVAL, LONGEST_WAIT - waited)
    return max(_GRAIN, wait)
