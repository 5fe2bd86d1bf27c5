"""Where consumption of a queue begins, and where it goes on when a broker calls an offset illegal.

A committed offset decides; the start rule is only for a group without one. "Unknown" is
never read as "none": this module is asked only when the broker has said that there is none.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from rocketapp.model.names import is_retry_topic
from rocketapp.model.subscription import Start
from rocketapp.state.queue_identity import Landmark


class Edge(Enum):
    """An end of a queue."""

    MIN = "min"
    MAX = "max"


StartAt = Edge | int
"""An end of the queue, or the first message stored at or after this time in milliseconds since 1970."""


CLOCK_SKEW = 60.0
"""Seconds by which a broker's clock may be behind ours without a message being missed."""


def start_at(topic: str, start: Start, *, joined: float | None) -> StartAt:
    """Where a group without an offset begins.

    `joined`: for a queue that had no route when this member joined, or was there last, that time in seconds since 1970;
    None for any other. Such a queue may be new, or old while the name server could not be asked: what came since the
    join is never missed, and older messages are read only when the rule asks for them.
    """
    if is_retry_topic(topic) or start == "first":
        return Edge.MIN
    since = None if joined is None else joined - CLOCK_SKEW
    if isinstance(start, datetime):
        wanted = start.timestamp()
        return int((wanted if since is None else min(wanted, since)) * 1000)
    return Edge.MAX if since is None else int(since * 1000)


@dataclass(frozen=True, slots=True)
class Correction:
    """Where to go on, and why, in words."""

    offset: int
    reason: str
    by_start: bool = False
    """In place of the offset the start rule says where."""


def correct(offset: int, *, next_offset: int, min_offset: int, max_offset: int) -> Correction:
    """The offset to use instead of one that the broker refused (code 21).

    Inside the queue's bounds the broker's answer is an operator's reset and is followed. Above them go back to the end
    and ignore its suggestion, which is 0 from old brokers; a group looks more closely: `beyond_the_end`. Below them
    messages were deleted before they were read.
    """
    if offset > max_offset:
        lost = offset - max_offset
        return Correction(max_offset, f"offset {offset} is {lost} beyond the broker's end {max_offset}")
    if offset < min_offset:
        gone = min_offset - offset
        return Correction(
            min_offset, f"offset {offset} is below the broker's first {min_offset}: {gone} were deleted unread"
        )
    return Correction(next_offset, f"the broker moved the group from offset {offset} to {next_offset}")


def beyond_the_end(
    offset: int, *, min_offset: int, max_offset: int, known: Landmark | None, found: Landmark | None
) -> Correction:
    """The offset at which a group goes on instead of one beyond the end, whatever the broker suggests.

    known: a record that was pulled from the queue; found: the one at its place now. Unchanged, it is the same queue,
    and the broker lost its tail. Another one, or none while the queue begins at 0, is another queue: an empty broker
    in the place of the old one.
    """
    count = max_offset - min_offset
    what = f"offset {offset} is {offset - max_offset} beyond the broker's end {max_offset}"
    if known is None:
        said = f"{what}, and this process has pulled none of its {count}: start= says where it begins"
        return Correction(max_offset, said, by_start=True)
    if found != known and (found is not None or min_offset <= 0):
        return Correction(min_offset, f"{what}, and its records are others: {count} are read, from its first offset on")
    return Correction(max_offset, f"{what}: it lost its tail; {offset - max_offset} offsets are given out again")
