"""A zeroed sector in any file of a broker costs the messages that lay in it, and nothing else."""

from __future__ import annotations

import asyncio
from copy import deepcopy
from random import Random
from typing import NamedTuple

from rocketapp.broker.store.files import MemoryFiles
from rocketapp.wire.codes import ResponseCode
from rocketapp.wire.requests.pull import FLAG_SUBSCRIPTION
from tests.unit.broker.asking import Client, Running
from tests.unit.scripted import in_virtual_time

QUEUES, SECTOR = 4, 512


class Sent(NamedTuple):
    """A message, and where its record begins in the log."""

    body: bytes
    position: int


async def filled() -> tuple[MemoryFiles, dict[tuple[int, int], Sent]]:
    """The files of a broker that has stopped, and its messages by queue and offset."""
    random, broker = Random(7), Running(segment_bytes=1 << 15)
    await broker.start()
    client = await broker.client()
    sent = {}
    for number in range(60):
        body, queue_id = b"%d:" % number + random.randbytes(random.randint(50, 1500)), number % QUEUES
        answer = await client.send("orders", body, f"KEYS\x01k{number}\x02", queue_id=queue_id)
        fields = answer.fields or {}
        place = queue_id, int(fields["queueOffset"])
        sent[place] = Sent(body, int(fields["msgId"][16:], 16))
        await asyncio.sleep(0.5)  # so that tables are saved meanwhile
    await broker.broker.stop()
    return broker.files, sent


async def served(client: Client) -> dict[tuple[int, int], bytes]:
    """What a consumer of all queues gets."""
    found = {}
    for queue_id in range(QUEUES):
        offset, end = 0, 1
        while offset < end:
            answer = await client.pull("orders", offset, queue_id=queue_id, sys_flag=FLAG_SUBSCRIPTION)
            if answer.code == ResponseCode.SERVICE_NOT_AVAILABLE:  # the queue is being made again
                await asyncio.sleep(1)
                continue
            messages = await client.messages("orders", offset, queue_id=queue_id)
            found.update({(queue_id, message.offset): message.body for message in messages})
            fields = answer.fields or {}
            offset, end = int(fields["nextBeginOffset"]), int(fields["maxOffset"])
    return found


@in_virtual_time
async def test_a_zeroed_sector_in_any_file_costs_only_the_messages_in_it() -> None:
    files, sent = await filled()
    random = Random(11)
    for path in files.paths():
        size = len(files.open(path).read(1 << 20, 0).rstrip(b"\0"))
        at = random.randrange(size // SECTOR + 1) * SECTOR
        harmed = deepcopy(files)
        harmed.open(path).write(bytes(min(SECTOR, harmed.open(path).size() - at)), at)
        broker = Running(harmed, segment_bytes=1 << 15)
        await broker.start()
        found = await served(await broker.client())
        await broker.broker.stop()
        begin = int(path.rpartition("/")[2]) + at if path.startswith("commitlog") else -SECTOR
        intact = {
            place: body
            for place, (body, position) in sent.items()
            if position >= begin + SECTOR or position + len(body) + 300 <= begin
        }
        assert intact.items() <= found.items() <= {place: body for place, (body, _) in sent.items()}.items(), (path, at)
