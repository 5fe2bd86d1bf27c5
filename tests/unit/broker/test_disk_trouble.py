"""A disk that refuses: what is not stored is not announced, and the broker lives on."""

from __future__ import annotations

import asyncio
import errno
from typing import Any

import pytest

from rocketapp.broker.store.config_files import CONSUMER_OFFSETS, DELAY_OFFSETS, decode
from rocketapp.broker.store.files import Bytes, File, MemoryFiles, read_whole
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.requests.assignment import POP, RequestMode
from rocketapp.wire.requests.offsets import CommitRequest
from rocketapp.wire.requests.pop import PopRequest
from rocketapp.wire.requests.send_back import SendBackRequest
from tests.unit.broker.asking import Running, running
from tests.unit.broker.store.disk import Disk
from tests.unit.scripted import in_virtual_time


class FullDisk(MemoryFiles):
    """No space for anything whose path begins like this."""

    refused = "nothing"
    keeps_log = True
    """Whether the log can be synced."""

    def open(self, path: str, *, create: bool = False) -> File:
        if create and path.startswith(self.refused):
            raise OSError(errno.ENOSPC, "No space left on device")
        return FullFile(super().open(path, create=create), path, self)  # type: ignore[return-value]


class FullFile:
    """A file that grows no more while its disk has no room for it."""

    def __init__(self, file: File, path: str, disk: FullDisk) -> None:
        self._file, self._path, self._disk = file, path, disk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, data: Bytes, at: int) -> None:
        if self._path.startswith(self._disk.refused):
            raise OSError(errno.ENOSPC, "No space left on device")
        self._file.write(data, at)

    def sync(self) -> None:
        if self._path.startswith("commitlog") and not self._disk.keeps_log:
            raise OSError(errno.EIO, "Input/output error")
        self._file.sync()


@in_virtual_time
async def test_a_topic_that_cannot_be_written_down_is_not_created() -> None:
    files = FullDisk()
    async with running(files) as broker:
        client = await broker.client()
        files.refused = "config/"
        answer = await client.send("orders")
        assert answer.code == ResponseCode.SYSTEM_ERROR  # the message is stored, so that its answer is unknown
        assert "No space left" in (answer.remark or "")
        route = await client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "orders"})
        assert route.code == ResponseCode.TOPIC_NOT_EXIST
        files.refused = "nothing"
        assert (await client.send("orders")).code == ResponseCode.SUCCESS


@in_virtual_time
async def test_a_message_sent_back_of_a_group_that_cannot_be_written_down_is_stored_perhaps() -> None:
    files = FullDisk()
    async with running(files) as broker:
        client = await broker.client()
        await client.send("orders", queue_id=0)
        files.refused = "config/"
        answer = await client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, SendBackRequest(0, "billing", 1).to_fields())
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert (answer.remark or "").startswith("perhaps stored: ")


@in_virtual_time
async def test_a_change_that_cannot_be_written_down_is_taken_back() -> None:
    files = FullDisk()
    async with running(files) as broker:
        client = await broker.client()
        await client.send("orders")
        files.refused = "config/"
        change = {"topic": "orders", "readQueueNums": "9", "writeQueueNums": "9", "perm": "6"}
        answer = await client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, change)
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert (await client.send("orders", queue_id=8)).code == ResponseCode.INVALID_PARAMETER


@in_virtual_time
async def test_a_topic_whose_end_cannot_be_written_down_lives_on() -> None:
    files = FullDisk()
    async with running(files) as broker:
        client = await broker.client()
        await client.send("orders", queue_id=0)
        await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, CommitRequest("billing", "orders", 0, 1).to_fields())
        files.refused = "config/"
        answer = await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "orders"})
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        route = await client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "orders"})
        assert route.code == ResponseCode.SUCCESS
        query = {"consumerGroup": "billing", "topic": "orders", "queueId": "0"}
        assert (await client.ask(RequestCode.QUERY_CONSUMER_OFFSET, query)).fields == {"offset": "1"}
        files.refused = "nothing"
        assert (await client.send("orders", queue_id=0)).code == ResponseCode.SUCCESS
        assert len(await client.messages("orders")) == 2


@in_virtual_time
async def test_a_topic_that_could_not_be_deleted_is_deleted_by_the_next_attempt_and_not_before() -> None:
    files = FullDisk()
    async with running(files) as broker:
        client = await broker.client()
        await client.send("orders", queue_id=0)
        files.refused = "recovery.hint"
        for _ in range(2):
            answer = await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "orders"})
            assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        files.refused = "nothing"
        answer = await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "orders"})
        assert answer.code == ResponseCode.SUCCESS
        assert "consumequeue/orders" not in {path[:19] for path in files.paths()}


@in_virtual_time
async def test_a_group_whose_change_or_end_cannot_be_written_down_stays_as_it_was() -> None:
    files = FullDisk()
    async with running(files) as broker:
        client = await broker.client()
        await client.heartbeat("billing", "orders")
        before = (await client.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "billing"})).body
        files.refused = "config/"
        change = b'{"groupName":"billing","retryMaxTimes":3}'
        answer = await client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, change)
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        answer = await client.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "billing"})
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert (await client.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "billing"})).body == before


