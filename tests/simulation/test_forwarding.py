"""Messages that a member consumes for the owner of their queue: nothing of the group, or of the broker, pays for it."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from rocketapp.model.outcome import DeadLetter, Pause, Retry
from rocketapp.model.snapshot import HandlerStats
from rocketapp.wire.java import string_hash
from rocketapp.wire.record import Message
from tests.simulation.stage import scenario
from tests.simulation.test_roll_out import ORDERS, Groups, Wanting
from tests.simulation.world import Topic, number_of

ORDERLY, KEYED = Topic(name="orders", orderly=True), Topic(name="orders", keyed=True)


class Calls:
    """A handler that takes its time: which calls run, and whether two ever did."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.running, self.most = seconds, 0, 0
        self.started: list[tuple[int, float]] = []

    async def __call__(self, message: Message) -> None:
        self.started.append((number_of(message.body), asyncio.get_running_loop().time()))
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep(self.seconds)
        finally:
            self.running -= 1

    def numbers(self) -> list[int]:
        return [number for number, _ in self.started]


async def settled(stage: Groups) -> None:
    """Whatever was sent before is done."""
    await stage.until(lambda: not any(broker.lag() for broker in stage.brokers), 60)


async def with_taker(handle: Calls) -> tuple[Groups, Wanting, Wanting]:
    """A group of an owner that wants tag a alone, and of another member whose handler takes tag b."""
    stage = Groups(ORDERS)
    await stage.begin()
    await stage.sender.send("orders", tag="a")
    owner, taker = await stage.member(orders="a"), await stage.member(orders="b", handle=handle)
    await settled(stage)
    return stage, owner, taker


def longer_key() -> str:
    """Of the queue of "D". No record with it lies in an empty broker's log where one of "D" did."""
    return next(key for n in range(500) if (string_hash(key := f"a longer key {n}") - string_hash("D")) % 4 == 0)


@pytest.mark.parametrize("seconds", [0.0, 8.0])
@scenario
async def test_no_call_among_members_holds_a_thread_of_a_broker(seconds: float) -> None:
    stage, slow = Groups(ORDERS, latency=0.002), Calls(seconds)
    await stage.begin()
    await stage.send_tags("ab", 1)
    for _ in range(4):
        await stage.member(orders="a || b")
    await stage.member(orders="b || c", handle=slow)
    sent = await stage.send_tags("c", 64)
    await stage.all_taken(sent, 240)
    assert stage.broker.threads.longest < 0.05
    assert stage.broker.threads.waited < 0.05
    assert Counter(slow.numbers()).most_common(1)[0][1] == 1
    await stage.end()


@pytest.mark.parametrize("topic", [ORDERLY, KEYED], ids=["orderly", "keyed"])
@pytest.mark.parametrize("how", ["cut", "killed", "killed with its machine"])
@scenario
async def test_in_order_a_queue_goes_to_no_other_member_while_one_may_run_a_message_for_its_owner(
    topic: Topic, how: str
) -> None:
    stage, slow = Groups(topic), Calls(150.0)
    await stage.begin()
    await stage.sender.send("orders", "D", tag="a")
    owner = await stage.member(orders="a")
    await stage.member(orders="b", handle=slow)
    await stage.member(orders="a || b", handle=slow)
    await settled(stage)
    sent = [await stage.sender.send("orders", "D", tag="b") for _ in range(2)]
    await stage.until(lambda: slow.running)
    await asyncio.sleep(3)
    if how == "cut":
        await owner.leave(drain_timeout=1.0)
    else:
        owner.crash(silently=how != "killed")
    await stage.until(lambda: set(slow.numbers()) >= set(sent) and not slow.running, 900)
    assert slow.most == 1
    await stage.end()


