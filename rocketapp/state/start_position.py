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


class Edge(Enum):
    """The first or the last offset of a queue."""

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
    """The offset at which to go on, and why, in words."""

    offset: int
    reason: str
    by_start: bool = False
    """In place of the offset the start rule says where."""
    is_another: bool = False
    """The broker has other records than those that were pulled."""
    is_reset: bool = False
    """An operator wants it so: nothing is wrong with the offset before."""


def correct(offset: int, *, next_offset: int, min_offset: int, max_offset: int, is_same: bool) -> Correction:
    """The offset to use instead of one that the broker refused (code 21).

    Inside the queue's bounds the broker's answer is an operator's reset and is followed. Below them messages were
    deleted before they were read. Above them its suggestion, which is 0 from old brokers, is ignored. `is_same`: a
    record that was pulled is still there, so the broker lost its tail; False when none was pulled.
    """
    if offset > max_offset:
        lost, what = offset - max_offset, _beyond(offset, max_offset)
        if is_same:
            return Correction(max_offset, f"{what}: it lost its tail; {lost} offsets are given out again")
        count = max_offset - min_offset
        said = f"{what}, and this process has pulled none of its {count}: start= says where it begins"
        return Correction(max_offset, said, by_start=True)
    if offset < min_offset:
        gone = min_offset - offset
        return Correction(
            min_offset, f"offset {offset} is below the broker's first {min_offset}: {gone} were deleted unread"
        )
    return Correction(next_offset, f"the broker moved the group from offset {offset} to {next_offset}", is_reset=True)


def begin_anew(offset: int, *, min_offset: int, max_offset: int, since: int | None = None) -> Correction:
    """Where a group goes on in another queue of the name: an empty broker has taken the place of the old one.

    `since`: the queue is the same, but lost its newest messages; from this offset on it may hold others.
    """
    if since is not None:
        since = max(min_offset, min(since, offset, max_offset))
        lost = f"the broker lost messages before offset {offset} and has stored others in their place"
        return Correction(since, f"{lost}: {max_offset - since} are read, from {since} on", is_another=True)
    where = f"offset {offset} was reached in another store of the broker"
    what = _beyond(offset, max_offset) if offset > max_offset else where
    count = max_offset - min_offset
    said = f"{what}, and its records are others: {count} are read, from its first offset on"
    return Correction(min_offset, said, is_another=True)


def _beyond(offset: int, max_offset: int) -> str:
    return f"offset {offset} is {offset - max_offset} beyond the broker's end {max_offset}"
