"""Every message of a batch send travels exactly once, in the order that was wished."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.outgoing import Outgoing
from rocketapp.producer.batches import MOST_IN_BATCH, PreparedMessage, batch_sequences, may_share
from rocketapp.producer.selection import queue_of_key

QUEUES = [MessageQueue("t", "a", number) for number in range(4)]


def item(index: int, size: int = 1) -> PreparedMessage:
    return PreparedMessage(index, f"id{index}", bytes(size), b"")


@given(
    st.lists(st.tuples(st.integers(0, 300), st.sampled_from([None, "k1", "k2", "k3"])), min_size=1),
    st.integers(50, 999),
)
def test_each_message_once_in_order_and_no_batch_too_large(plan: list[tuple[int, str | None]], most: int) -> None:
    messages = [
        (Outgoing(topic="t", body=b"x", order_key=key), item(index, size)) for index, (size, key) in enumerate(plan)
    ]
    sequences = batch_sequences("t", messages, QUEUES, most)
    travelling = [each.number for sequence in sequences for batch in sequence.batches for each in batch]
    assert sorted(travelling) == list(range(len(plan)))
    for sequence in sequences:
        indices = [each.number for batch in sequence.batches for each in batch]
        assert indices == sorted(indices)
        for index in indices:
            key = plan[index][1]
            assert sequence.queue == (None if key is None else queue_of_key(key, QUEUES))
        for batch in sequence.batches:
            assert len(batch) == 1 or sum(each.size for each in batch) <= most
    wished = [sequence.queue for sequence in sequences if sequence.queue is not None]
    assert len(wished) == len(set(wished)), "one sequence per queue keeps the order"


def test_messages_without_a_wish_are_spread_in_runs_worth_sending() -> None:
    def sequences(count: int) -> list[int]:
        messages = [(Outgoing(topic="t", body=b"x"), item(index)) for index in range(count)]
        return [sum(map(len, sequence.batches)) for sequence in batch_sequences("t", messages, QUEUES, 1 << 20)]

    assert sequences(32) == [32]
    assert sequences(33) == [17, 16]
    assert sequences(1000) == [250] * 4


def test_a_batch_has_a_bounded_number_of_messages() -> None:
    messages = [(Outgoing(topic="t", body=b"x", queue=QUEUES[0]), item(index)) for index in range(2500)]
    (sequence,) = batch_sequences("t", messages, QUEUES, 1 << 20)
    assert [len(batch) for batch in sequence.batches] == [MOST_IN_BATCH, MOST_IN_BATCH, 2500 - 2 * MOST_IN_BATCH]


def test_what_brokers_do_not_do_inside_a_batch_travels_alone() -> None:
    assert may_share(Outgoing(topic="t", body=b"x"))
    assert not may_share(Outgoing(topic="t", body=b"x", delay_level=1))
    assert not may_share(Outgoing(topic="%RETRY%g", body=b"x"))
