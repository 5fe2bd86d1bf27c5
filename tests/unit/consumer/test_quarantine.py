"""Of the messages that may have ended a process each handler gets one at a time, with ordinary ones beside it."""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from rocketapp.consumer.journal import Journal
from rocketapp.consumer.quarantine import PATIENCE, QueueQuarantine
from rocketapp.model.event import Moving, QueueBlocked
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.names import dlq_topic
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.wire.codes import RequestCode
from rocketapp.wire.layout import encode_record
from rocketapp.wire.record import Message
from rocketapp.wire.requests.direct import SUCCESS, DirectRequest
from tests.unit.consumer.fake_cluster import FakeCluster, consumed
from tests.unit.consumer.members import member_alone
from tests.unit.consumer.reports import message
from tests.unit.scripted import ClockAt, eventually, in_virtual_time

QUEUE = MessageQueue("topic", "broker-a", 0)
CAUSE = 4
QUARANTINED = (2, 3, CAUSE)
MODES: list[dict[str, Any]] = [{}, {"orderly": True}, {"batch": 3}, {"order_by": lambda message: message.offset % 3}]


def journal_with(directory: Path, quarantined: dict[str, dict[int, list[float]]]) -> Journal:
    (directory / "quarantine.json").write_text(json.dumps(quarantined))
    return Journal(directory, ClockAt(1000.0), lambda _: None)


def quarantined(*groups: str, beside: bool = False) -> dict[str, dict[int, list[float]]]:
    """Three messages of each of three queues; one has ended the process by itself, three times."""
    found: dict[str, dict[int, list[float]]] = {
        f"{group} topic@broker-a:{number}": {offset: [1, 0, 1000.0, beside] for offset in QUARANTINED}
        for group in groups
        for number in range(3)
    }
    found[f"{groups[0]} topic@broker-a:1"][CAUSE] = [3, 2, 1000.0, beside]
    return found


class Watched:
    """The calls of one handler: whether quarantined messages overlapped, and whether ordinary ones ran beside them."""

    def __init__(self) -> None:
        self.running: list[bool] = []
        self.lock = threading.Lock()
        self.overlaps = self.quarantined = self.beside = 0

    def begin(self, item: Any) -> bool:
        messages = [item] if isinstance(item, Message) else item
        is_quarantined = any(each.offset in QUARANTINED for each in messages)
        with self.lock:
            self.overlaps += is_quarantined and (len(messages) > 1 or any(self.running))
            self.beside += is_quarantined != any(self.running) and bool(self.running)
            self.quarantined += is_quarantined
            self.running.append(is_quarantined)
        return is_quarantined

    def end(self, is_quarantined: bool) -> None:
        with self.lock:
            self.running.remove(is_quarantined)

    async def call(self, item: Any) -> None:
        is_quarantined = self.begin(item)
        await asyncio.sleep(0.5)
        self.end(is_quarantined)

    def block(self, item: Any) -> None:
        is_quarantined = self.begin(item)
        threading.Event().wait(0.005)
        self.end(is_quarantined)


async def with_topic(messages: int = 8) -> FakeCluster:
    cluster = FakeCluster()
    await cluster.start()
    for queue in cluster.create("topic", queues=3):
        cluster.send_many(queue, messages, k="k")
    return cluster


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("options", MODES)
@in_virtual_time
async def test_each_handler_gets_one_at_a_time_and_all_together_when_they_were_in_flight_together(
    options: dict[str, Any], together: bool, tmp_path: Path
) -> None:
    cluster, one, two = await with_topic(), Watched(), Watched()
    if together:
        two.running, two.lock = one.running, one.lock
    journal = journal_with(tmp_path, quarantined("one", "two", beside=together))
    members = [
        cluster.member(consumed(watched.call, retries=2, **{**options, **more}), group=group, journal=journal)
        for group, watched, more in (("one", one, {}), ("two", two, {"orderly": True}))
    ]
    for member in members:
        await member.start()
    await eventually(lambda: sum(member.consumer.counters.handled for member in members) == 47, 60)
    assert (one.overlaps, two.overlaps, one.quarantined, two.quarantined) == (0, 0, 8, 9)
    assert one.beside
    assert two.beside
    await eventually(lambda: members[0].consumer.counters.dead_lettered == 1)
    assert cluster.bodies(dlq_topic("one")) == [b"%d" % CAUSE]
    for member in members:
        assert await member.stop()
    assert journal.quarantined("one", message(0).queue, 0) == {}  # type: ignore[arg-type]
    journal.close()
    await cluster.stop()