@pytest.mark.parametrize("topic", [ORDERS, ORDERLY, KEYED], ids=["concurrent", "orderly", "keyed"])
@pytest.mark.parametrize("retries", [0, 3])
@pytest.mark.parametrize("send_back_slow", [False, True])
@scenario
async def test_a_message_waits_for_a_paused_taker_without_an_attempt(
    topic: Topic, retries: int, send_back_slow: bool
) -> None:
    stage = Groups(replace(topic, retries=retries))
    slow = {"handler_warning": 60.0, "send_back_slow": send_back_slow}
    stage.world.consumer = {**stage.world.consumer, **slow}
    await stage.begin()
    await stage.sender.send("orders", "D", tag="b")
    old = await stage.member(orders="a || b")
    new = await stage.member(orders="b || c")
    await settled(stage)
    new.consumer.pause("orders", "stock is counted")
    sent = {("c", await stage.sender.send("orders", f"k{n}", tag="c")) for n in range(8)}
    # As failures these would be dead letters after 61 s, and with three retries after 346 s.
    await asyncio.sleep(450 if retries else 150)
    assert stage.broker.dead_letters() == 0
    assert any("stock is counted" in reason for reason in old.consumer.snapshot().blocked.values())
    new.consumer.resume("orders")
    await stage.all_taken(sent, 60)
    assert old.consumer.counters.retried == new.consumer.counters.retried == 0
    await stage.end()


@pytest.mark.parametrize("topic", [ORDERS, ORDERLY, KEYED], ids=["concurrent", "orderly", "keyed"])
@scenario
async def test_what_its_broker_has_deleted_before_a_member_took_it_is_a_dead_letter(topic: Topic) -> None:
    stage = Groups(topic)
    await stage.begin()
    await stage.sender.send("orders", "D", tag="a")
    owner, taker = await stage.member(orders="a"), await stage.member(orders="b")
    await settled(stage)
    taker.consumer.pause("orders", "stock is counted")
    sent = [await stage.sender.send("orders", f"k{n}", tag="b") for n in range(8)]
    await asyncio.sleep(20)
    waiting = sum(queue.unfinished for queue in owner.consumer.snapshot().queues)
    assert waiting
    store, record_at = stage.broker.core.store, stage.broker.core.store.record_at
    store.record_at = lambda _: None
    await asyncio.sleep(20)
    store.record_at = record_at
    taker.consumer.resume("orders")
    await stage.until(lambda: len(taker.taken) + stage.broker.dead_letters() == len(sent), 60)
    assert stage.broker.dead_letters() == waiting
    await stage.end()


@pytest.mark.parametrize("topic", [ORDERS, KEYED], ids=["concurrent", "keyed"])
@scenario
async def test_what_waits_for_a_paused_taker_holds_up_nothing_that_another_member_takes(topic: Topic) -> None:
    stage = Groups(topic)
    await stage.begin()
    await stage.sender.send("orders", "D", tag="a")
    old = await stage.member(orders="a")
    paused, other = [await stage.member(orders=tag) for tag in "bc"]
    await settled(stage)
    paused.consumer.pause("orders", "stock is counted")
    # Queues of a paused member stand still: these keys belong to the first queue, which is the old member's.
    keys = [key for n in range(500) if abs(string_hash(key := f"k{n}")) % 4 == 0]
    waiting = {("b", await stage.sender.send("orders", key, tag="b")) for key in keys[:60]}
    sent = {("c", await stage.sender.send("orders", key, tag="c")) for key in keys[60:]}
    await stage.until(lambda: set(other.taken) >= sent, 60)
    assert not waiting & set(stage.taken())
    assert all(one.blocked for one in old.consumer.snapshot().queues if one.unfinished)
    paused.consumer.resume("orders")
    await stage.all_taken(waiting, 60)
    await stage.end()


@scenario
async def test_the_owner_hears_of_the_end_within_a_second_also_of_a_message_that_had_to_wait() -> None:
    stage, old, new = await with_taker(Calls(0.5))
    new.consumer.pause("orders", "stock is counted")
    sent = await stage.send_tags("b", 4)
    await asyncio.sleep(60)
    new.consumer.resume("orders")
    await stage.all_taken(sent)
    await asyncio.sleep(1.1)
    assert old.consumer.snapshot().forwarded == 2
    await stage.end()


@scenario
async def test_a_taker_that_leaves_tells_owners_which_calls_have_ended() -> None:
    slow = Calls(3.0)
    stage, _, new = await with_taker(slow)
    await stage.member(orders="b", handle=slow)
    await settled(stage)
    sent = await stage.send_tags("b", 32)
    await stage.until(lambda: slow.running)
    await new.leave()
    await stage.all_taken(sent, 120)
    await settled(stage)
    assert Counter(slow.numbers()).most_common(1)[0][1] == 1
    await stage.end()