@in_virtual_time
async def test_offsets_that_could_not_be_saved_are_saved_later() -> None:
    files = FullDisk()
    async with running(files) as broker:
        client = await broker.client()
        await client.send("orders")
        await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, CommitRequest("billing", "orders", 0, 0).to_fields())
        files.refused = "config/"
        stranger = CommitRequest("shipping", "orders", 0, 1)
        answer = await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, stranger.to_fields())
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        answer = await client.ask(
            RequestCode.UPDATE_CONSUMER_OFFSET, CommitRequest("billing", "orders", 0, 1).to_fields()
        )
        assert answer.code == ResponseCode.SUCCESS
        await asyncio.sleep(12)
        assert [event for event in broker.events if "No space left" in str(event)]
        files.refused = "nothing"
        await asyncio.sleep(6)
        await broker.restart(killed=True)
        client = await broker.client()
        query = {"consumerGroup": "billing", "topic": "orders", "queueId": "0", "setZeroIfNotFound": "false"}
        assert (await client.ask(RequestCode.QUERY_CONSUMER_OFFSET, query)).fields == {"offset": "1"}


@in_virtual_time
async def test_offsets_that_are_saved_are_not_saved_again() -> None:
    disk, written = Disk(), list[str]()
    async with running(disk) as broker:  # type: ignore[arg-type]
        client = await broker.client()
        await client.send("orders")
        commit = CommitRequest("billing", "orders", 0, 1)
        disk.on_call = lambda number, name, path: written.append(path) if path == CONSUMER_OFFSETS else None
        await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit.to_fields())
        await asyncio.sleep(12)
        assert written
        written.clear()
        await asyncio.sleep(60)
        assert not written


@in_virtual_time
async def test_delayed_messages_wait_for_a_disk_that_has_room_again() -> None:
    files = FullDisk()
    async with running(files) as broker:
        client = await broker.client()
        await client.send("orders", b"late", "DELAY\x011\x02")
        files.refused = "commitlog/"
        await asyncio.sleep(3)
        assert await client.messages("orders") == []
        files.refused = "nothing"
        await asyncio.sleep(1.1)
        assert [message.body for message in await client.messages("orders")] == [b"late"]


@in_virtual_time
async def test_a_delayed_message_that_did_not_reach_the_disk_does_not_count_as_delivered() -> None:
    files = FullDisk()
    async with running(files) as broker:
        client = await broker.client()
        await client.send("orders", b"late", "DELAY\x011\x02", queue_id=0)
        while not await client.messages("orders"):  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.01)
        files.keeps_log = False
        await asyncio.sleep(3.0)
    saved = read_whole(files, DELAY_OFFSETS)
    assert saved is None or decode(saved)["offsetTable"].get("1", 0) == 0


@pytest.mark.parametrize("seconds", [0.0, 12.0])
def test_a_popped_message_whose_checkpoint_did_not_reach_the_disk_does_not_count_as_done(seconds: float) -> None:
    """`seconds`: until the stop; offsets are saved every 5 s."""

    @in_virtual_time
    async def story() -> None:
        files = FullDisk()
        async with running(files) as broker:
            client = await broker.client()
            await client.send("orders", queue_id=0)
            await asyncio.sleep(12)
            files.keeps_log = False
            request = PopRequest("billing", "orders", -1, max_messages=1, invisible_ms=60_000, poll_ms=0)
            answer = await client.ask(RequestCode.POP_MESSAGE, request.to_fields())
            assert answer.code == ResponseCode.SUCCESS
            await asyncio.sleep(seconds)
        saved = read_whole(files, CONSUMER_OFFSETS)
        assert saved is None or decode(saved)["offsetTable"].get("orders@billing", {}).get("0", 0) == 0

    story()


@in_virtual_time
async def test_a_stop_that_cannot_write_the_offsets_of_the_delays_is_clean_nevertheless() -> None:
    files = FullDisk()
    async with running(files) as broker:
        client = await broker.client()
        await client.send("orders", b"late", "DELAY\x011\x02")
        await asyncio.sleep(1.6)
        files.refused = "config/delayOffset"
        await broker.broker.stop()
        assert [event for event in broker.events if "No space left" in str(event)]
        assert "abort" not in files.names("")


@in_virtual_time
async def test_a_full_disk_prevents_no_start() -> None:
    """What is there can be overwritten; nothing new and nothing longer has room."""
    disk = Disk()
    first = Running(disk)  # type: ignore[arg-type]
    await first.start()
    client = await first.client()
    await client.send("orders", b"x", queue_id=0)
    await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, CommitRequest("billing", "orders", 0, 7).to_fields())
    await first.broker.stop()

    def full(number: int, name: str, path: str) -> None:
        if name == "write" and path != "checkpoint":
            raise OSError(errno.ENOSPC, "No space left on device")

    disk.on_call = full
    again = Running(disk)  # type: ignore[arg-type]
    await again.start()
    client = await again.client()
    assert [message.body for message in await client.messages("orders")] == [b"x"]
    assert (await client.send("orders", queue_id=0)).code == ResponseCode.SERVICE_NOT_AVAILABLE
    disk.on_call = None
    assert (await client.send("orders", queue_id=0)).code == ResponseCode.SUCCESS
    await again.broker.stop()


@in_virtual_time
async def test_what_waited_behind_offsets_that_could_not_be_written_is_written_when_there_is_room() -> None:
    files = FullDisk()
    async with running(files) as broker:
        client = await broker.client()
        await client.send("orders", queue_id=0)
        await client.heartbeat("billing", "orders")
        await asyncio.sleep(12)
        files.refused = "config/consumerOffset"
        mode = RequestMode("orders", "billing", POP, 3).encode()
        await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, CommitRequest("billing", "orders", 0, 1).to_fields())
        assert (await client.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, {}, mode)).code == ResponseCode.SUCCESS
        await asyncio.sleep(12)
        files.refused = "nothing"
        await asyncio.sleep(12)
        await broker.restart(killed=True)
        answer = await (await broker.client()).ask(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
        assert b'"popShareQueueNum":3' in answer.body
