"""The floor: how fast pure Python can possibly consume, as the limit to measure ourselves against.

    floor.py BROKER TOPIC COUNT bare|async|threads|orderly [--stdlib]

Pulls every queue of TOPIC (one connection, 32 messages a pull, the next pull in flight while a batch is handled),
decodes each message, and, except in `bare`, checks the tag, keeps the unfinished offsets in order and calls a handler
that does nothing. No rebalance, retries, commits, errors or plugins: what a consumer adds to this is its own cost.
Prints one line of JSON; processor time is counted from the first to the last message.
"""

from __future__ import annotations

import asyncio
import collections
import json
import queue
import resource
import struct
import sys
import threading
import time

import msgspec

address, topic, want, mode = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
TAGS = frozenset((b"TagA",))
# size magic crc queue flag offset position sysflag born host stored host attempts prepared body-length
RECORD = struct.Struct(">iiiiiqqiq8sq8siqi")
encode = msgspec.json.encode


class Header(msgspec.Struct):
    code: int
    opaque: int
    fields: dict[str, str] = msgspec.field(name="extFields", default_factory=dict)


decode_header = msgspec.json.Decoder(Header).decode


class Message:
    __slots__ = ("attempt", "body", "born", "offset", "position", "properties", "queue_id")
    attempt: int
    body: bytes
    born: int
    offset: int
    position: int
    properties: bytes
    queue_id: int


def decode(data: bytes) -> list[Message]:
    out, at, end, unpack, size = [], 0, len(data), RECORD.unpack_from, RECORD.size
    while at < end:
        total, _, _, queue_id, _, offset, position, _, born, _, _, _, attempts, _, length = unpack(data, at)
        body = at + size
        names = body + length + 1 + data[body + length]
        length_of_properties = (data[names] << 8) | data[names + 1]
        m = Message()
        m.body, m.properties = data[body : body + length], data[names + 2 : names + 2 + length_of_properties]
        m.queue_id, m.offset, m.position, m.born, m.attempt = queue_id, offset, position, born, attempts + 1
        out.append(m)
        at += total
    return out


def wanted(m: Message) -> bool:
    start = m.properties.find(b"TAGS\x01")
    if start < 0:
        return False
    end = m.properties.find(b"\x02", start)
    return m.properties[start + 5 : end if end >= 0 else None] in TAGS


class Unfinished:
    def __init__(self) -> None:
        self.messages: collections.OrderedDict[int, Message] = collections.OrderedDict()
        self.end = 0
        self.room: asyncio.Future[None] | None = None

    def put(self, batch: list[Message]) -> None:
        for m in batch:
            self.messages[m.offset] = m
        self.end = batch[-1].offset + 1

    def finish(self, m: Message) -> int:
        self.messages.pop(m.offset, None)
        if self.room is not None and len(self.messages) <= 1000:
            self.room.set_result(None)
            self.room = None
        return next(iter(self.messages), self.end)


Work = tuple[Unfinished, Message]


class Connection(asyncio.Protocol):
    transport: asyncio.WriteTransport

    def __init__(self) -> None:
        self.rest, self.last = bytearray(), 0
        self.waiting: dict[int, asyncio.Future[tuple[Header, bytes]]] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        if self.rest:
            self.rest += data
            data = bytes(self.rest)
            self.rest.clear()
        at, end = 0, len(data)
        while end - at >= 8:
            length = int.from_bytes(data[at : at + 4], "big")
            if end - at < 4 + length:
                break
            body = at + 8 + int.from_bytes(data[at + 5 : at + 8], "big")
            header = decode_header(data[at + 8 : body])
            waiter = self.waiting.pop(header.opaque, None)
            if waiter is not None and not waiter.done():
                waiter.set_result((header, data[body : at + 4 + length]))
            at += 4 + length
        self.rest += data[at:]

    def pull(self, queue_id: int, offset: int) -> asyncio.Future[tuple[Header, bytes]]:
        self.last += 1
        fields = {
            "consumerGroup": "floor",
            "topic": topic,
            "queueId": str(queue_id),
            "queueOffset": str(offset),
            "maxMsgNums": "32",
            "sysFlag": "6",
            "commitOffset": "0",
            "suspendTimeoutMillis": "15000",
            "subscription": "TagA",
            "subVersion": "0",
            "expressionType": "TAG",
        }
        header = encode(
            {
                "code": 11,
                "language": "PYTHON",
                "version": 453,
                "opaque": self.last,
                "flag": 0,
                "serializeTypeCurrentRPC": "JSON",
                "extFields": fields,
            }
        )
        self.transport.write(struct.pack(">ii", 4 + len(header), len(header)) + header)
        waiter: asyncio.Future[tuple[Header, bytes]] = asyncio.get_running_loop().create_future()
        self.waiting[self.last] = waiter
        return waiter


