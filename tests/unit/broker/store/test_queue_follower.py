from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rocketapp.broker.store.files import MemoryFiles
from rocketapp.broker.store.queue_follower import QueueFollower
from rocketapp.broker.store.stored import Stored
from tests.unit.broker.store.stores import open_store, record


@given(st.integers(0, 80), st.integers(0, 80), st.lists(st.integers(-20, 20), max_size=20))
def test_each_message_is_taken_once_and_in_order_whether_it_was_there_or_comes_meanwhile(
    before: int, position: int, steps: list[int]
) -> None:
    """A step above 0 stores so many messages, at once or one by one; another one catches up by so many."""
    store, number, taken = open_store(), 0, list[Stored]()
    for _ in range(before):
        store.append(record(b"%d" % (number := number + 1)))
    follower = QueueFollower(store, "T", 0, position, taken.append)
    for step in steps:
        several = [record(b"%d" % (number := number + 1)) for _ in range(max(step, 0))]
        if step % 2:
            store.append_batch(several)
        else:
            for each in several:
                store.append(each)
        assert follower.catch_up(max(-step, 0)) is (follower.lag == 0)
    assert follower.catch_up(follower.lag)
    assert [one.queue_offset for one in taken] == list(range(min(position, before), number))
    assert [one.body for one in taken] == [b"%d" % (one.queue_offset + 1) for one in taken]
    store.close()


def test_another_queue_and_a_damaged_message_are_not_taken() -> None:
    files, taken = MemoryFiles(), list[Stored]()
    store = open_store(files)
    places = [store.append(record(b"%d" % number, queue_id=number % 2)) for number in range(6)]
    store.close()
    files.open("commitlog/" + "0" * 20).write(b"\xff", places[2].physical + 88)
    store = open_store(files)
    assert QueueFollower(store, "T", 0, 0, taken.append).catch_up(10)
    assert [one.body for one in taken] == [b"0", b"4"]
    store.close()