@scenario
async def test_an_owner_that_leaves_waits_for_no_taker_that_is_dead() -> None:
    stage, owner, taker = await with_taker(slow := Calls(50.0))
    sent = await stage.send_tags("b", 4)
    await stage.until(lambda: slow.running)
    await asyncio.sleep(3)
    taker.crash()
    await asyncio.sleep(2)
    began = stage.now
    await owner.leave()
    assert stage.now - began < 3
    slow.seconds = 0.0
    await stage.member(orders="a || b", handle=slow)
    await stage.all_taken(sent, 60)
    await stage.end()


@pytest.mark.parametrize("topic", [ORDERLY, KEYED], ids=["orderly", "keyed"])
@scenario
async def test_in_order_a_taker_that_was_lost_may_run_on_for_as_long_as_the_lock_of_an_owner_that_leaves(
    topic: Topic,
) -> None:
    stage, slow = Groups(topic), Calls(50.0)
    await stage.begin()
    await stage.sender.send("orders", tag="a")
    owner, taker = await stage.member(orders="a"), await stage.member(orders="b", handle=slow)
    await settled(stage)
    await stage.send_tags("b", 4)
    await stage.until(lambda: slow.running)
    await asyncio.sleep(3)
    count = len(slow.started)
    taker.crash()
    await asyncio.sleep(2)
    await owner.leave()
    left = stage.now
    await stage.member(orders="a || b", handle=slow)
    await stage.until(lambda: len(slow.started) > count, 120)
    assert slow.started[count][1] - left > 35
    slow.seconds = 0.0
    await stage.end()


@scenario
async def test_a_taker_that_leaves_waits_for_no_owner_that_is_dead() -> None:
    slow = Calls(3.0)
    stage, owner, new = await with_taker(slow)
    await stage.send_tags("b", 8)
    await stage.until(lambda: slow.running)
    owner.crash()
    await asyncio.sleep(20)
    began = stage.now
    await new.leave()
    assert stage.now - began < 0.5
    await stage.end()


@scenario
async def test_pause_holds_for_forwarded_messages_from_the_same_moment_on() -> None:
    stage, slow = Groups(replace(ORDERS, concurrency=2)), Calls(3.0)
    await stage.begin()
    await stage.send_tags("ab", 1)
    await stage.member(orders="a || b")
    new = await stage.member(orders="b || c", handle=slow)
    await settled(stage)
    sent = await stage.send_tags("c", 64)
    await stage.until(lambda: len(slow.started) >= 8)
    new.consumer.pause("orders", "stock is counted")
    paused = stage.now
    await asyncio.sleep(90)
    assert [at for _, at in slow.started if at > paused] == []
    new.consumer.resume("orders")
    await stage.all_taken(sent, 300)
    await stage.end()


@pytest.mark.parametrize("topic", [ORDERS, ORDERLY], ids=["concurrent", "orderly"])
@scenario
async def test_a_taker_that_says_stop_keeps_its_topic_paused_and_loses_no_message(topic: Topic) -> None:
    stage, is_ready, calls = Groups(replace(topic, retries=0)), [False], list[int]()

    async def once_ready(message: Message) -> None:
        calls.append(number_of(message.body))
        if not is_ready[0]:
            raise Pause("the stock is closed")

    await stage.begin()
    await stage.sender.send("orders", "D", tag="a")
    await stage.member(orders="a")
    new = await stage.member(orders="c", handle=once_ready)
    await settled(stage)
    sent = {("c", await stage.sender.send("orders", "D", tag="c")) for _ in range(4)}
    await asyncio.sleep(600)
    assert stage.broker.dead_letters() == 0
    assert 1 <= len(calls) <= 8
    is_ready[0] = True
    new.consumer.resume("orders")
    await stage.all_taken(sent, 60)
    await stage.end()


@scenario
async def test_in_order_the_outcome_at_the_taker_is_the_outcome_at_the_owner() -> None:
    stage, tried = Groups(ORDERLY), Counter[int]()
    attempts: list[int] = []
    times: list[float] = []

    async def judge(message: Message) -> None:
        number = number_of(message.body)
        tried[number] += 1
        if message.tag == "d":
            raise DeadLetter("it has no price")
        attempts.append(message.reconsume_times)
        times.append(stage.now)
        if tried[number] < 3:
            raise Retry(after=7.0)

    await stage.begin()
    await stage.sender.send("orders", "D", tag="a")
    await stage.member(orders="a")
    await stage.member(orders="c || d", handle=judge)
    await settled(stage)
    dead = await stage.sender.send("orders", "D", tag="d")
    later = await stage.sender.send("orders", "D", tag="c")
    await stage.all_taken({("c", later)}, 60)
    assert tried == {dead: 1, later: 3}
    assert stage.broker.dead_letters() == 1
    assert attempts == [0, 1, 2]
    assert [round(after - before) for before, after in pairwise(times)] == [7, 7], times
    await stage.end()


