"""What a history of handled messages proves: lost, phantom, repeated, overtaken.

Pure: events in, findings out. A checker that never complains is worthless, so test_checker.py feeds it bad histories.
A message is named by its number (unknown to the broker) and by its place, queue and offset.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple


class Event(NamedTuple):
    """One line that a handler wrote."""

    event: str
    """`start` or `done`."""
    at: float
    """Monotonic seconds, one clock for all processes of the machine."""
    pid: int
    queue: int
    offset: int
    number: int
    attempt: int = 1


class Kill(NamedTuple):
    """A process that was ended by `kill -9`."""

    at: float
    pid: int


def done_numbers(events: Iterable[Event]) -> list[int]:
    """The numbers of the handled messages, with repetitions."""
    return [event.number for event in events if event.event == "done"]


def lost(stored: Iterable[int], events: Iterable[Event]) -> list[int]:
    """Numbers that the broker acknowledged and that were not handled to the end."""
    return sorted(set(stored) - set(done_numbers(events)))


def phantoms(possible: Iterable[int], events: Iterable[Event]) -> list[int]:
    """Numbers that were handled although they were neither stored nor in doubt."""
    return sorted({event.number for event in events} - set(possible))


def repeated(events: Iterable[Event]) -> dict[int, int]:
    """Numbers that were handled to the end more than once, and how often."""
    return {number: count for number, count in Counter(done_numbers(events)).items() if count > 1}


def conflicts(events: Iterable[Event]) -> list[tuple[int, int]]:
    """Places that held two different messages: (queue, offset) must name one message for ever."""
    held: dict[tuple[int, int], int] = {}
    return sorted(
        {
            (event.queue, event.offset)
            for event in events
            if held.setdefault((event.queue, event.offset), event.number) != event.number
        }
    )


def overtaken(events: Sequence[Event]) -> list[str]:
    """Starts of a message while the one before it in its queue was not done yet.

    The first offset of each queue must be 0, so that nothing at the front can be missing unseen.
    """
    findings: list[str] = []
    done: set[tuple[int, int]] = set()
    for event in sorted(events, key=by_time):
        if event.event == "done":
            done.add((event.queue, event.offset))
        elif event.offset > 0 and (event.queue, event.offset - 1) not in done:
            findings.append(
                f"queue {event.queue}: {event.offset} started at {event.at:.3f} before {event.offset - 1} was done"
            )
    return findings


def overlaps(events: Sequence[Event], kills: Collection[Kill] = ()) -> list[tuple[Event, Event]]:
    """Starts in a queue while another message of that queue was in hand, here or in another process: both of them.

    What a killed process had in hand ended with it.
    """
    died = _deaths(kills)
    findings: list[tuple[Event, Event]] = []
    in_hand: dict[int, list[Event]] = {}
    for event in sorted(events, key=by_time):
        running = in_hand.setdefault(event.queue, [])
        if event.event == "start":
            running[:] = [call for call in running if died.get(call.pid, float("inf")) > event.at]
            if running:
                findings.append((running[-1], event))
            running.append(event)
        else:
            running[:] = [call for call in running if (call.pid, call.offset) != (event.pid, event.offset)]
    return findings


def overlapping(events: Sequence[Event], kills: Collection[Kill] = ()) -> list[str]:
    """The same as sentences."""
    return [
        f"queue {second.queue}: {second.offset} of pid {second.pid} while {first.offset} of pid {first.pid}"
        for first, second in overlaps(events, kills)
    ]


def unexplained_repeats(events: Sequence[Event], kills: Collection[Kill]) -> list[str]:
    """Messages handled again although the process that had handled them was not killed in between."""
    died = _deaths(kills)
    findings: list[str] = []
    finished: dict[tuple[int, int], Event] = {}
    for event in sorted(events, key=by_time):
        if event.event != "done":
            continue
        before = finished.get((event.queue, event.offset))
        if before is not None and died.get(before.pid, float("inf")) > event.at:
            findings.append(
                f"queue {event.queue}: {event.offset} done by pid {before.pid} and again by pid {event.pid}"
            )
        finished[event.queue, event.offset] = event
    return findings


def by_key(events: Sequence[Event], keys: int) -> list[Event]:
    """The same events as if each order key (number modulo `keys`) of a queue had a queue of its own, without gaps."""
    places = sorted({(event.queue, event.number % keys, event.offset) for event in events})
    ranks: dict[tuple[int, int, int], int] = {}
    for (queue, key), group in groupby(places, key=itemgetter(0, 1)):
        ranks |= {(queue, key, offset): rank for rank, (_, _, offset) in enumerate(group)}
    return [
        event._replace(
            queue=event.queue * keys + event.number % keys,
            offset=ranks[event.queue, event.number % keys, event.offset],
        )
        for event in events
    ]


def keys_out_of_order(events: Sequence[Event], keys: int) -> list[str]:
    """Messages of one order key (number modulo `keys`) that started before their predecessor of that key was done."""
    findings: list[str] = []
    done: set[int] = set()
    for event in sorted(events, key=by_time):
        if event.event == "done":
            done.add(event.number)
        elif event.number >= keys and event.number - keys not in done:
            findings.append(f"key {event.number % keys}: {event.number} started before {event.number - keys} was done")
    return findings


def by_time(event: Event) -> tuple[float, bool]:
    """The order in which things happened."""
    # Of two events with one time the done comes first: a process writes done, then the next start.
    return event.at, event.event == "start"


def _deaths(kills: Iterable[Kill]) -> Mapping[int, float]:
    return {kill.pid: kill.at for kill in kills}
