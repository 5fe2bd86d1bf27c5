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
from tests.unit.scripted import in_virtual_time

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