@pytest.mark.parametrize("options", MODES)
async def test_a_handler_in_threads_gets_one_at_a_time(options: dict[str, Any], tmp_path: Path) -> None:
    cluster, watched = await with_topic(), Watched()
    journal = journal_with(tmp_path, quarantined("group"))
    handled = consumed(watched.block, is_async=False, concurrency=3, retries=2, **options)
    member = await cluster.member(handled, journal=journal).start()
    await eventually(lambda: member.consumer.counters.handled == 23, 20)
    assert (watched.overlaps, watched.quarantined) == (0, 8)
    await eventually(lambda: member.consumer.counters.dead_lettered == 1)
    assert await member.stop()
    journal.close()
    await cluster.stop()


@pytest.mark.parametrize("options", MODES)
@in_virtual_time
async def test_what_was_in_flight_at_a_kill_holds_up_no_other_message(options: dict[str, Any], tmp_path: Path) -> None:
    """64 calls of 10 s: 640 s of them one after the other."""
    loop = asyncio.get_running_loop()

    async def first_calls(found: dict[str, dict[int, list[float]]]) -> dict[bool, float]:
        cluster, first, began = await with_topic(80), dict[bool, float](), loop.time()

        async def slow(item: Any) -> None:
            of = item if isinstance(item, Message) else item[0]
            if of.queue_id == 0 and of.offset < 64:
                await asyncio.sleep(10)
            else:
                first.setdefault(True, loop.time() - began)

        async def other(_: Message) -> None:
            first.setdefault(False, loop.time() - began)

        directory = tmp_path / f"{len(found)}"
        directory.mkdir()
        journal = journal_with(directory, found)
        for queue in cluster.create("other", queues=1):
            cluster.send_many(queue, 1)
        handled = consumed(slow, concurrency=65, **options), consumed(other, topic="other")
        member = await cluster.member(*handled, journal=journal).start()
        await eventually(lambda: len(first) == 2, 5)
        await member.stop(drain_timeout=0.1)
        journal.close()
        await cluster.stop()
        return first

    without = await first_calls({})
    after_kill = await first_calls({"group topic@broker-a:0": {at: [1, 0, 1000.0, False] for at in range(64)}})
    assert after_kill.keys() == without.keys() == {True, False}
    assert all(after_kill[key] < seconds + 1.0 for key, seconds in without.items())


@pytest.mark.parametrize("options", MODES)
@in_virtual_time
async def test_a_call_that_hangs_gives_its_turn_up_and_queues_that_wait_say_so(
    options: dict[str, Any], tmp_path: Path
) -> None:
    cluster = await with_topic()
    journal = journal_with(
        tmp_path, {f"group topic@broker-a:{number}": {0: [1, 0, 1000.0, False]} for number in range(3)}
    )
    hangs, called = asyncio.Event(), list[int]()

    async def handle(item: Any) -> None:
        first = item if isinstance(item, Message) else item[0]
        if first.offset == 0:
            called.append(first.queue_id)
            if len(called) == 1:
                await hangs.wait()

    member = await cluster.member(consumed(handle, **options), journal=journal).start()
    await asyncio.sleep(8)
    assert len(called) == 1
    waiting = {queue.queue_id: reason for queue, reason in member.consumer.snapshot().blocked.items()}
    assert waiting.keys() == {0, 1, 2} - {called[0]}
    reason = (
        f"#0 may have ended a process: handler handles one such message at a time, now #0 of topic@broker-a:{called[0]}"
    )
    assert set(waiting.values()) == {reason}
    assert {one.queue.queue_id for one in member.events.of(QueueBlocked)} == set(waiting)
    await asyncio.sleep(PATIENCE - 5)
    assert sorted(called) == [0, 1, 2]
    await asyncio.sleep(2)
    assert {one.queue.queue_id for one in member.events.of(Moving)} == set(waiting)
    hangs.set()
    await eventually(lambda: member.consumer.counters.handled == 24, 10)
    assert member.consumer.snapshot().blocked == {}
    assert await member.stop()
    journal.close()
    await cluster.stop()


