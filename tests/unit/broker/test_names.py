"""The names of topics and groups on disk: written beside the loop, before anybody is told of a change."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from copy import deepcopy
from pathlib import Path
from typing import Any

import msgspec

from rocketapp.broker.store.config_files import TOPICS
from rocketapp.broker.store.files import Bytes, DirectoryFiles, File, MemoryFiles, read_whole
from rocketapp.wire.codes import RequestCode, ResponseCode
from tests.unit.broker.asking import Running, running
from tests.unit.scripted import eventually, in_virtual_time

CHANGE = {"readQueueNums": "4", "writeQueueNums": "4", "perm": "6"}


class Disk(DirectoryFiles):
    """Waits before it opens a table to write it, once it is told to; notes which threads have done so."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.may_write = threading.Event()
        self.may_write.set()
        self.threads = set[int]()
        self.fails = False

    def open(self, path: str, *, create: bool = False) -> File:
        if create and path.startswith("config/"):
            self.threads.add(threading.get_ident())
            self.may_write.wait()
            if self.fails:
                raise OSError("no room")
        return super().open(path, create=create)


def test_a_name_is_written_beside_the_loop_and_no_answer_leaves_before(tmp_path: Path) -> None:
    async def story() -> None:
        disk = Disk(str(tmp_path))
        broker = Running(disk)  # type: ignore[arg-type]
        await broker.start()
        client, other = await broker.client(), await broker.client("other")
        await client.send("orders")
        await client.send("%RETRY%billing")
        disk.threads.clear()
        disk.may_write.clear()
        created = asyncio.ensure_future(client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, {"topic": "bills", **CHANGE}))
        sent = asyncio.ensure_future(client.send("bills"))
        route = await other.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "orders"})
        assert route.code == ResponseCode.SUCCESS
        again = asyncio.ensure_future(other.send("%RETRY%billing"))  # which counts on its group
        async with asyncio.timeout(5.0):
            assert (await other.send("orders")).code == ResponseCode.SUCCESS  # which was written before
        await asyncio.sleep(0.05)
        assert not any(each.done() for each in (created, sent, again))
        disk.may_write.set()
        assert [(await each).code for each in (created, sent, again)] == [ResponseCode.SUCCESS] * 3
        assert disk.threads
        assert threading.get_ident() not in disk.threads
        await broker.broker.stop()

    asyncio.run(story())


def test_what_was_answered_is_there_after_a_refused_change(tmp_path: Path) -> None:
    async def story() -> None:
        disk = Disk(str(tmp_path))
        broker = Running(disk)  # type: ignore[arg-type]
        await broker.start()
        client = await broker.client()
        await client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, {"topic": "orders", **CHANGE})
        disk.fails = True
        disk.may_write.clear()
        changes = [
            asyncio.ensure_future(client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, {"topic": "bills", **CHANGE})),
            asyncio.ensure_future(client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "orders"})),
            asyncio.ensure_future(client.send("parcels")),
        ]
        await asyncio.sleep(0.05)
        disk.may_write.set()
        assert [(await each).code for each in changes] == [
            ResponseCode.SERVICE_NOT_AVAILABLE,
            ResponseCode.SERVICE_NOT_AVAILABLE,
            ResponseCode.SYSTEM_ERROR,  # the message is stored, so that the answer is unknown
        ]
        routes = [await client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": each}) for each in ("bills", "orders")]
        assert [route.code for route in routes] == [ResponseCode.TOPIC_NOT_EXIST, ResponseCode.SUCCESS]
        disk.fails = False
        assert (await client.send("orders")).code == ResponseCode.SUCCESS
        await broker.restart()
        client = await broker.client()
        route = await client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "bills"})
        assert route.code == ResponseCode.TOPIC_NOT_EXIST
        await broker.broker.stop()

    asyncio.run(story())


class Weighed(MemoryFiles):
    """Counts the bytes that are written into tables."""

    def __init__(self) -> None:
        super().__init__()
        self.written = 0

    def open(self, path: str, *, create: bool = False) -> File:
        file = super().open(path, create=create)
        return _WeighedFile(self, file) if path.startswith("config/") else file


class _WeighedFile:
    def __init__(self, scale: Weighed, file: File) -> None:
        self._scale, self._file = scale, file

    def write(self, data: Bytes, at: int) -> None:
        self._scale.written += len(data)
        self._file.write(data, at)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


@in_virtual_time
async def test_a_new_topic_costs_the_same_beside_ten_thousand_and_a_kill_does_not_take_it() -> None:
    files = Weighed()
    async with running(files) as broker:
        for number in range(10_000):
            broker.broker.running.create_topic(f"topic-{number}")
        client = await broker.client()
        await client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, {"topic": "orders", **CHANGE})
        await asyncio.sleep(7.0)  # until it is in the file that Apache RocketMQ reads, and not to the next round
        files.written = 0
        created = await client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, {"topic": "bills", **CHANGE})
        deleted = await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "orders"})
        assert created.code == deleted.code == ResponseCode.SUCCESS
        assert 0 < files.written < 2_000
        await broker.restart(killed=True)
        client = await broker.client()
        for topic, code in (("bills", ResponseCode.SUCCESS), ("orders", ResponseCode.TOPIC_NOT_EXIST)):
            assert (await client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})).code == code


