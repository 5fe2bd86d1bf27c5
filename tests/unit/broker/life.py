"""A broker lives for days of virtual time: sends, a consumer, transactions, delays, restarts, and what is left behind.

`python -m tests.unit.broker.life --days 365` runs a year of it and prints what it weighs at the end of each tenth day.
Each day ends with a restart, each seventh one with a kill.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from rocketapp.broker.broker import Pace
from rocketapp.broker.store.files import File, Files, MemoryFiles
from rocketapp.embedded.embedded import EmbeddedBroker
from rocketapp.wire.codes import RequestCode, ResponseCode
from tests.unit.broker.asking import Client, Running
from tests.unit.broker.test_transactions import COMMIT, ROLLBACK, end, half
from tests.virtual import run_virtual

HOUR, DAY = 3600.0, 86_400.0
QUEUES, TOPIC, GROUP = 4, "bills", "billing"
KEPT_HOURS = 24.0
AN_HOUR = 12
"""Messages of 2 KiB that are sent in each hour."""


class CountedFiles(MemoryFiles):
    """Counts the bytes that are read: by them the cost of a start is the same on every machine."""

    read: int = 0

    def open(self, path: str, *, create: bool = False) -> Any:
        return CountedFile(super().open(path, create=create), self)


class CountedFile:
    """One of them that is open."""

    def __init__(self, file: File, files: CountedFiles) -> None:
        self._file, self._files = file, files

    def read(self, size: int, at: int) -> bytes:
        data = self._file.read(size, at)
        self._files.read += len(data)
        return data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class SlowPace(Running):
    """Looks less often: what it looks for comes by the hour."""

    def _new(self, files: Files) -> EmbeddedBroker:
        return EmbeddedBroker(
            config=self.config,
            clock=self.clock,
            random=Random(1),
            observe=self.events.append,
            files=files,
            pace=Pace(expiry=300.0, traffic=300.0, delays=300.0, delivered=300.0, index=300.0),
        )


@dataclass(frozen=True, slots=True)
class Weight:
    """What a broker is at the end of a day, just after its restart."""

    day: int
    stored_bytes: int
    files: int
    table_bytes: int
    """Of the largest table."""
    objects: int
    """Of the whole process."""
    start_bytes: int
    """That the start has read."""
    start_seconds: float
    """CPU of the start."""


@dataclass(slots=True)
class Life:
    """One broker, and what is known of it."""

    broker: Running
    sent: int = 0
    handled: list[int] = field(default_factory=list)
    """Numbers of the messages that the group has handled, in its order by queue."""
    committed: dict[int, int] = field(default_factory=dict)
    delayed: int = 0
    decided: int = 0
    """Transactions that were committed."""

    async def day(self, number: int) -> Weight:
        """One day, and a restart at its end."""
        for hour in range(24):
            await self._hour(f"day-{number}-{hour}")
            await asyncio.sleep(HOUR)
        client = await self.broker.client(f"day-{number}")
        await self._drain(client)
        await self._litter(client, number)
        return await self._restart(number)

    async def _hour(self, name: str) -> None:
        client = await self.broker.client(name)  # the broker closes those that say nothing for two minutes
        await client.heartbeat(GROUP, TOPIC)
        for _ in range(AN_HOUR):
            body = b"%d " % self.sent + b"x" * 2048
            answer = await client.send(TOPIC, body, f"KEYS\x01k{self.sent}\x02", queue_id=self.sent % QUEUES)
            assert answer.code == ResponseCode.SUCCESS, answer.remark
            self.sent += 1
        for decision in (COMMIT, ROLLBACK):
            assert await end(client, await half(client), decision) == ResponseCode.SUCCESS
        self.decided += 1
        await half(client)  # its producer never says
        await client.send("later", b"level", "DELAY\x013\x02", queue_id=0)
        await client.send("later", b"timer", "TIMER_DELAY_SEC\x01600\x02", queue_id=0)
        self.delayed += 2
        await self._drain(client)

    async def _drain(self, client: Client) -> None:
        """As a member does it: from the committed offset on."""
        for queue in range(QUEUES):
            at = await self._committed(client, queue)
            assert at == self.committed.get(queue, 0), f"queue {queue} is committed at {at}"
            while found := await client.messages(TOPIC, at, queue_id=queue):
                self.handled += [int(message.body.split()[0]) for message in found]
                at = found[-1].offset + 1
            fields = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": str(queue), "commitOffset": str(at)}
            await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields)
            self.committed[queue] = at

    async def _committed(self, client: Client, queue: int) -> int:
        fields = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": str(queue)}
        answer = await client.ask(RequestCode.QUERY_CONSUMER_OFFSET, fields)
        return int((answer.fields or {}).get("offset", 0)) if answer.code == ResponseCode.SUCCESS else 0

    async def _litter(self, client: Client, day: int) -> None:
        """A topic that lives for a day, a group that was here once, and queues that it has locked."""
        temporary, group = f"temporary-{day}", f"gone-{day}"
        await client.send(temporary, queue_id=0)
        if day:
            fields = {"topic": f"temporary-{day - 1}"}
            assert (await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, fields)).code == ResponseCode.SUCCESS
        await client.heartbeat(group, temporary)
        fields = {"consumerGroup": group, "topic": temporary, "queueId": "0", "commitOffset": "1"}
        await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields)
        body = (
            b'{"consumerGroup":"%b","clientId":"%b","mqSet":[{"brokerName":"broker-a","queueId":0,"topic":"%b"}]}'
            % (
                group.encode(),
                client.name.encode(),
                temporary.encode(),
            )
        )
        assert (await client.ask(RequestCode.LOCK_BATCH_MQ, {}, body)).code == ResponseCode.SUCCESS

    async def _restart(self, day: int) -> Weight:
        is_killed = day % 7 == 6
        if is_killed:
            await asyncio.sleep(60.0)  # what was acknowledged is on the disk by then
        began = time.process_time()
        self.broker.files.read = 0  # type: ignore[attr-defined]
        await self.broker.restart(killed=is_killed)
        files = self.broker.files
        assert isinstance(files, CountedFiles)
        seconds = time.process_time() - began
        gc.collect()
        contents = {path: files.open(path).size() for path in files.paths()}
        tables = [size for path, size in contents.items() if path.startswith("config/")]
        return Weight(
            day=day,
            stored_bytes=sum(contents.values()),
            files=len(contents),
            table_bytes=max(tables),
            objects=len(gc.get_objects()),
            start_bytes=files.read,
            start_seconds=seconds,
        )


async def live(days: int, tell: Callable[[Weight], object] = lambda _: None) -> list[Weight]:
    """What the broker weighs at the end of each day. Raises AssertionError for what it loses, or gives twice."""
    broker = SlowPace(
        CountedFiles(),
        reserved_hours=KEPT_HOURS,
        delete_when=";".join(map(str, range(24))),
        flush_interval=60.0,
        offsets_flush_interval=300.0,
        clean_interval=300.0,
    )
    await broker.start()
    life, weights = Life(broker), list[Weight]()
    try:
        for number in range(days):
            weights.append(await life.day(number))
            tell(weights[-1])
        client = await broker.client("last")
        assert sorted(life.handled) == list(range(life.sent)), "messages were lost, or came twice"
        later = await client.ask(RequestCode.GET_MAX_OFFSET, {"topic": "later", "queueId": "0"})
        assert int((later.fields or {})["offset"]) == life.delayed, "delayed messages were lost, or came twice"
    finally:
        await broker.broker.stop()
    return weights


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=365)
    days = parser.parse_args().days

    def tell(weight: Weight) -> None:
        if weight.day % 10 == 9 or weight.day == days - 1:
            print(weight, flush=True)

    run_virtual(lambda: live(days, tell), limit=(days + 1) * DAY)
    return 0


if __name__ == "__main__":
    sys.exit(main())
