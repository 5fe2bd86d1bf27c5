"""The whole broker on the worst disk: whenever the power fails, its tables and its log agree.

One run takes pictures of what a loss of power would leave at many calls, and each picture is opened afterwards.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import NamedTuple

import pytest

from rocketapp.broker.store.files import MemoryFiles
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.requests.offsets import CommitRequest
from tests.unit.broker.asking import Client, Running
from tests.unit.broker.store.disk import Disk
from tests.unit.broker.test_pop import Member
from tests.unit.scripted import eventually, in_virtual_time

TOPICS = ("orders", "stock", "late")


class Picture(NamedTuple):
    """What a loss of power leaves, and what clients had been told by then."""

    files: MemoryFiles
    acknowledged: set[bytes]
    topics: set[str]


async def run(disk: Disk, random: Random, pictures: list[Picture], *, flush: str) -> None:
    """Sends, delayed messages and commits in random order, with pictures at random calls."""
    acknowledged: set[bytes] = set()
    topics: set[str] = set()

    def take(number: int, name: str, path: str) -> None:
        if random.random() < (0.3 if path.startswith(("config", "checkpoint")) else 0.05) and len(pictures) < 60:
            pictures.append(Picture(disk.without_power(random), set(acknowledged), set(topics)))

    broker = Running(disk, flush=flush, flush_interval=3.0, offsets_flush_interval=0.5)  # type: ignore[arg-type]
    await broker.start()
    disk.on_call = take
    client = await broker.client()
    ends: dict[str, int] = {}
    for number in range(120):
        topic = random.choice(TOPICS)
        body = b"%d" % number
        properties = "DELAY\x011\x02" if topic == "late" else ""
        answer = await client.send(topic, body, properties, queue_id=0)
        assert answer.code == ResponseCode.SUCCESS
        topics.add(topic)
        if topic != "late":
            acknowledged.add(body)
            ends[topic] = ends.get(topic, 0) + 1
            commit = CommitRequest("billing", topic, 0, ends[topic])
            await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit.to_fields())
        await asyncio.sleep(random.choice((0.0, 0.01, 0.3)))
    disk.on_call = None
    await broker.broker.stop()


async def stored(client: Client, topic: str) -> list[bytes]:
    found: list[bytes] = []
    while page := await client.messages(topic, len(found)):
        found += [message.body for message in page]
    return found


@pytest.mark.parametrize("flush", ["sync", "async"])
@pytest.mark.parametrize("seed", range(3))
@in_virtual_time
async def test_no_loss_of_power_leaves_tables_that_disagree_with_the_log(flush: str, seed: int) -> None:
    pictures: list[Picture] = []
    await run(Disk(), Random(seed), pictures, flush=flush)
    assert len(pictures) > 10
    for picture in pictures:
        broker = Running(picture.files)
        await broker.start()
        client = await broker.client()
        survived: set[bytes] = set()
        for topic in TOPICS:
            route = await client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
            assert route.code == ResponseCode.SUCCESS or topic not in picture.topics
            bodies = await stored(client, topic) if route.code == ResponseCode.SUCCESS else []
            assert len(set(bodies)) == len(bodies) or topic == "late"
            survived.update(bodies)
            query = {"consumerGroup": "billing", "topic": topic, "queueId": "0", "setZeroIfNotFound": "false"}
            committed = await client.ask(RequestCode.QUERY_CONSUMER_OFFSET, query)
            if committed.code == ResponseCode.SUCCESS:
                assert int((committed.fields or {})["offset"]) <= len(bodies)
        if flush == "sync":
            assert picture.acknowledged <= survived
        await broker.broker.stop()


class PoppedPicture(NamedTuple):
    """What a loss of power leaves, and what of the popped topic had been answered by then."""

    files: MemoryFiles
    sent: set[str]
    asked: set[str]
    """What members had begun to acknowledge."""
    acknowledged: set[str]


async def run_pops(disk: Disk, random: Random, pictures: list[PoppedPicture], *, flush: str) -> None:
    """Sends, pops and acknowledgements in random order. Some are never acknowledged, and so come again meanwhile."""
    sent: set[str] = set()
    asked: set[str] = set()
    acknowledged: set[str] = set()

    def take(number: int, name: str, path: str) -> None:
        if random.random() < (0.2 if path.startswith(("config", "checkpoint")) else 0.03) and len(pictures) < 40:
            pictures.append(PoppedPicture(disk.without_power(random), set(sent), set(asked), set(acknowledged)))

    broker = Running(disk, flush=flush, flush_interval=3.0, offsets_flush_interval=0.5)  # type: ignore[arg-type]
    await broker.start()
    member = Member(await broker.client())
    await member.client.send("orders", b"first", queue_id=0)
    disk.on_call = take
    for number in range(80):
        assert (await member.client.send("orders", b"%d" % number, queue_id=number % 2)).code == ResponseCode.SUCCESS
        sent.add(str(number))
        found = await member.pop(max_messages=random.choice((1, 4)), invisible_ms=random.choice((1000, 5000)))
        done = [each for each in found if random.random() < 0.7]
        if done:
            asked.update(each.message.text() for each in done)
            assert await member.ack_all(done) == 0
            acknowledged.update(each.message.text() for each in done)
        await asyncio.sleep(random.choice((0.0, 0.01, 0.3)))
    disk.on_call = None
    await broker.broker.stop()


async def everything(member: Member) -> list[str]:
    """What is handed out until nothing comes again."""
    found: list[str] = []
    for _ in range(4):
        while several := await member.pop():
            found += [each.message.text() for each in several]
            await member.ack_all(several)
        await asyncio.sleep(6.0)
    return found


@pytest.mark.parametrize("flush", ["sync", "async"])
@pytest.mark.parametrize("seed", range(2))
@in_virtual_time
async def test_no_loss_of_power_loses_a_popped_message_or_repeats_one_whose_acknowledgement_is_on_disk(
    flush: str, seed: int
) -> None:
    pictures: list[PoppedPicture] = []
    await run_pops(Disk(), Random(seed), pictures, flush=flush)
    assert len(pictures) > 10
    for picture in pictures:
        broker = Running(picture.files)
        await broker.start()
        member = Member(await broker.client())
        survived = {
            message.text()
            for queue_id in (0, 1)
            for at in (0, 32, 64)
            for message in await member.client.messages("orders", at, queue_id=queue_id)
        }
        found = await everything(member)
        assert survived - picture.asked <= set(found)
        if flush == "sync":
            assert picture.sent - picture.asked <= set(found)
            assert picture.acknowledged.isdisjoint(found)
        await broker.broker.stop()


@in_virtual_time
async def test_a_sync_that_fails_forgets_no_popped_message() -> None:
    disk = Disk()
    broker = Running(disk, flush_interval=0.1, offsets_flush_interval=0.5)  # type: ignore[arg-type]
    await broker.start()
    member = Member(await broker.client())
    synced, fails = list[str](), False

    def sync(number: int, name: str, path: str) -> None:
        if name == "sync" and path.startswith("commitlog"):
            synced.append(path)
            if fails:
                raise OSError(5, "Input/output error")

    await member.client.send("orders", b"a", queue_id=0)
    disk.on_call = sync
    await eventually(lambda: bool(synced))
    fails = True
    assert len(await member.pop()) == 1
    assert await member.pop(poll=5.0) == []  # meanwhile offsets are saved, again and again
    assert len(synced) > 1
    left = disk.without_power(Random(1))
    await broker.broker.stop()
    for files in (left, disk.without_power(Random(1))):
        again = Running(files)
        await again.start()
        assert await everything(Member(await again.client())) == ["a"]
        await again.broker.stop()
