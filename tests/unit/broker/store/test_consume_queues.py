from __future__ import annotations

from rocketapp.broker.store.consume_queues import ConsumeQueues
from rocketapp.broker.store.files import MemoryFiles
from rocketapp.broker.store.stored import Stored
from rocketapp.model.event import RecordDamaged
from tests.cases import cases
from tests.unit.broker.store.stores import Events


def rebuilt(*offsets: int) -> tuple[list[int], Events]:
    """Which record, by its place, each offset of the queue leads to after records with these numbers; -1: a hole."""
    events = Events()
    queues = ConsumeQueues(MemoryFiles(), events)
    queues.follow(Stored(place * 100, 100, "T", 0, offset, 0, 0, b"") for place, offset in enumerate(offsets))
    queues.finish()
    queue = queues["T", 0]
    queue.find_min(0)
    below = [-1] * queue.min_offset
    return below + [queue.entry(offset)[0] // 100 for offset in range(queue.min_offset, queue.max_offset)], events


@cases(
    "offsets, expected, damaged",
    [
        ((0, 1, 2, 3), [0, 1, 2, 3], 0),
        # one number flipped: the record keeps its place, and readers see that it is damaged
        ((0, 9, 2, 3), [0, 1, 2, 3], 0),
        ((0, 1, 0, 3), [0, 1, 2, 3], 0),
        ((0, 1, 1 << 60, 3), [0, 1, 2, 3], 0),
        ((7, 1, 2), [0, 1, 2], 0),
        # a record of another queue strayed in
        ((0, 1, 77, 2, 3), [0, 1, 3, 4], 1),
        # records are missing
        ((0, 1, 4, 5), [0, 1, 2, 2, 2, 3], 0),
        ((0, 1, 4), [0, 1, 2, 2, 2], 0),
        # the first ones are gone for good
        ((3, 4, 5), [-1, -1, -1, 0, 1, 2], 0),
        ((3,), [-1, -1, -1, 0], 0),
        # the topic was made anew
        ((0, 1, 2, 0, 1), [3, 4], 0),
        ((0, 1, 2, 0), [3], 0),
        # numbers that nothing explains
        ((0, 1, 2, 1, 1, 3), [0, 1, 2, 5], 2),
        ((0, 1, 1 << 60, (1 << 60) + 1, 2), [0, 1, 4], 2),
    ],
)
def test_the_following_record_decides_on_a_doubtful_number(
    offsets: tuple[int, ...], expected: list[int], damaged: int
) -> None:
    found, events = rebuilt(*offsets)
    assert found == expected
    assert len(events.of(RecordDamaged)) == damaged


def test_records_that_are_not_for_consumers_get_no_entry() -> None:
    queues = ConsumeQueues(MemoryFiles(), Events())
    queues.follow([Stored(0, 100, "T", 0, 0, 4, 0, b""), Stored(100, 100, "T", 0, 0, 12, 0, b"")])
    assert not queues
