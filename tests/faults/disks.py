"""The embedded broker on the worst disk: at each call of a script the power fails, or that one call.

In virtual time and in memory; the script sends, batches, delays, commits, pops and decides transactions, and makes
topics, over several segments of the log. What clients were told is compared with what a start finds.
"""

from __future__ import annotations

import asyncio
import errno
import json
import math
import os
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from random import Random
from typing import Any, NamedTuple

from rocketapp.broker.store.files import MemoryFiles
from rocketapp.model.event import StoreReadOnly
from rocketapp.wire.batch import encode_batch
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.message_id import parse_offset_id
from rocketapp.wire.record import Message, decode_records
from rocketapp.wire.requests.messages import QueryRequest
from rocketapp.wire.requests.offsets import CommitRequest
from rocketapp.wire.requests.send import SendRequest, SendResponse
from rocketapp.wire.requests.transactions import EndTransaction
from tests.faults.scenarios import Figures
from tests.unit.broker.asking import Client, Running
from tests.unit.broker.store.disk import Disk
from tests.unit.broker.test_pop import Member, popped
from tests.virtual import run_virtual

ASYNC_LOSS = 0.5
"""Seconds of acknowledged messages that a loss of power may take where replies do not wait for the disk."""
_DISK_ERRORS = (errno.EIO, errno.ENOSPC, errno.EMFILE)
_HALF, _COMMIT = "TRAN_MSG\x01true\x02PGROUP\x01makers\x02UNIQ_KEY\x01A1\x02", 8
_LATE = ("DELAY\x011\x02", "TIMER_DELAY_SEC\x012\x02")
_DELAYED = 4.0
"""Seconds within which every delayed message of the script comes."""
_SAVED = 3.0
"""Seconds after which offsets, and what has become of delayed messages, are on disk."""
_SMALL_SEGMENTS: dict[str, Any] = {"segment_bytes": 65_536, "offsets_flush_interval": 0.5}


OnCall = Callable[[int, str, str], None]
Ignored = Callable[[str], object]
"""Whether a disk takes the sync of this path for nothing."""


class Told(NamedTuple):
    """A message that was acknowledged."""

    at: float
    topic: str
    queue_id: int
    offset: int | None
    """None: it comes later, and nobody was told where."""
    position: int
    """Of the log."""


class Story:
    """What a client did, and what it was told."""

    def __init__(self, disk: Disk, random: Random, *, flush: str) -> None:
        self.disk, self.random, self.broker = disk, random, Running(disk, flush=flush, **_SMALL_SEGMENTS)  # type: ignore[arg-type]
        self.sent: set[bytes] = set()
        self.topics: set[str] = set()
        self.told: dict[bytes, Told] = {}
        self.refused: set[bytes] = set()
        self.commits: list[tuple[float, str, int, int]] = []
        """When the group was told that this queue is done up to this offset."""
        self.retries = 0
        """What its settings say."""
        self.failed = math.inf
        """When the disk failed."""
        self._ends: dict[tuple[str, int], int] = {}

    @property
    def ended(self) -> float:
        """When the last message could become durable: until now, or until a sync of the log failed."""
        is_over = any(isinstance(event, StoreReadOnly) for event in self.broker.events)
        return self.failed if is_over else self.broker.clock.now()

    async def run(self, count: int, on_call: OnCall) -> None:
        """So many messages, one after the other. `on_call`: for the calls after the start."""
        await self.broker.start()
        self.disk.on_call = on_call
        client = await self.broker.client()
        member, number = Member(client), 0
        while number < count:
            kind = self.random.choices(("plain", "batch", "late", "half", "popped"), (70, 8, 10, 6, 6))[0]
            if kind == "batch":
                await self._batch(client, number)
                number += 3
                continue
            body, number = b"%d:" % number + bytes(self.random.choice((0, 100, 700))), number + 1
            if kind == "late":
                await self._send(client, "late", body, self.random.choice(_LATE))
            elif kind == "half":
                await self._transaction(client, body)
            elif kind == "popped":
                await self._send(client, "popped", body)
                answer = await member.ask("popped", max_messages=4, invisible_ms=5000)
                if answer.code == ResponseCode.SUCCESS:
                    await member.ack_all(popped(answer), "popped")
            else:
                topic = self.random.choice(("orders", "stock", f"made-{number // 100}"))
                await self._send(client, topic, body, f"KEYS\x01{number - 1}\x02")
            if number % 3 == 0 and self._ends:
                await self._commit(client)
            if number % 20 == 0:
                settings = b'{"groupName":"billing","retryMaxTimes":%d}' % number
                answer = await client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, settings)
                self.retries = number if answer.code == ResponseCode.SUCCESS else self.retries
            await asyncio.sleep(self.random.choice((0.0, 0.01, 0.2)))

    async def _commit(self, client: Client) -> None:
        (topic, queue_id), end = self.random.choice(list(self._ends.items()))
        fields = CommitRequest("billing", topic, queue_id, end).to_fields()
        answer = await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields)
        if answer.code == ResponseCode.SUCCESS:
            self.commits.append((self.broker.clock.now(), topic, queue_id, end))

    async def _send(self, client: Client, topic: str, body: bytes, properties: str = "") -> SendResponse | None:
        self.sent.add(body)
        self.topics.add(topic)
        answer = await client.send(topic, body, properties, queue_id=self.random.randrange(2))
        if answer.code != ResponseCode.SUCCESS:
            if answer.code == ResponseCode.SERVICE_NOT_AVAILABLE:
                self.refused.add(body)
            return None
        sent = SendResponse.from_fields(answer.fields)
        if properties != _HALF:
            offset = None if properties in _LATE else sent.queue_offset
            self._note(body, topic, sent.queue_id, offset, parse_offset_id(sent.message_id)[2])
        return sent

    async def _batch(self, client: Client, number: int) -> None:
        bodies = [b"%d:batch" % each for each in range(number, number + 3)]
        self.sent.update(bodies)
        self.topics.add("orders")
        request = SendRequest("makers", "orders", queue_id=1, batch=True)
        body = encode_batch([(each, b"", 0) for each in bodies])
        answer = await client.ask(RequestCode.SEND_BATCH_MESSAGE, request.to_fields(), body)
        if answer.code == ResponseCode.SUCCESS:
            sent = SendResponse.from_fields(answer.fields)
            ids = sent.message_id.split(",")
            for at, (each, name) in enumerate(zip(bodies, ids, strict=True)):
                self._note(each, "orders", 1, sent.queue_offset + at, parse_offset_id(name)[2])
        elif answer.code == ResponseCode.SERVICE_NOT_AVAILABLE:
            self.refused.update(bodies)

    async def _transaction(self, client: Client, body: bytes) -> None:
        half = await self._send(client, "paid", body, _HALF)
        if half is None:
            return
        position = parse_offset_id(half.message_id)[2]
        request = EndTransaction("makers", "paid", half.queue_offset, position, _COMMIT, "A1")
        answer = await client.ask(RequestCode.END_TRANSACTION, request.to_fields())
        if answer.code == ResponseCode.SUCCESS:
            self._note(body, "paid", half.queue_id, None, position)

    def _note(self, body: bytes, topic: str, queue_id: int, offset: int | None, position: int) -> None:
        self.told[body] = Told(self.broker.clock.now(), topic, queue_id, offset, position)
        if offset is not None:
            self._ends[topic, queue_id] = offset + 1