@scenario
async def test_a_rate_holds_for_forwarded_messages() -> None:
    stage, calls = Groups(replace(ORDERS, rate=2.0)), Calls(0.0)
    await stage.begin()
    await stage.send_tags("a", 1)
    await stage.member(orders="a")
    await stage.member(orders="c", handle=calls)
    await settled(stage)
    began = stage.now
    sent = await stage.send_tags("c", 40)
    await stage.all_taken(sent, 120)
    assert stage.now - began > 15
    await stage.end()


@pytest.mark.parametrize("topic", [ORDERS, ORDERLY, KEYED], ids=["concurrent", "orderly", "keyed"])
@scenario
async def test_messages_of_own_queues_and_forwarded_ones_share_the_rate_of_their_handler(topic: Topic) -> None:
    stage, calls = Groups(replace(topic, rate=5.0)), Calls(0.0)
    await stage.begin()
    await stage.sender.send("orders", "D", tag="a")
    old = await stage.member(orders="a")
    await stage.member(orders="c", handle=calls)
    await settled(stage)
    began = stage.now
    sent = {("c", await stage.sender.send("orders", f"k{n}", tag="c")) for n in range(100)}
    await asyncio.sleep(10)
    forwarded = old.consumer.snapshot().forwarded
    assert 5 <= forwarded <= len(calls.started) - 5, "neither waits until the other has ended"
    await stage.all_taken(sent, 120)
    assert stage.now - began > 19
    await stage.end()


@pytest.mark.parametrize("topic", [ORDERS, ORDERLY, KEYED], ids=["concurrent", "orderly", "keyed"])
@scenario
async def test_messages_that_end_their_taker_each_time_become_dead_letters(topic: Topic, tmp_path: Path) -> None:
    stage, ended = Groups(replace(topic, retries=0)), Counter[int]()
    takers = list[Wanting]()

    async def end_the_process(message: Message) -> None:
        if message.tag == "c":
            ended[number_of(message.body)] += 1
            await asyncio.sleep(8.0)
            takers[-1].crash()
            await asyncio.sleep(1e9)

    async def restarted() -> None:
        takers.append(await stage.member(orders="b || c", handle=end_the_process, notes_in=tmp_path))

    await stage.begin()
    await stage.sender.send("orders", "D", tag="a")
    await stage.member(orders="a || b", notes_in=tmp_path)
    await restarted()
    # One queue, and two keys of it.
    bad = [await stage.sender.send("orders", key, tag="c") for key in ("D", "H") for _ in range(2)]
    good = {("b", await stage.sender.send("orders", "D", tag="b")) for _ in range(4)}
    while takers[-1].process.is_dead or stage.broker.dead_letters() < len(bad):
        await asyncio.sleep(40)
        if takers[-1].process.is_dead:
            await restarted()
    assert stage.broker.dead_letters() == len(bad)
    assert max(ended.values()) <= 3
    await stage.all_taken(good, 60)
    await stage.end()


@pytest.mark.parametrize("topic", [ORDERS, ORDERLY, KEYED], ids=["concurrent", "orderly", "keyed"])
@scenario
async def test_deaths_of_an_owner_are_no_attempts_of_what_waits_there_for_another_member(
    topic: Topic, tmp_path: Path
) -> None:
    stage = Groups(replace(topic, retries=0))
    await stage.begin()
    await stage.sender.send("orders", "D", tag="a")
    owner = await stage.member(orders="a", notes_in=tmp_path)
    taker = await stage.member(orders="b", notes_in=tmp_path)
    await settled(stage)
    taker.consumer.pause("orders", "stock is counted")
    sent = {("b", await stage.sender.send("orders", key, tag="b")) for key in "ABCD"}  # one in each queue
    for _ in range(4):
        await asyncio.sleep(20)
        owner.crash()
        await asyncio.sleep(2)
        owner = await stage.member(orders="a", notes_in=tmp_path)
    await asyncio.sleep(60)
    assert stage.broker.dead_letters() == 0
    taker.consumer.resume("orders")
    await stage.all_taken(sent, 60)
    await stage.end()


