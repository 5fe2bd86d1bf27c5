"""Brokers that are away, and queues that are not what they were: the reader of a stream as Spark drives it."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pyspark_rocketmq.offsets import from_json
from pyspark_rocketmq.options import read_options
from pyspark_rocketmq.problems import DataLossError
from pyspark_rocketmq.streaming import StreamReader
from rocketapp import TransportError
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import Command
from rocketapp.wire.layout import Record, encode_record
from rocketapp.wire.requests.offsets import OffsetResponse
from rocketapp.wire.requests.pull import PullResponse
from tests.peers import pairs, toolchain
from tests.peers.bare import Bare
from tests.peers.clusters import Embedded, of_tests
from tests.peers.loading import Loader
from tests.peers.pairs import TOPIC, Pair
from tests.peers.waiting import wait_until

if TYPE_CHECKING:
    from conftest import Scripted


def reader(pair: Pair, **given: Any) -> StreamReader:
    fast = {"fetchOffset.retryIntervalMs": 50}
    options = {"nameServer": pair.name_server, "subscribe": TOPIC, "startingOffsets": "earliest", **fast, **given}
    return StreamReader(read_options({name: str(value) for name, value in options.items()}, streaming=True))


@pytest.fixture
def embedded_pair(tmp_path: Path) -> Iterator[Pair]:
    with pairs.embedded_pair(tmp_path) as pair:
        yield pair


@pytest.fixture
def apache_alone(java: None, tmp_path: Path) -> Iterator[Pair]:
    """One broker of Apache RocketMQ; that others go on without it is shown with two embedded ones."""
    problem = toolchain.missing()
    if problem is not None:
        pytest.skip(f"Apache RocketMQ cannot run here: {problem}")
    broker = of_tests(tmp_path)
    try:
        yield Pair([broker], broker.name_server)
    finally:
        broker.stop()


class Drive:
    """Runs batches as Spark does from 4.2 on, and keeps the checkpoint."""

    def __init__(self, source: StreamReader, at: dict[str, Any] | None = None) -> None:
        self.source, self.at = source, at or source.initialOffset()
        self.bodies: list[str] = []

    def plan(self) -> tuple[dict[str, Any], list[Any]]:
        end = json.loads(json.dumps(self.source.latestOffset(self.at)))
        return end, list(self.source.partitions(self.at, end)) if end != self.at else []

    def run(self, end: dict[str, Any], parts: list[Any]) -> list[str]:
        rows = [row["body"].decode() for part in parts for batch in self.source.read(part) for row in batch.to_pylist()]
        self.bodies += rows
        self.at = end
        return rows

    def batch(self) -> list[str]:
        return self.run(*self.plan())


def test_a_broker_that_is_away_keeps_its_position_and_the_others_go_on(
    embedded_pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = embedded_pair.brokers
    embedded_pair.send(first, 50)
    embedded_pair.send(second, 50)
    drive = Drive(reader(embedded_pair))
    assert len(drive.batch()) == 100
    before = drive.at["t"][TOPIC]["broker-a"]
    embedded_pair.send(first, 5)
    first.stop()
    embedded_pair.send(second, 10)
    assert len(drive.batch()) == 10
    assert drive.at["t"][TOPIC]["broker-a"] == before
    restarted = Drive(reader(embedded_pair), drive.at)
    assert restarted.batch() == []
    first.start_again()
    embedded_pair.send(first, 5)
    assert len(restarted.batch()) == 10
    assert sorted(drive.bodies + restarted.bodies) == sorted(embedded_pair.sent)


def test_all_brokers_and_name_servers_may_be_away(embedded_pair: Pair, script: Callable[..., Scripted]) -> None:
    drive = Drive(reader(embedded_pair, **{"fetchOffset.numRetries": 0}))
    embedded_pair.send(embedded_pair.brokers[0], 3)
    for broker in embedded_pair.brokers:
        broker.stop()
    assert drive.batch() == []
    for broker in embedded_pair.brokers:
        broker.start_again()
    assert len(drive.batch()) == 3


@pytest.mark.parametrize("kind", ["embedded_pair", "apache_alone"])
@pytest.mark.timeout(600)
def test_a_rolling_restart_under_a_stream_loses_and_doubles_nothing(kind: str, request: pytest.FixtureRequest) -> None:
    pair: Pair = request.getfixturevalue(kind)
    drive = Drive(reader(pair, maxOffsetsPerTrigger=40))
    ended = threading.Event()

    def stream() -> None:
        while not ended.is_set():
            drive.batch()
            ended.wait(0.05)

    with ThreadPoolExecutor() as threads:
        tasks = [threads.submit(stream), threads.submit(pair.feed, ended)]
        try:
            pair.restart_each(lambda: len(drive.bodies))
        finally:
            ended.set()
        for task in tasks:
            task.result()
    wait_until(lambda: not drive.batch() and {*pair.sent} <= {*drive.bodies}, within=120, what="everything is read")
    assert len(drive.bodies) == len({*drive.bodies})


def test_a_task_waits_for_its_broker(embedded_pair: Pair) -> None:
    first = embedded_pair.brokers[0]
    embedded_pair.send(first, 100)
    drive = Drive(reader(embedded_pair, **{"fetchOffset.numRetries": 0, "fetchOffset.retryIntervalMs": 100}))
    planned = drive.plan()
    first.stop()
    with ThreadPoolExecutor() as threads:
        task = threads.submit(drive.run, *planned)
        assert not threading.Event().wait(2)
        assert not task.done()
        first.start_again()
        assert len(task.result(60)) == 100


def test_available_now_does_not_end_as_done_while_a_broker_that_had_more_is_away(embedded_pair: Pair) -> None:
    first, second = embedded_pair.brokers
    embedded_pair.send(first, 20)
    embedded_pair.send(second, 20)
    drive = Drive(reader(embedded_pair, maxOffsetsPerTrigger=10))
    drive.source.prepareForTriggerAvailableNow()
    drive.batch()
    first.stop()
    with pytest.raises(TransportError, match="broker-a: it is away, and has 15 messages that were there"):
        while drive.batch():
            pass
    assert len(drive.bodies) == 5 + 20, "the others go on before"
    first.start_again()
    again = Drive(reader(embedded_pair), drive.at)
    again.source.prepareForTriggerAvailableNow()
    again.batch()
    assert again.batch() == []
    assert sorted(drive.bodies + again.bodies) == sorted(embedded_pair.sent)


def test_available_now_does_not_end_as_done_when_nobody_tells_what_is_there(script: Callable[..., Scripted]) -> None:
    server = script(lambda request: None)
    server.close()
    given = {"nameServer": server.address, "subscribe": TOPIC, "fetchOffset.numRetries": "0"}
    with pytest.raises(TransportError):
        StreamReader(read_options(given, streaming=True)).prepareForTriggerAvailableNow()


def test_available_now_does_not_end_as_done_when_a_broker_goes_away_as_a_batch_is_planned(
    script: Callable[..., Scripted],
) -> None:
    def answer(request: Command) -> Command | None:
        if request.code not in (RequestCode.GET_MIN_OFFSET, RequestCode.GET_MAX_OFFSET):
            return None
        offset = 0 if request.code == RequestCode.GET_MIN_OFFSET else 10
        return Command.response(request, ResponseCode.SUCCESS, fields=OffsetResponse(offset).to_fields())

    given = {"nameServer": script(answer).address, "subscribe": TOPIC, "fetchOffset.numRetries": "0"}
    at = {"t": {TOPIC: {"broker-a": {"0": 4}}}, "v": 1}
    drive = Drive(StreamReader(read_options(given, streaming=True)), at)
    drive.source.prepareForTriggerAvailableNow()
    with pytest.raises(TransportError, match="broker-a: it is away, and has 6 messages that were there"):
        drive.batch()


def test_positions_are_copied_to_the_brokers_that_are_there(embedded_pair: Pair) -> None:
    first, second = embedded_pair.brokers
    drive = Drive(reader(embedded_pair, commitOffsets="true", consumerGroup="dashboards"))
    first.stop()
    embedded_pair.send(second, 7)
    drive.batch()
    drive.source.commit(drive.at)
    with Bare(second.broker_address) as asking:
        assert asking.committed(TOPIC, "dashboards", 0) == 7


def replace(pair: Pair, broker: Embedded, count: int) -> None:
    """An empty broker of the same name at the same address, with messages of its own."""
    broker.stop()
    shutil.rmtree(broker.store)
    broker.start_again()
    pair.make_topic(broker)
    pair.send(broker, count)


@pytest.mark.parametrize("count", [300, 60, 100], ids=["longer", "shorter", "equal"])
def test_a_broker_that_was_replaced_is_data_loss_or_is_read_from_its_first_message(
    embedded_pair: Pair, count: int, caplog: pytest.LogCaptureFixture
) -> None:
    first = embedded_pair.brokers[0]
    embedded_pair.send(first, 100)
    before = Drive(reader(embedded_pair))
    assert len(before.batch()) == 100
    replace(embedded_pair, first, count)
    embedded_pair.send(first, 1)
    said = f"{min(count + 1, 100)} messages below the position 100 were never read"
    with pytest.raises(DataLossError, match=said) as caught:
        Drive(reader(embedded_pair), before.at).batch()
    assert "With failOnDataLoss=false it is read from its first message" in str(caught.value)
    loose = Drive(
        reader(embedded_pair, failOnDataLoss="false", minOffsetsPerTrigger=200, maxTriggerDelay="0s"), before.at
    )
    assert loose.batch() + loose.batch() == embedded_pair.sent[100:]
    assert said in caplog.text
    embedded_pair.send(first, 2)
    assert loose.batch() == embedded_pair.sent[-2:]


def test_a_reset_position_is_not_lost_while_the_least_offsets_are_waited_for(embedded_pair: Pair) -> None:
    first = embedded_pair.brokers[0]
    embedded_pair.send(first, 100)
    before = Drive(reader(embedded_pair))
    before.batch()
    replace(embedded_pair, first, 120)
    loose = Drive(reader(embedded_pair, failOnDataLoss="false", minOffsetsPerTrigger=125), before.at)
    assert loose.batch() == []
    again = Drive(reader(embedded_pair, failOnDataLoss="false"), loose.at)
    assert again.batch() + again.batch() == embedded_pair.sent[100:]


def test_filtered_messages_count_as_read(embedded_pair: Pair) -> None:
    first = embedded_pair.brokers[0]
    embedded_pair.send(first, 20, tag="paid")
    embedded_pair.send(first, 20, tag="void")
    drive = Drive(reader(embedded_pair, tags="paid"))
    assert len(drive.batch()) == 20
    ((_, last),) = from_json(drive.at).last.items()
    assert (last.offset, last.key) == (39, f"ID-{embedded_pair.sent[-1]}")
    embedded_pair.send(first, 3, tag="paid")
    assert len(Drive(reader(embedded_pair, tags="paid"), drive.at).batch()) == 3
    replace(embedded_pair, first, 50)
    with pytest.raises(DataLossError, match="another queue"):
        Drive(reader(embedded_pair, tags="paid"), drive.at).batch()


def test_a_queue_that_is_replaced_after_a_batch_was_planned_is_not_read(
    embedded_pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    first = embedded_pair.brokers[0]
    embedded_pair.send(first, 100)
    drive, loose = Drive(reader(embedded_pair)), Drive(reader(embedded_pair, failOnDataLoss="false"))
    planned, planned_loosely = drive.plan(), loose.plan()
    replace(embedded_pair, first, 300)
    with pytest.raises(DataLossError, match="another queue has taken its place"):
        drive.run(*planned)
    assert loose.run(*planned_loosely) == []
    assert "another queue has taken its place; such messages are skipped" in caplog.text
    assert loose.batch() + loose.batch() == embedded_pair.sent[100:]


def test_a_checkpoint_of_the_first_version_goes_on_and_learns_its_last_messages(embedded_pair: Pair) -> None:
    first = embedded_pair.brokers[0]
    embedded_pair.send(first, 10)
    old = {"t": {TOPIC: {"broker-a": {"0": 6}, "broker-b": {"0": 0}}}, "v": 1}
    drive = Drive(reader(embedded_pair), old)
    assert drive.batch() == embedded_pair.sent[6:]
    assert {mark.offset for mark in from_json(drive.at).last.values()} == {9}


def test_a_topic_that_was_created_again_is_another_queue(embedded_pair: Pair) -> None:
    first = embedded_pair.brokers[0]
    embedded_pair.send(first, 30)
    drive = Drive(reader(embedded_pair))
    drive.batch()
    loader = Loader(first.broker_address)
    loader.delete_topic(TOPIC)
    loader.close()
    embedded_pair.make_topic(first)
    embedded_pair.send(first, 40)
    with pytest.raises(DataLossError, match="30 messages below the position 30 were never read"):
        drive.batch()


@pytest.mark.parametrize(("stored_ms", "is_same"), [(60, True), (40, False)], ids=["newer", "older"])
def test_a_last_message_that_is_deleted_is_accepted_when_what_follows_is_newer(
    script: Callable[..., Scripted], caplog: pytest.LogCaptureFixture, stored_ms: int, is_same: bool
) -> None:
    def answer(request: Command) -> Command:
        if request.code in (RequestCode.GET_MIN_OFFSET, RequestCode.GET_MAX_OFFSET):
            offset = 200 if request.code == RequestCode.GET_MIN_OFFSET else 203
            return Command.response(request, ResponseCode.SUCCESS, fields=OffsetResponse(offset).to_fields())
        offset = int((request.fields or {})["queueOffset"])
        record = encode_record(Record(TOPIC, b"x", b"", queue_offset=offset, stored_ms=stored_ms))
        fields = PullResponse(0, offset + 1, 200, 203).to_fields()
        return Command.response(request, ResponseCode.SUCCESS, fields=fields, body=record)

    options = {"nameServer": script(answer).address, "subscribe": TOPIC}
    at = {"t": {TOPIC: {"broker-a": {"0": [200, 199, 50, "last"]}}}, "v": 2}
    drive = Drive(StreamReader(read_options(options, streaming=True)), at)
    if is_same:
        assert len(drive.batch()) == 3
        assert "message 199, the last that was read, is deleted, and what follows is newer" in caplog.text
    else:
        with pytest.raises(DataLossError, match="another queue"):
            drive.batch()