@pytest.mark.parametrize("options", MODES)
@in_virtual_time
async def test_a_turn_ends_with_its_call_however_long_that_has_lasted(options: dict[str, Any], tmp_path: Path) -> None:
    cluster, loop = await with_topic(), asyncio.get_running_loop()
    journal = journal_with(
        tmp_path, {f"group topic@broker-a:{number}": {0: [1, 0, 1000.0, False]} for number in range(3)}
    )
    began = list[float]()

    async def handle(item: Any) -> None:
        if (item if isinstance(item, Message) else item[0]).offset == 0:
            began.append(loop.time())
            await asyncio.sleep(4)

    member = await cluster.member(consumed(handle, **options), journal=journal).start()
    await eventually(lambda: member.consumer.counters.handled == 24, 60)
    assert [round(at - began[0]) for at in began] == [0, 4, 8]
    assert await member.stop()
    journal.close()
    await cluster.stop()


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("options", MODES)
@in_virtual_time
async def test_a_pause_lets_no_two_quarantined_messages_start_together(
    options: dict[str, Any], beside: bool, tmp_path: Path
) -> None:
    """Nor two that were in flight together when a process died."""
    cluster, watched = await with_topic(), Watched()
    journal = journal_with(tmp_path, quarantined("group", beside=beside))
    member = cluster.member(consumed(watched.call, retries=2, **options), journal=journal)
    member.consumer.pause("topic", "test")
    await member.start()
    await asyncio.sleep(1)
    member.consumer.resume("topic")
    await asyncio.sleep(0.2)
    member.consumer.pause("topic", "test")
    await asyncio.sleep(4 * PATIENCE)
    member.consumer.resume("topic")
    await eventually(lambda: member.consumer.counters.handled == 23, 60)
    assert (watched.overlaps, watched.quarantined) == (0, 8)
    assert await member.stop()
    journal.close()
    await cluster.stop()


@pytest.mark.parametrize("options", MODES)
@in_virtual_time
async def test_a_cause_whose_dead_letter_is_not_stored_yet_is_not_called_by_the_next_process(
    options: dict[str, Any], tmp_path: Path
) -> None:
    cluster, called = await with_topic(), list[int]()

    async def handle(item: Any) -> None:
        called.extend(one.offset for one in ([item] if isinstance(item, Message) else item) if one.queue_id == 1)

    journal = journal_with(tmp_path, {"group topic@broker-a:1": {CAUSE: [3, 2, 1000.0, False]}})
    cluster.refuse(RequestCode.SEND_MESSAGE_V2, 14)
    cluster.refuse(RequestCode.CONSUMER_SEND_MSG_BACK, 14)
    member = await cluster.member(consumed(handle, retries=2, **options), journal=journal).start()
    await asyncio.sleep(8)
    assert CAUSE not in called
    await member.stop(drain_timeout=2.0)
    journal.close()
    cluster.behave()
    called.clear()
    again = Journal(tmp_path, ClockAt(1010.0), lambda _: None)
    member = await cluster.member(consumed(handle, retries=2, **options), journal=again).start()
    await asyncio.sleep(30)
    assert CAUSE not in called, "it ended three processes, and is called again"
    assert cluster.bodies(dlq_topic("group")) == [b"%d" % CAUSE]
    await member.stop()
    again.close()
    await cluster.stop()


