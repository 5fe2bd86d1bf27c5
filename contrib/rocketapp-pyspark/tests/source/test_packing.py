from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_rocketmq.encoding import RowError, encode
from pyspark_rocketmq.packing import Packed, Packing, Payload
from pyspark_rocketmq.writing import batches_of, by_queue, by_topic
from rocketapp import MessageQueue
from rocketapp.wire.batch import decode_batch

QUEUES = [MessageQueue("t", "a", 0), MessageQueue("t", "a", 1), MessageQueue("t", "b", 0)]


def places(count: int, **columns: Any) -> list[MessageQueue | None]:
    """Where each row goes."""
    found: list[MessageQueue | None] = [None] * count
    for queue, rows in by_queue({name: pa.array(column) for name, column in columns.items()}, np.arange(count), QUEUES):
        for row in rows:
            found[row] = queue
    return found


def test_a_row_goes_to_its_queue_or_that_of_its_key_or_in_turn() -> None:
    assert places(2) == [None, None]
    assert places(3, queue_id=[1, 0, None], sharding_key=["x", "y", None]) == [QUEUES[1], QUEUES[0], None]
    first, again, *others = places(30, sharding_key=["x", "x", *map(str, range(28))])
    assert first == again
    assert {first, *others} == set(QUEUES)
    with pytest.raises(RowError, match="topic t has no queue 7") as caught:
        places(2, queue_id=[1, 7])
    assert caught.value.row == 1


@pytest.mark.parametrize(
    ("topics", "default", "expected"),
    [
        (None, "d", {"d": [0, 1, 2]}),
        ([None, None, None], "d", {"d": [0, 1, 2]}),
        (["a", "b", "a"], "", {"a": [0, 2], "b": [1]}),
        (["a", None, ""], "d", {"a": [0], "d": [1, 2]}),
    ],
)
def test_a_row_without_a_topic_goes_to_that_of_the_option(
    topics: list[str | None] | None, default: str, expected: dict[str, list[int]]
) -> None:
    column = None if topics is None else pa.array(topics)
    assert {topic: rows.tolist() for topic, rows in by_topic(column, 3, default=default)} == expected


def test_a_row_without_any_topic_is_refused() -> None:
    with pytest.raises(RowError, match="its topic is null") as caught:
        list(by_topic(pa.array(["a", None]), 2, default=""))
    assert caught.value.row == 1


sizes = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 300), st.booleans()), max_size=40)


@given(st.lists(sizes, max_size=3), st.integers(50, 400))
def test_packing_keeps_every_message_once_in_order_and_below_the_limit(
    batches: list[list[tuple[int, int, bool]]], limit: int
) -> None:
    packing = Packing[int](limit)
    packed: list[tuple[int, Packed]] = []
    expected: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
    for batch in batches:
        for where in range(3):
            here = [
                (str(number).encode().ljust(size), alone)
                for number, (to, size, alone) in enumerate(batch)
                if to == where
            ]
            if not here:
                continue
            bodies, alone = zip(*here, strict=True)
            items = encode({"body": pa.array(bodies)}, ["I"] * len(here))
            packed += [(where, one) for one in packing.add(where, items, np.array(alone))]
            expected[where] += bodies
    packed += packing.rest()
    for where, bodies in expected.items():
        sent = [decode_batch(one.items) for to, one in packed if to == where]
        assert [body for some in sent for body, _, _ in some] == bodies
        assert [len(some) for some in sent] == [one.number for to, one in packed if to == where]
    assert all(len(one.items) <= limit for _, one in packed if one.number > 1)


def test_one_that_may_not_be_in_a_batch_is_alone_and_in_order() -> None:
    items = encode({"body": pa.array([b"0", b"1", b"2", b"3"])}, ["I"] * 4)
    packing = Packing[str](10_000)
    found = [*packing.add("here", items, np.array([False, False, True, False])), *(one for _, one in packing.rest())]
    assert [[body for body, _, _ in decode_batch(one.items)] for one in found] == [[b"0", b"1"], [b"2"], [b"3"]]


def test_a_batch_carries_its_items_and_one_message_is_sent_by_itself() -> None:
    first, second = encode({"body": pa.array([b"a", b"b"])}, ["I", "J"]).to_pylist()
    code, fields, body = Payload(QUEUES[1], Packed(first + second, 2)).request(topic="t", group="g", now_ms=5)
    assert (int(code), fields["m"], fields["e"]) == (320, "true", "1")
    assert [one for one, _, _ in decode_batch(body)] == [b"a", b"b"]
    code, fields, body = Payload(QUEUES[1], Packed(first, 1)).request(topic="t", group="g", now_ms=5)
    assert (int(code), fields["m"], fields["i"], fields["g"]) == (
        310,
        "false",
        "UNIQ_KEY\x01I\x02WAIT\x01true\x02",
        "5",
    )
    assert body == b"a"


def test_large_batches_are_cut_by_their_bytes() -> None:
    batch = pa.RecordBatch.from_pydict({"body": [bytes(4 * 1024 * 1024)] * 9})
    cut = list(batches_of(iter([batch]), ["body"]))
    assert sum(piece.num_rows for piece in cut) == 9
    assert 1 < len(cut) < 9


def test_rows_become_what_arrow_batches_are() -> None:
    now = datetime(2030, 1, 1, 12, 30)
    columns = {"body": b"x", "tags": "T", "queue_id": 1, "properties": {"k": "v"}, "deliver_at": now}
    rows = [tuple({**columns, "body": bytearray(b"x")}.values()), tuple(dict.fromkeys(columns).values())]
    (batch,) = batches_of(iter(rows), list(columns))
    expected = {**columns, "properties": [("k", "v")], "deliver_at": now.astimezone(UTC)}
    assert batch.to_pylist() == [expected, dict.fromkeys(columns)]