async def _found(client: Client, story: Story) -> dict[bytes, tuple[str, int, int]]:
    """Where each message is. The offsets of every queue are complete, and what is late comes twice after a crash alone.

    Committed offsets are at most the ends of their queues, and the last ones but for those of a second.
    """
    found: dict[bytes, tuple[str, int, int]] = {}
    came = dict[bytes, float]()
    old, done = story.broker.clock.now() - _SAVED, dict[tuple[str, int], int]()
    for at, topic, queue_id, end in story.commits:
        done[topic, queue_id] = max(done.get((topic, queue_id), 0), end if at < old else 0)
    for topic in story.topics:
        for queue_id in range(2):
            messages = list[Message]()
            while page := await client.messages(topic, len(messages), queue_id=queue_id):
                messages += page
            assert [each.offset for each in messages] == list(range(len(messages))), "offsets are not complete"
            for each in messages:
                assert each.body not in found or came[each.body] >= old, "a message has two places"
                found[each.body] = topic, queue_id, each.offset
                came[each.body] = each.stored_at.timestamp() if topic == "late" else 0.0
            query = {"consumerGroup": "billing", "topic": topic, "queueId": str(queue_id), "setZeroIfNotFound": "false"}
            answer = await client.ask(RequestCode.QUERY_CONSUMER_OFFSET, query)
            committed = int((answer.fields or {}).get("offset", 0))
            assert committed <= len(messages), "an offset is above its queue"
            assert committed >= done.get((topic, queue_id), 0), "an old offset is lost"
    return found


