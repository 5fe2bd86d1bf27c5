from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_rocketmq.offsets import Queue
from pyspark_rocketmq.outgoing import STAMP, Item, Packing, Payload, Row, check_schema, chosen, item_of
from pyspark_rocketmq.problems import OptionError, WriteError
from rocketapp.wire import properties
from rocketapp.wire.batch import decode_batch

QUEUES = [Queue("t", "a", 0), Queue("t", "a", 1), Queue("t", "b", 0)]


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ([("bdy", "string")], "column 'bdy' is none that can be written: the nearest is 'body'"),
        ([("body", "bigint")], "column body is bigint: cast it to binary or string"),
        ([("tags", "string")], "no column body"),
        ([("body", "binary")], "give the option topic or a column topic"),
    ],
)
def test_a_frame_that_cannot_be_written_is_refused(fields: list[tuple[str, str]], problem: str) -> None:
    with pytest.raises(OptionError, match=problem):
        check_schema(fields, has_topic=False)


def test_a_frame_needs_a_body_and_a_topic_alone() -> None:
    check_schema([("body", "string")], has_topic=True)
    check_schema([("body", "binary"), ("topic", "string"), ("queue_id", "bigint")], has_topic=False)


def test_every_column_becomes_what_consumers_see() -> None:
    row = Row(
        body="text",
        tags="T",
        keys="a b",
        properties=[("user", "value")],
        sharding_key="S",
        deliver_at=datetime(2030, 1, 1, tzinfo=UTC),
    )
    item = item_of(row, unique_id="ID", stamp="q/1/2/3")
    assert item.body == b"text"
    assert properties.decode(item.raw_properties) == {
        "user": "value",
        "KEYS": "a b",
        "TAGS": "T",
        "__SHARDINGKEY": "S",
        "UNIQ_KEY": "ID",
        STAMP: "q/1/2/3",
        "WAIT": "true",
        "TIMER_DELIVER_MS": "1893456000000",
    }


def test_a_row_without_a_stamp_has_none() -> None:
    assert STAMP not in properties.decode(item_of(Row(b"x"), unique_id="ID", stamp=None).raw_properties)


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (Row(), "body is null"),
        (Row(b"x", properties={"a\x01": "b"}), "separator"),
        (Row(b"x", properties={"a": "b" * 40_000}), "at most 32767"),
    ],
)
def test_a_row_that_no_broker_could_give_back_is_refused(row: Row, problem: str) -> None:
    with pytest.raises(WriteError, match=problem):
        item_of(row, unique_id="ID", stamp=None)


def test_a_row_goes_to_its_queue_or_that_of_its_key_or_in_turn() -> None:
    assert chosen(Row(b"", queue_id=1), QUEUES, 0) == QUEUES[1]
    assert chosen(Row(b"", queue_id=0, sharding_key="x"), QUEUES, 2) == QUEUES[0]
    assert {chosen(Row(b"", sharding_key="x"), QUEUES, turn) for turn in range(5)} == {
        chosen(Row(b"", sharding_key="x"), QUEUES, 0)
    }
    assert {chosen(Row(b"", sharding_key=str(n)), QUEUES, 0) for n in range(30)} == set(QUEUES)
    assert [chosen(Row(b""), QUEUES, turn) for turn in range(4)] == [*QUEUES, QUEUES[0]]
    with pytest.raises(WriteError, match="topic t has no queue 7"):
        chosen(Row(b"", queue_id=7), QUEUES, 0)


sizes = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 300), st.booleans()), max_size=60)


@given(sizes, st.integers(50, 400))
def test_packing_keeps_every_message_once_in_order_and_below_the_limit(
    given_sizes: list[tuple[int, int, bool]], limit: int
) -> None:
    packing = Packing(limit)
    payloads: list[Payload] = []
    for number, (queue, size, alone) in enumerate(given_sizes):
        item = Item(str(number).encode().ljust(size, b"."), b"")
        payloads += packing.add(QUEUES[queue], item, alone=alone and size % 2 == 0)
    payloads += packing.rest()
    for index, queue in enumerate(QUEUES):
        sent = [int(item.body.rstrip(b".")) for one in payloads if one.queue == queue for item in one.items]
        assert sent == [number for number, (which, _, _) in enumerate(given_sizes) if which == index]
    assert all(sum(item.size for item in one.items) <= limit for one in payloads if len(one.items) > 1)


def test_a_batch_carries_its_items_and_one_message_is_sent_by_itself() -> None:
    items = (Item(b"a", b"k\x01v\x02"), Item(b"b", b""))
    code, fields, body = Payload(QUEUES[1], items).request(topic="t", group="g", now_ms=5)
    assert (int(code), fields["m"], fields["e"]) == (320, "true", "1")
    assert decode_batch(body) == [(b"a", b"k\x01v\x02", 0), (b"b", b"", 0)]
    code, fields, body = Payload(QUEUES[1], items[:1]).request(topic="t", group="g", now_ms=5)
    assert (int(code), fields["m"], fields["i"], fields["g"], body) == (310, "false", "k\x01v\x02", "5", b"a")