@in_virtual_time
async def test_a_call_that_runs_on_keeps_its_turn_when_its_queue_is_given_back(tmp_path: Path) -> None:
    """A death would blame neither of two that run, time after time."""
    journal = journal_with(tmp_path, quarantined("group"))
    (one, two), member = (message(2), message(3)), member_alone()
    assert one.queue is not None
    handler = member.topics[0].handlers[0]
    given_back, kept = (QueueQuarantine(journal, member, ProcessQueue(one.queue, 0)) for _ in range(2))
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    first = asyncio.ensure_future(given_back.turn(one, handler, ended))
    second = asyncio.ensure_future(kept.turn(two, handler, ended))
    await asyncio.sleep(1)
    given_back.give_up()
    await asyncio.sleep(1)
    assert first.done()
    assert not second.done()
    assert kept.why_it_waits() == "", "most of them are handled quickly"
    await asyncio.sleep(4)
    assert f"now #2 of {one.queue}" in kept.why_it_waits()
    given_back.ended(one)
    assert await second
    assert kept.why_it_waits() == ""
    kept.ended(two)
    journal.close()


async def with_ids(ids: str) -> FakeCluster:
    """Eight messages of one queue."""
    cluster = FakeCluster()
    await cluster.start()
    (queue,) = cluster.create("topic")
    for number in range(8):
        cluster.send(queue, b"%d" % number, UNIQ_KEY=f"{ids}{number}")
    return cluster


@pytest.mark.parametrize("is_another", [False, True])
@pytest.mark.parametrize("options", MODES)
@in_virtual_time
async def test_a_message_that_another_broker_has_in_the_place_of_a_cause_is_called(
    options: dict[str, Any], is_another: bool, tmp_path: Path
) -> None:
    """An empty broker took the place of the one whose message ended processes, and counts from 0 again."""
    called, (dying, found) = list[int](), (tmp_path / "dying", tmp_path / "found")
    dying.mkdir()

    async def handle(item: Any) -> None:
        offsets = [one.offset for one in ([item] if isinstance(item, Message) else item)]
        called.extend(offsets)
        if CAUSE in offsets and not found.exists():  # it dies now: this is what it leaves
            shutil.copytree(dying, found)

    async def run(cluster: FakeCluster, journal: Journal, retries: int) -> None:
        member = await cluster.member(consumed(handle, retries=retries, **options), journal=journal).start()
        await eventually(lambda: member.consumer.counters.handled + member.consumer.counters.dead_lettered == 8)
        await member.stop()
        journal.close()

    cluster = await with_ids("a")
    await run(cluster, journal_with(dying, {f"group {QUEUE}": {CAUSE: [1, 0, 1000.0, False]}}), retries=1)
    assert sorted(called) == list(range(8))
    called.clear()
    cluster.offsets.clear()
    if is_another:
        await cluster.stop()
        cluster = await with_ids("b")
    await run(cluster, Journal(found, ClockAt(1000.0), lambda _: None), retries=0)
    assert (CAUSE in called, cluster.bodies(dlq_topic("group"))) == ((True, []) if is_another else (False, [b"4"]))
    await cluster.stop()


@in_virtual_time
async def test_a_dead_letter_that_is_replayed_is_not_taken_for_the_retry_at_its_offset(tmp_path: Path) -> None:
    cluster, called = FakeCluster(), list[int]()
    await cluster.start()
    cluster.create("topic")
    (dead_letters,) = cluster.create(dlq_topic("group"))
    cluster.send_many(dead_letters, 1, RETRY_TOPIC="topic")

    async def take(message: Message) -> None:
        called.append(message.offset)

    journal = journal_with(tmp_path, {"group %RETRY%group@broker-a:0": {0: [9, 9, 1000.0, False]}})
    member = await cluster.member(consumed(take, retries=2), journal=journal).start()
    request = DirectRequest("group", "", "", dead_letters.topic, dead_letters.broker_name, 0, replay="one")
    result = await member.consumer.consume_directly(request, encode_record(cluster.log[dead_letters][0]))
    assert (result.result, called) == (SUCCESS, [0])
    assert await member.stop()
    journal.close()
    await cluster.stop()
