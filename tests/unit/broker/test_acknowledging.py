"""With `flush = "sync"` a reply says that its message survives a loss of power. One sync serves many replies."""

from __future__ import annotations

import asyncio
import errno
import gc
from collections import Counter
from collections.abc import Callable
from random import Random

import pytest

from rocketapp.broker.flushing import Flusher
from rocketapp.broker.store.files import MemoryFiles
from rocketapp.model.event import StoreReadOnly
from rocketapp.wire.batch import encode_batch
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import Command
from rocketapp.wire.requests.offsets import CommitRequest
from rocketapp.wire.requests.send import SendRequest
from tests.unit.broker.asking import Running
from tests.unit.broker.store.disk import Disk
from tests.unit.scripted import in_virtual_time


async def on(disk: Disk | MemoryFiles, **options: object) -> Running:
    running = Running(disk, **options)  # type: ignore[arg-type]
    await running.start()
    return running


@in_virtual_time
async def test_what_was_answered_survives_a_loss_of_power() -> None:
    disk = Disk()
    broker = await on(disk, flush="sync")
    client = await broker.client()
    for number in range(5):
        assert (await client.send("orders", b"%d" % number, queue_id=0)).code == ResponseCode.SUCCESS
        again = await on(disk.without_power(Random(number)))
        found = await (await again.client()).messages("orders")
        assert [message.body for message in found] == [b"%d" % each for each in range(number + 1)]
        await again.broker.stop()
    await broker.broker.stop()


@in_virtual_time
async def test_one_sync_serves_all_that_wait_and_replies_keep_their_order() -> None:
    disk = Disk()
    broker = await on(disk, flush="sync")
    client = await broker.client()
    await client.send("orders", queue_id=0)
    syncs: list[str] = []
    disk.on_call = lambda number, name, path: syncs.append(path) if name == "sync" and "commitlog" in path else None
    sends = [asyncio.ensure_future(client.send("orders", b"%d" % number, queue_id=0)) for number in range(50)]
    answered: list[int] = []
    for number, send in enumerate(sends):
        send.add_done_callback(lambda _, number=number: answered.append(number))  # type: ignore[misc]
    await asyncio.wait(sends)
    await asyncio.sleep(0)
    assert answered == list(range(50))
    assert 1 <= len(syncs) <= 5
    await broker.broker.stop()


@in_virtual_time
async def test_a_failed_sync_is_answered_as_unknown_and_then_nothing_is_taken() -> None:
    disk = Disk()
    broker = await on(disk, flush="sync")
    client = await broker.client()
    await client.send("orders", queue_id=0)

    def fail(number: int, name: str, path: str) -> None:
        if name == "sync" and path.startswith("commitlog"):
            raise OSError(errno.EIO, "Input/output error")

    disk.on_call = fail
    answer = await client.send("orders", queue_id=0)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "perhaps stored" in (answer.remark or "")
    assert (answer.fields or {}).keys() >= {"MSG_REGION", "TRACE_ON"}
    disk.on_call = None
    assert (await client.send("orders", queue_id=0)).code == ResponseCode.SERVICE_NOT_AVAILABLE
    await broker.broker.stop()