async def _check_tables(client: Client, story: Story, found: dict[bytes, tuple[str, int, int]]) -> None:
    """Settings of groups are those of the last answer or later ones; messages are found by their keys."""
    if story.retries:
        answer = await client.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "billing"})
        assert json.loads(answer.body)["retryMaxTimes"] >= story.retries, "a group's settings are lost"
    for body in [body for body, (topic, _, _) in found.items() if topic == "stock"][:: max(len(found) // 4, 1)]:
        query = QueryRequest("stock", body.partition(b":")[0].decode())
        answer = await client.ask(RequestCode.QUERY_MESSAGE, query.to_fields())
        assert body in {each.body for each in decode_records(answer.body, None)}, "a key is not found"


async def _check(files: MemoryFiles, story: Story, *, is_async: bool, is_killed: bool = False) -> int:
    """Open what is left. Returns how many acknowledged messages are missing: none, or the last ones."""
    running = Running(files, **_SMALL_SEGMENTS)
    running.clock.epoch = story.broker.clock.now()
    await running.start()
    client = await running.client()
    await asyncio.sleep(_DELAYED)
    found = await _found(client, story)
    await _check_tables(client, story, found)
    await running.broker.stop()
    told = story.told
    assert found.keys() <= story.sent, "a message comes from nowhere"
    assert not found.keys() & story.refused, "a message that was refused is there"
    missing = told.keys() - found.keys()
    assert is_async or not missing, f"lost: {[(body[:9], told[body]) for body in missing][:5]}"
    assert all(told[body].at >= story.ended - ASYNC_LOSS for body in missing), "an old acknowledged message is lost"
    first = min((told[body].position for body in missing), default=math.inf)
    for body in told.keys() & found.keys():
        assert told[body].offset is None or found[body] == told[body][1:4], "a message has another place"
        assert told[body].position < first, "what is left is no prefix"
    return len(missing)


def _checked(files: MemoryFiles, story: Story, *, is_async: bool) -> int:
    """The same, in a thread with a loop and a time of its own, so that the story stands still meanwhile."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(run_virtual, lambda: _check(files, story, is_async=is_async)).result()


def power_losses(count: int, every: int = 1, *, seed: int = 0, ignored: Ignored | None = None) -> Figures:
    """The power fails at each call, or at every so-many-th one, of a script of so many messages, in both modes."""
    figures: Figures = {"messages": count}
    for flush in ("sync", "async"):
        figures[flush] = run_virtual(partial(_power_losses, count, every, seed, flush, ignored))
    return figures


async def _power_losses(count: int, every: int, seed: int, flush: str, ignored: Ignored | None) -> Figures:
    disk, random, calls, most = Disk(), Random(seed), Counter[str](), 0
    wrong = list[Exception]()
    if ignored is not None:
        disk.ignore_sync = lambda path: bool(ignored(path))
    story = Story(disk, Random(seed), flush=flush)

    def take(number: int, name: str, path: str) -> None:
        nonlocal most
        if number % every or wrong:
            return
        call = f"{name} {path.partition('/')[0]}"
        calls[call] += 1
        try:
            most = max(most, _checked(disk.without_power(random), story, is_async=flush == "async"))
        except Exception as error:  # the broker would take it for one of its disk
            wrong.append(error)
            error.add_note(f"at call {number}, {call}, of seed {seed} with flush {flush}")

    await story.run(count, take)
    disk.on_call = None
    await story.broker.broker.stop()
    if wrong:
        raise wrong[0]
    return {"losses_of_power": calls.total(), "most_missing": most, "calls": dict(calls)}


def failing_calls(count: int, every: int = 1, *, seed: int = 0) -> Figures:
    """Each call, or every so-many-th one, of a script of so many messages fails once, reads too, in every way."""
    figures: Figures = {"messages": count}
    for flush in ("sync", "async"):
        unknown = refused = runs = 0
        calls = run_virtual(partial(_calls, count, seed, flush))
        for code in _DISK_ERRORS:
            for number in range(*calls, every):
                story = run_virtual(partial(_failing_call, count, seed, flush, number, code))
                runs, refused = runs + 1, refused + len(story.refused)
                unknown += len(story.sent - story.told.keys() - story.refused)
        figures[flush] = {"failed_calls": runs, "sends_refused": refused, "sends_in_doubt": unknown}
    return figures


async def _calls(count: int, seed: int, flush: str) -> tuple[int, int]:
    """The numbers of the first call after the start, and behind the last one."""
    disk = Disk(sees_reads=True)
    story, numbers = Story(disk, Random(seed), flush=flush), list[int]()
    await story.run(count, lambda number, name, path: numbers.append(number))
    disk.on_call = None
    await story.broker.broker.stop()
    return numbers[0], numbers[-1] + 1


async def _failing_call(count: int, seed: int, flush: str, failing: int, code: int) -> Story:
    disk, failed = Disk(sees_reads=True), ""
    story = Story(disk, Random(seed), flush=flush)

    def fail(number: int, name: str, path: str) -> None:
        nonlocal failed
        if number == failing:
            failed, story.failed = f"{name} {path}", story.broker.clock.now()
            raise OSError(code, os.strerror(code))

    try:
        await story.run(count, fail)
        disk.on_call = None
        left = disk.without_power(Random(seed))
        _checked(disk.killed(), story, is_async=False)
        _checked(left, story, is_async=flush == "async")
        await story.broker.broker.stop()
        _checked(disk.killed(), story, is_async=False)
    except Exception as error:
        error.add_note(f"call {failing}, {failed}, of seed {seed} with flush {flush} failed: {os.strerror(code)}")
        raise
    return story