@scenario
async def test_a_member_that_leaves_while_its_messages_wait_makes_no_attempt() -> None:
    stage = Groups(replace(ORDERS, retries=0))
    await stage.begin()
    await stage.send_tags("ab", 1)
    old = await stage.member(orders="a || b")
    new = await stage.member(orders="b || c")
    await settled(stage)
    new.consumer.pause("orders", "stock is counted")
    sent = await stage.send_tags("c", 8)
    await asyncio.sleep(2)
    assert await old.leave()
    assert stage.broker.dead_letters() == 0
    new.consumer.resume("orders")
    await stage.all_taken(sent, 60)
    await stage.end()


@pytest.mark.parametrize("topic", [ORDERS, ORDERLY, KEYED], ids=["concurrent", "orderly", "keyed"])
@scenario
async def test_what_waited_for_another_member_when_its_broker_was_replaced_by_an_empty_one_holds_up_nothing(
    topic: Topic,
) -> None:
    stage, calls = Groups(topic), Calls(0.1)
    await stage.begin()
    await stage.sender.send("orders", "D", tag="a")
    await stage.member(orders="a")
    taker = await stage.member(orders="b", handle=calls)
    await settled(stage)
    taker.consumer.pause("orders", "stock is counted")
    for _ in range(12):
        await stage.sender.send("orders", "D", tag="b")
    await asyncio.sleep(3)
    stage.broker.crash(is_lost=True)
    await stage.broker.start()
    key = longer_key()
    sent = [await stage.sender.send("orders", key, tag="b") for _ in range(6)]
    await asyncio.sleep(5)
    taker.consumer.resume("orders")
    await stage.until(lambda: set(calls.numbers()) >= set(sent), 300)
    assert Counter(calls.numbers()).most_common(1)[0][1] == 1
    await stage.end()


@pytest.mark.parametrize("topic", [ORDERLY, KEYED], ids=["orderly", "keyed"])
@pytest.mark.parametrize("how", ["moved by an operator", "replaced by an empty broker"])
@scenario
async def test_in_order_a_session_that_ends_waits_for_what_another_member_runs_as_long_as_its_broker_knows_it(
    topic: Topic, how: str
) -> None:
    stage, slow = Groups(topic), Calls(100.0)
    await stage.begin()
    await stage.sender.send("orders", "D", tag="a")
    owner = await stage.member(orders="a")
    await stage.member(orders="b", handle=slow)
    await settled(stage)
    sent = [await stage.sender.send("orders", "D", tag="b") for _ in range(3)]
    await stage.until(lambda: slow.running)
    await asyncio.sleep(3)
    if "moved" in how:
        done = owner.consumer.done_offsets("orders")
        owner.consumer.move({queue: offset + 1 for queue, offset in done.items() if offset})
        await stage.until(lambda: set(slow.numbers()) >= set(sent), 900)
        assert slow.most == 1
    else:
        stage.broker.crash(is_lost=True)
        await stage.broker.start()
        key = longer_key()
        fresh = [await stage.sender.send("orders", key, tag="b") for _ in range(2)]
        await stage.until(lambda: fresh[0] in slow.numbers(), 60)
        await stage.until(lambda: fresh[1] in slow.numbers(), 300)
    await stage.end()


@pytest.mark.parametrize("topic", [ORDERS, ORDERLY, KEYED], ids=["concurrent", "orderly", "keyed"])
@scenario
async def test_what_a_taker_fails_on_is_counted_once_in_the_group(topic: Topic) -> None:
    failed = set[int]()

    async def handle(message: Message) -> None:
        number = number_of(message.body)
        if number in failed:
            raise DeadLetter("spoilt")
        failed.add(number)
        raise Retry(after=1)

    stage = Groups(topic)
    await stage.begin()
    await stage.sender.send("orders", tag="a")
    members = [await stage.member(orders="a"), await stage.member(orders="b", handle=handle)]
    await settled(stage)
    await stage.send_tags("b", 8)
    await stage.until(lambda: sum(one.consumer.counters.dead_lettered for one in members) >= 8, 120)
    await settled(stage)
    total = members[0].consumer.counters + members[1].consumer.counters
    assert total == HandlerStats(handled=1, retried=8, dead_lettered=8)
    shown = [one for each in members for one in each.consumer.snapshot().handlers]
    assert sum((one.stats for one in shown), HandlerStats()) == total, "metrics and pages are made of these"
    assert {one.topic for one in shown} == {"orders"}
    await stage.end()