def stalled(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Let no disk of a broker on this loop do anything until this is set."""
    goes_on, run, loop = asyncio.Event(), Flusher.run, asyncio.get_running_loop()

    async def stalls(flusher: Flusher, work: Callable[[], object]) -> object:
        if asyncio.get_running_loop() is loop:  # a broker that other tests share may run in a thread of its own
            await goes_on.wait()
        return await run(flusher, work)

    monkeypatch.setattr(Flusher, "run", stalls)
    return goes_on


@in_virtual_time
async def test_sends_are_refused_while_a_disk_that_stalls_is_far_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = await on(MemoryFiles(), flush="sync")
    client = await broker.client()
    await client.send("orders", queue_id=0)
    goes_on = stalled(monkeypatch)
    sends = [asyncio.ensure_future(client.send("orders", bytes(1_000_000), queue_id=0)) for _ in range(40)]
    await asyncio.sleep(1)
    refused = [send.result().code for send in sends if send.done()]
    assert refused == [ResponseCode.SYSTEM_BUSY] * 8
    goes_on.set()
    codes = Counter([(await send).code for send in sends])
    assert codes == {ResponseCode.SUCCESS: 32, ResponseCode.SYSTEM_BUSY: 8}
    assert (await client.send("orders", queue_id=0)).code == ResponseCode.SUCCESS
    await broker.broker.stop()


@in_virtual_time
async def test_answers_of_many_small_messages_count_as_what_waits_for_a_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = await on(MemoryFiles(), flush="sync")
    client = await broker.client()
    await client.send("orders", queue_id=0)
    goes_on = stalled(monkeypatch)
    fields, batch = SendRequest("makers", "orders", queue_id=0).to_fields(), encode_batch([(b"x", b"", 0)] * 10_000)
    batches = [asyncio.ensure_future(client.ask(RequestCode.SEND_BATCH_MESSAGE, fields, batch)) for _ in range(7)]
    await asyncio.sleep(1)
    assert [each.result().code for each in batches if each.done()] == [ResponseCode.SYSTEM_BUSY]
    goes_on.set()
    assert Counter([(await each).code for each in batches])[ResponseCode.SUCCESS] == 6
    await broker.broker.stop()


@in_virtual_time
async def test_a_send_beside_one_without_an_answer_is_answered() -> None:
    broker = await on(Disk(), flush="sync")
    client = await broker.client()
    await client.send("orders", queue_id=0)
    send = asyncio.ensure_future(client.send("orders", b"asks", queue_id=0))
    fields = SendRequest("makers", "orders", queue_id=0).to_fields()
    client.connection.send_one_way(Command(RequestCode.SEND_MESSAGE_V2, fields, b"asks nothing"))
    assert (await send).code == ResponseCode.SUCCESS
    assert {message.body for message in await client.messages("orders", 1)} == {b"asks", b"asks nothing"}
    await broker.broker.stop()


@in_virtual_time
async def test_messages_without_an_answer_are_not_kept_while_a_disk_stalls(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = await on(MemoryFiles(), flush="sync")
    client = await broker.client()
    await client.send("orders", queue_id=0)
    goes_on = stalled(monkeypatch)
    send, fields = RequestCode.SEND_MESSAGE_V2, SendRequest("makers", "orders", queue_id=0).to_fields()
    gc.collect()  # what tests before this one have left
    for _ in range(100):
        client.connection.send_one_way(Command(send, fields, b"x"))
        await asyncio.sleep(0.01)
    # Not isinstance: it asks objects that stand for another one for that.
    assert sum(issubclass(type(one), Command) and one.code == send for one in gc.get_objects()) < 10
    goes_on.set()
    assert [message.offset for message in await client.messages("orders", 99)] == [99, 100]
    await broker.broker.stop()


@in_virtual_time
async def test_a_topic_that_cannot_be_written_costs_no_send_to_another_one() -> None:
    def full(number: int, name: str, path: str) -> None:
        if path.startswith("config/"):
            raise OSError(errno.ENOSPC, "No space left on device")

    disk = Disk()
    broker = await on(disk, flush="sync")
    one, other = await broker.client("one"), await broker.client("other")
    await one.send("orders", queue_id=0)
    disk.on_call = full
    sends = [one.send("payments", queue_id=0), other.send("orders", queue_id=0), one.send("orders", queue_id=0)]
    codes = [answer.code for answer in await asyncio.gather(*sends)]
    assert codes == [ResponseCode.SYSTEM_ERROR, ResponseCode.SUCCESS, ResponseCode.SUCCESS]
    disk.on_call = None
    await broker.broker.stop()


@in_virtual_time
async def test_sends_that_wait_for_no_disk_are_taken_however_far_it_is_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = await on(MemoryFiles(), flush="async")
    client = await broker.client()
    await client.send("orders", queue_id=0)
    monkeypatch.setattr("rocketapp.broker.flushing.MOST_UNFLUSHED", 1000)
    goes_on = stalled(monkeypatch)
    codes = [(await client.send("orders", bytes(500), queue_id=0)).code for _ in range(5)]
    assert codes == [ResponseCode.SUCCESS] * 5
    goes_on.set()
    await broker.broker.stop()


@in_virtual_time
async def test_a_pull_is_answered_while_new_names_wait_for_a_disk_that_stalls(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = await on(MemoryFiles())
    client = await broker.client()
    await client.send("orders", b"found", queue_id=0)
    goes_on = stalled(monkeypatch)
    created = asyncio.ensure_future(client.send("payments", queue_id=0))
    found = asyncio.ensure_future(client.messages("orders"))
    await asyncio.sleep(1)
    assert found.done()
    assert not created.done()
    assert [message.body for message in found.result()] == [b"found"]
    goes_on.set()
    assert (await created).code == ResponseCode.SUCCESS
    await broker.broker.stop()


@in_virtual_time
async def test_a_disk_that_fails_while_it_is_far_behind_is_not_called_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk()
    broker = await on(disk, flush="sync")
    client = await broker.client()
    await client.send("orders", queue_id=0)
    monkeypatch.setattr("rocketapp.broker.flushing.MOST_UNFLUSHED", 4000)
    goes_on = stalled(monkeypatch)
    sends = [asyncio.ensure_future(client.send("orders", bytes(500), queue_id=0)) for _ in range(2)]
    await asyncio.sleep(1)

    def fail(number: int, name: str, path: str) -> None:
        if name == "sync" and path.startswith("commitlog"):
            raise OSError(errno.EIO, "Input/output error")

    disk.on_call = fail
    goes_on.set()
    assert [(await send).code for send in sends] == [ResponseCode.SYSTEM_ERROR] * 2
    assert (await client.send("orders", queue_id=0)).code == ResponseCode.SERVICE_NOT_AVAILABLE
    await broker.broker.stop()


@pytest.mark.parametrize("flush", ["sync", "async"])
@in_virtual_time
async def test_what_small_sends_that_wait_for_a_stalled_disk_take_in_memory_is_bounded(
    monkeypatch: pytest.MonkeyPatch, flush: str
) -> None:
    broker = await on(MemoryFiles(), flush=flush)
    client = await broker.client()
    monkeypatch.setattr("rocketapp.broker.flushing.MOST_UNFLUSHED", 30_000)
    goes_on = stalled(monkeypatch)
    sends = list[asyncio.Future[Command]]()
    for _ in range(100):
        sends.append(asyncio.ensure_future(client.send("orders", b"x", queue_id=0)))
        await asyncio.sleep(0.01)
    refused = [send for send in sends if send.done()]
    assert {(await send).code for send in refused} == {ResponseCode.SYSTEM_BUSY}
    assert 80 < len(refused) < 90
    goes_on.set()
    codes = Counter([(await send).code for send in sends])
    assert codes[ResponseCode.SUCCESS] == 100 - len(refused)
    assert (await client.send("orders", b"x", queue_id=0)).code == ResponseCode.SUCCESS
    await broker.broker.stop()


@pytest.mark.parametrize("flush", ["sync", "async"])
@in_virtual_time
async def test_a_flush_that_ends_with_an_error_of_no_disk_is_told_and_nothing_more_is_taken(flush: str) -> None:
    disk = Disk()
    broker = await on(disk, flush=flush)
    client = await broker.client()
    await client.send("orders", queue_id=0)
    await asyncio.sleep(3)

    def fail(number: int, name: str, path: str) -> None:
        if name == "sync" and path.startswith("commitlog"):
            raise RuntimeError("can't start new thread")

    disk.on_call = fail
    perhaps = await client.send("orders", queue_id=0)
    assert perhaps.code == (ResponseCode.SYSTEM_ERROR if flush == "sync" else ResponseCode.SUCCESS)
    await asyncio.sleep(3)
    assert (await client.send("orders", queue_id=0)).code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert [event for event in broker.events if isinstance(event, StoreReadOnly)] == [
        StoreReadOnly("sync failed: can't start new thread")
    ]
    disk.on_call = None
    await broker.broker.stop()


@pytest.mark.parametrize("is_stopped", [False, True])
@in_virtual_time
async def test_no_loss_of_power_leaves_an_offset_above_its_queue(is_stopped: bool) -> None:
    """Offsets are written after the log that they describe."""
    for seed in range(12):
        disk = Disk()
        broker = await on(disk, flush_interval=1000.0)
        client = await broker.client()
        for number in range(3):
            await client.send("orders", b"%d" % number, queue_id=0)
        await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, CommitRequest("billing", "orders", 0, 3).to_fields())
        await asyncio.sleep(5.5)
        if is_stopped:
            for number in range(2):
                await client.send("orders", b"%d" % number, queue_id=0)
            await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, CommitRequest("billing", "orders", 0, 5).to_fields())
            await broker.broker.stop()
        again = await on(disk.without_power(Random(seed)))
        client = await again.client()
        query = {"consumerGroup": "billing", "topic": "orders", "queueId": "0"}
        answer = await client.ask(RequestCode.QUERY_CONSUMER_OFFSET, query)
        assert answer.fields == {"offset": "5" if is_stopped else "3"}
        end = await client.ask(RequestCode.GET_MAX_OFFSET, {"topic": "orders", "queueId": "0"})
        assert end.fields == answer.fields
        await again.broker.stop()
        if not is_stopped:
            await broker.broker.stop()


@in_virtual_time
async def test_an_offset_above_the_end_of_its_queue_hides_no_new_message() -> None:
    files = MemoryFiles()
    broker = await on(files)
    client = await broker.client()
    for _ in range(2):
        await client.send("orders", queue_id=0)
    await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, CommitRequest("billing", "orders", 0, 5).to_fields())
    await broker.restart()
    client = await broker.client()
    query = {"consumerGroup": "billing", "topic": "orders", "queueId": "0"}
    assert (await client.ask(RequestCode.QUERY_CONSUMER_OFFSET, query)).fields == {"offset": "2"}
    await broker.broker.stop()