@in_virtual_time
async def test_a_new_topic_is_in_apaches_file_some_seconds_later_and_at_a_stop() -> None:
    def apache_has(topic: str) -> bool:
        return topic.encode() in (read_whole(broker.files, TOPICS) or b"")

    async with running() as broker:
        client = await broker.client()
        await client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, {"topic": "orders", **CHANGE})
        assert not apache_has("orders")
        await asyncio.sleep(10.0)
        assert apache_has("orders")
        written = deepcopy(broker.files)
        await asyncio.sleep(60.0)
        assert read_whole(written, TOPICS) == read_whole(broker.files, TOPICS)
        await client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, {"topic": "bills", **CHANGE})
        await broker.broker.stop()
        assert apache_has("bills")
        assert f"{TOPICS}.changes" not in list(broker.files.paths())


class NoCase(MemoryFiles):
    """A disk that takes `Orders` and `orders` for one name."""

    def open(self, path: str, *, create: bool = False) -> File:
        return super().open(next((each for each in self.paths() if each.lower() == path.lower()), path), create=create)


async def test_nobody_else_waits_for_the_second_attempt_to_write_a_name(tmp_path: Path) -> None:
    disk = Disk(str(tmp_path))
    broker = Running(disk, offsets_flush_interval=0.05)  # type: ignore[arg-type]
    await broker.start()
    client = await broker.client()
    await client.send("orders")
    disk.fails = True
    assert (await client.send("bills")).code == ResponseCode.SYSTEM_ERROR
    disk.may_write.clear()
    disk.threads.clear()
    await eventually(lambda: bool(disk.threads))  # the timer has begun the next attempt
    sent = asyncio.ensure_future(client.send("orders"))
    with contextlib.suppress(TimeoutError):
        await eventually(sent.done, 2.0)
    was_answered = sent.done()
    disk.may_write.set()
    assert (was_answered, (await sent).code) == (True, ResponseCode.SUCCESS)
    disk.fails = False
    await broker.broker.stop()


@in_virtual_time
async def test_a_topic_that_only_the_damaged_file_knew_is_served() -> None:
    async with running() as broker:
        client = await broker.client()
        for topic in ("orders", "stock"):
            await client.send(topic, topic.encode(), queue_id=3)
            await broker.restart()
            client = await broker.client()
        broker.files.open(TOPICS).write(bytes(512), 0)
        await broker.restart(killed=True)
        client = await broker.client()
        for topic in ("orders", "stock"):
            assert [message.body for message in await client.messages(topic, queue_id=3)] == [topic.encode()]


@in_virtual_time
async def test_topics_that_differ_in_case_only_are_refused_where_the_disk_cannot_tell_them_apart() -> None:
    async with running(NoCase()) as broker:
        client = await broker.client()
        assert (await client.send("Orders")).code == ResponseCode.SUCCESS
        refused = await client.send("orders")
        assert refused.code == ResponseCode.INVALID_PARAMETER
        assert "there is a topic Orders" in (refused.remark or "")
        created = await client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, {"topic": "ORDERS", **CHANGE})
        assert created.code == ResponseCode.INVALID_PARAMETER
        assert (await client.send("Orders")).code == ResponseCode.SUCCESS
    async with running() as broker:
        client = await broker.client()
        assert [(await client.send(each)).code for each in ("Orders", "orders")] == [ResponseCode.SUCCESS] * 2


@in_virtual_time
async def test_a_configuration_that_cannot_be_written_is_refused_and_others_are_served() -> None:
    async with running() as broker:
        client = await broker.client()
        nested = b'{"groupName":"billing","deep":' + b"[" * 900 + b"]" * 900 + b"}"
        answer = await client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, nested)
        assert answer.code != ResponseCode.SUCCESS
        assert (await client.send("orders")).code == ResponseCode.SUCCESS
        config = await client.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "billing"})
        assert config.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


def test_texts_of_the_name_server_are_written_beside_the_loop_one_after_the_other(tmp_path: Path) -> None:
    async def story() -> None:
        disk = Disk(str(tmp_path))
        broker = Running(disk)  # type: ignore[arg-type]
        await broker.start()
        client = await broker.client()
        place = {"namespace": "ORDER_TOPIC_CONFIG"}
        disk.threads.clear()
        puts = [
            asyncio.ensure_future(client.ask(RequestCode.PUT_KV_CONFIG, {**place, "key": key, "value": "broker-a:4"}))
            for key in ("orders", "bills")
        ]
        assert [(await put).code for put in puts] == [ResponseCode.SUCCESS] * 2
        assert disk.threads
        assert threading.get_ident() not in disk.threads
        texts = await client.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, place)
        assert list(msgspec.json.decode(texts.body)["table"]) == ["orders", "bills"]
        await broker.broker.stop()

    asyncio.run(story())
