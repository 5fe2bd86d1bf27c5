"""Tasks that write, without Spark."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from pyspark_rocketmq.columns import STAMP
from pyspark_rocketmq.options import write_options
from pyspark_rocketmq.problems import WriteError
from pyspark_rocketmq.reading import RangePartition, read_partition
from pyspark_rocketmq.remoting import Connection
from pyspark_rocketmq.resolving import batch_ranges
from pyspark_rocketmq.writing import Task
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import Command
from rocketapp.wire.requests.send import SendResponse
from tests.peers.waiting import wait_until

if TYPE_CHECKING:
    from conftest import Scripted, Topics


def write(name_server: str, rows: list[dict[str, Any]], **given: Any) -> int:
    """Write rows as one task."""
    texts = {name: str(value) for name, value in given.items()}
    options = write_options({"nameServer": name_server, "sendRetryIntervalMs": "10", **texts})
    batch = pa.RecordBatch.from_pylist(rows)
    return Task(options, batch.schema.names, query="q", batch="5", partition=2).write([batch])


def stored(topics: Topics, topic: str, count: int) -> list[dict[str, Any]]:
    """The messages of a topic, when `count` of them can be read."""
    queues = range(len(topics.view(topics.options(subscribe=topic)).readable(topic)))
    wait_until(
        lambda: sum(topics.loader.end(topic, queue_id) for queue_id in queues) >= count,
        within=60,
        what=f"{topic} holds {count} messages",
    )
    columns = "queue_id,queue_offset,body,tags,keys,msg_id,store_timestamp,properties"
    options = topics.options(subscribe=topic, columns=columns)
    parts = [RangePartition(part) for part in batch_ranges(topics.view(options), options)]
    batches = itertools.chain.from_iterable(read_partition(options, part) for part in parts)
    return [row for batch in batches for row in batch.to_pylist()]


def test_every_row_is_stored_once_with_its_stamp_and_an_id_of_its_own(topics: Topics) -> None:
    topic = topics.new(queues=2)
    rows = [{"body": str(n).encode(), "tags": "t", "keys": f"k{n}"} for n in range(500)]
    assert write(topics.name_server, rows, topic=topic, maxBatchBytes=4096) == 500
    found = stored(topics, topic, 500)
    assert sorted(int(row["body"]) for row in found) == list(range(500))
    assert {row["queue_id"] for row in found} == {0, 1}
    assert {(row["tags"], row["keys"]) for row in found} == {("t", f"k{n}") for n in range(500)}
    assert len({row["msg_id"] for row in found}) == 500
    assert {dict(row["properties"])[STAMP]: int(row["body"]) for row in found} == {f"q/5/2/{n}": n for n in range(500)}


def test_rows_go_where_they_say_and_keep_their_order(topics: Topics) -> None:
    first, second = topics.new(queues=2), topics.new(queues=2)
    rows = [{"body": str(n), "topic": (first, second)[n % 2], "queue_id": n // 2 % 2} for n in range(40)]
    write(topics.name_server, rows)
    for index, topic in enumerate((first, second)):
        for queue_id in (0, 1):
            bodies = [int(row["body"]) for row in stored(topics, topic, 20) if row["queue_id"] == queue_id]
            assert bodies == [n for n in range(40) if n % 2 == index and n // 2 % 2 == queue_id]


def test_a_topic_that_is_not_there_is_created_by_its_first_message(topics: Topics) -> None:
    topic = f"new-{topics.new()}"
    assert write(topics.name_server, [{"body": str(n).encode()} for n in range(10)], topic=topic) == 10
    view = topics.view(topics.options(subscribe=topic))
    # The broker tells the name server of it after it has answered.
    wait_until(lambda: topic in view.topics(), within=60, what=f"the name server knows {topic}")
    assert sorted(int(row["body"]) for row in stored(topics, topic, 10)) == list(range(10))


def test_a_stamp_can_be_left_out(here: Topics) -> None:
    topic = here.new()
    write(here.name_server, [{"body": b"x"}], topic=topic, stamp="false")
    assert STAMP not in dict(stored(here, topic, 1)[0]["properties"])


def test_a_delayed_row_is_delivered_later(topics: Topics) -> None:
    topic = topics.new()
    now = datetime.now(UTC)
    rows = [{"body": b"later", "deliver_at": now + timedelta(seconds=5)}, {"body": b"now", "deliver_at": None}]
    write(topics.name_server, rows, topic=topic)
    first, later = stored(topics, topic, 2)
    assert (first["body"], later["body"]) == (b"now", b"later")
    assert later["store_timestamp"] >= now + timedelta(seconds=4)


def test_a_message_above_the_limit_of_the_broker_fails_the_task(topics: Topics) -> None:
    topic = topics.new()
    with pytest.raises(WriteError, match=f"{topic}@.* refused a message: code 13"):
        write(topics.name_server, [{"body": bytes(5_000_000)}], topic=topic)


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"body": b"x", "queue_id": 9}, "row 1 of q/5/2: topic .* has no queue 9"),
        ({"body": None, "queue_id": 0}, "row 1 of q/5/2: its body is null"),
    ],
)
def test_a_row_that_cannot_be_written_is_named(here: Topics, row: dict[str, Any], problem: str) -> None:
    with pytest.raises(WriteError, match=problem):
        write(here.name_server, [{"body": b"x", "queue_id": 0}, row], topic=here.new())


Answer = Callable[[Command], Command | None]


def accepted(request: Command) -> Command:
    fields = SendResponse("id", 0, 0).to_fields()
    return Command.response(request, ResponseCode.SUCCESS, fields=fields)


def test_the_task_waits_for_the_answer_to_every_message(script: Callable[[Answer], Scripted]) -> None:
    server = script(accepted)
    assert write(server.address, [{"body": bytes(900)} for _ in range(50)], topic="t", maxBatchBytes=1024) == 50
    assert server.count(RequestCode.SEND_MESSAGE_V2) == 50


def test_what_a_broken_connection_leaves_open_is_sent_again_in_order(script: Callable[[Answer], Scripted]) -> None:
    sends = itertools.count()
    server = script(lambda request: None if next(sends) == 3 else accepted(request))
    assert write(server.address, [{"body": str(n).ljust(900)} for n in range(6)], topic="t", maxBatchBytes=1024) == 6
    bodies = [int(request.body) for request in server.requests if request.code == RequestCode.SEND_MESSAGE_V2]
    after = bodies[bodies.index(3) + 1 :]
    assert after[-3:] == [3, 4, 5]
    assert set(bodies) == set(range(6))


@pytest.mark.parametrize("code", [ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE])
def test_a_busy_broker_is_asked_again_and_not_for_ever(script: Callable[[Answer], Scripted], code: int) -> None:
    answers = iter([code, code])
    patient = script(lambda request: Command.response(request, next(answers, 0), fields=accepted(request).fields))
    assert write(patient.address, [{"body": b"x"}], topic="t", sendRetries=2) == 1
    never = script(lambda request: Command.response(request, code, remark="busy"))
    with pytest.raises(WriteError, match=f"not written, or perhaps not: .* code {code}: busy"):
        write(never.address, [{"body": b"x"}], topic="t", sendRetries=2)
    assert never.count(RequestCode.SEND_MESSAGE_V2) == 3


def test_a_pause_lies_between_attempts(script: Callable[[Answer], Scripted]) -> None:
    server = script(lambda _: None)
    began = time.monotonic()
    with pytest.raises(WriteError):
        write(server.address, [{"body": b"x"}], topic="t", sendRetries=2, sendRetryIntervalMs=60)
    assert time.monotonic() - began >= 0.12


def test_only_the_refused_message_is_sent_again(script: Callable[[Answer], Scripted]) -> None:
    answers = itertools.count()

    def answer(request: Command) -> Command:
        busy = next(answers) == 2
        return Command.response(request, ResponseCode.SYSTEM_BUSY) if busy else accepted(request)

    server = script(answer)
    assert write(server.address, [{"body": str(n).ljust(900)} for n in range(8)], topic="t", maxBatchBytes=1024) == 8
    bodies = [int(request.body) for request in server.requests if request.code == RequestCode.SEND_MESSAGE_V2]
    assert sorted(bodies) == [0, 1, 2, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("code", [10, 11, 12])
def test_a_message_that_is_stored_but_not_yet_safe_counts_as_stored(
    script: Callable[[Answer], Scripted], code: int
) -> None:
    server = script(lambda request: Command.response(request, code, fields=accepted(request).fields))
    assert write(server.address, [{"body": b"x"}], topic="t") == 1


@pytest.mark.parametrize("depth", [1, 3])
def test_the_given_number_of_sends_waits_for_an_answer(
    script: Callable[[Answer], Scripted], monkeypatch: pytest.MonkeyPatch, depth: int
) -> None:
    in_flight: list[int] = []
    receive = Connection.receive

    def counted(connection: Connection, timeout: float) -> Command:
        in_flight.append(connection.in_flight)
        return receive(connection, timeout)

    monkeypatch.setattr(Connection, "receive", counted)
    write(script(accepted).address, [{"body": bytes(900)}] * 9, topic="t", maxBatchBytes=1024, sendDepth=depth)
    assert max(in_flight) == depth


def test_the_wait_for_an_answer_ends(script: Callable[[Answer], Scripted]) -> None:
    until = threading.Event()
    server = script(lambda request: accepted(request) if until.wait(20) else None)
    with pytest.raises(WriteError, match=r"no answer within 0\.05 s"):
        write(server.address, [{"body": b"x"}], topic="t", sendTimeoutMs=50, sendRetries=0)
    until.set()


def test_the_group_and_the_namespace_are_sent(script: Callable[[Answer], Scripted]) -> None:
    server = script(accepted)
    write(server.address, [{"body": b"x"}], topic="t", producerGroup="writers", namespace="ns")
    (sent,) = [request for request in server.requests if request.code == RequestCode.SEND_MESSAGE_V2]
    assert sent.fields is not None
    assert (sent.fields["a"], sent.fields["b"]) == ("ns%writers", "ns%t")