def processor_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


class Floor:
    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.seen, self.first, self.used, self.done = 0, 0.0, 0.0, asyncio.Event()
        self.ready: collections.deque[Work] = collections.deque()
        self.idle: list[asyncio.Future[None]] = []
        self.work: queue.SimpleQueue[Work] = queue.SimpleQueue()
        self.finished: collections.deque[Work] = collections.deque()
        self.woken = False

    def count(self, n: int) -> None:
        self.seen += n
        if self.seen >= want:
            self.done.set()

    async def handle(self, m: Message) -> bytes:
        return m.body

    async def worker(self) -> None:
        while True:
            while self.ready:
                unfinished, m = self.ready.popleft()
                await self.handle(m)
                unfinished.finish(m)
                self.count(1)
            waiter = self.loop.create_future()
            self.idle.append(waiter)
            await waiter

    def thread(self) -> None:
        while True:
            item = self.work.get()
            _ = item[1].body
            self.finished.append(item)
            if not self.woken:
                self.woken = True
                self.loop.call_soon_threadsafe(self.collect)

    def collect(self) -> None:
        self.woken = False
        n = 0
        while self.finished:
            unfinished, m = self.finished.popleft()
            unfinished.finish(m)
            n += 1
        self.count(n)

    async def consume(self, connection: Connection, queue_id: int) -> None:
        unfinished, offset = Unfinished(), 0
        coming = connection.pull(queue_id, offset)
        while True:
            header, body = await coming
            if header.code != 0:
                return
            if not self.first:
                self.first, self.used = time.monotonic(), processor_seconds()
            offset = int(header.fields["nextBeginOffset"])
            if len(unfinished.messages) > 1000:
                unfinished.room = self.loop.create_future()
                await unfinished.room
            coming = connection.pull(queue_id, offset)
            await self.hand_over(unfinished, decode(body))

    async def hand_over(self, unfinished: Unfinished, batch: list[Message]) -> None:
        if mode == "bare":
            self.count(len(batch))
            return
        batch = [m for m in batch if wanted(m)]
        unfinished.put(batch)
        if mode == "async":
            self.ready.extend((unfinished, m) for m in batch)
            for _ in range(min(len(self.idle), 8)):
                waiter = self.idle.pop()
                if not waiter.done():
                    waiter.set_result(None)
        elif mode == "threads":
            for m in batch:
                self.work.put((unfinished, m))
        else:
            for m in batch:
                await self.handle(m)
                unfinished.finish(m)
            self.count(len(batch))


async def main() -> None:
    floor = Floor()
    host, port = address.split(":")
    _, connection = await floor.loop.create_connection(Connection, host, int(port))
    if mode == "threads":
        for _ in range(20):
            threading.Thread(target=floor.thread, daemon=True).start()
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(floor.worker()) for _ in range(64)]
        running += [tasks.create_task(floor.consume(connection, queue_id)) for queue_id in range(4)]
        await asyncio.wait_for(floor.done.wait(), 300)
        seconds, used = time.monotonic() - floor.first, processor_seconds() - floor.used
        for task in running:
            task.cancel()
    line = {
        "peer": "floor",
        "mode": mode,
        "complete": floor.seen >= want,
        "count": floor.seen,
        "seconds": round(seconds, 3),
        "per_second": round(floor.seen / seconds),
        "first_at": floor.first,
        "cpu_us_per_message": round(used * 1e6 / floor.seen, 2),
    }
    print(json.dumps(line))


try:
    import uvloop
except ImportError:
    asyncio.run(main())
else:
    (asyncio.run if "--stdlib" in sys.argv else uvloop.run)(main())
