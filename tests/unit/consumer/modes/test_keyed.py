"""Keyed topics: in order per key, many keys at once, under a lock, retried in place."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from random import Random
from typing import Any

import pytest

from rocketapp.config.consumer import ConsumerConfig
from rocketapp.consumer.handler import Handler
from rocketapp.consumer.modes.by_message import MessageMode
from rocketapp.consumer.retry.attempts import Failed
from rocketapp.model.event import OrderKeyMissing, Released, Retried
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.names import dlq_topic
from rocketapp.model.outcome import DeadLetter, Pause, Retry, Skip
from rocketapp.model.policy import Breaker, Policy
from rocketapp.model.snapshot import HandlerStats
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.wire.codes import RequestCode
from rocketapp.wire.record import Message
from tests.unit.consumer.fake_cluster import FakeCluster, Lock, consumed, consumed_by, subscription
from tests.unit.consumer.modes.contexts import DeadLetters, ScriptedLock, mode_context, opened, under
from tests.unit.consumer.reports import QUEUE, message
from tests.unit.scripted import eventually, in_virtual_time

LOCK = RequestCode.LOCK_BATCH_MQ


class Keys:
    """A handler that takes a while, and checks that no key overlaps and none goes back."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.active: set[str] = set()
        self.most = 0
        self.started: dict[str, list[int]] = defaultdict(list)
        self.done: dict[str, list[int]] = defaultdict(list)
        self.calls: list[tuple[str, int, int, float]] = []
        self.outcomes: dict[int, list[Any]] = {}

    async def __call__(self, message: Message) -> Any:
        key = message.properties.get("k", "")
        assert key not in self.active
        self.active.add(key)
        self.most = max(self.most, len(self.active))
        self.calls.append((key, message.offset, message.attempt, asyncio.get_running_loop().time()))
        try:
            await asyncio.sleep(self.seconds)
        finally:
            self.active.discard(key)
        if outcomes := self.outcomes.get(message.offset):
            outcome = outcomes.pop(0)
            if isinstance(outcome, BaseException):
                raise outcome
            return outcome
        self.done[key].append(message.offset)
        return None

    def key_of(self, message: Message) -> str:
        return message.properties["k"]

    def count(self) -> int:
        return sum(map(len, self.done.values()))

    def attempts(self, offset: int) -> list[int]:
        return [attempt for _, at, attempt, _ in self.calls if at == offset]


async def with_keys(*keys: str, queues: int = 1) -> tuple[FakeCluster, list[MessageQueue]]:
    cluster = FakeCluster()
    await cluster.start()
    found = cluster.create("topic", queues=queues)
    for queue in found:
        for number, key in enumerate(keys):
            cluster.send(queue, str(number).encode(), **({"k": key} if key else {}))
    return cluster, found


def keyed(call: Any, **options: Any) -> Any:
    return consumed(call, **{"order_by": "k", **options})


@in_virtual_time
async def test_each_key_goes_one_by_one_and_keys_side_by_side() -> None:
    names = [f"k{number % 10}" for number in range(100)]
    cluster, (queue,) = await with_keys(*names)
    keys = Keys(seconds=0.1)
    member = await cluster.member(keyed(keys)).start()
    await eventually(lambda: keys.count() == 100, 1.2)
    assert keys.most == 10
    for key, offsets in keys.done.items():
        assert offsets == [at for at, name in enumerate(names) if name == key]
    assert await member.stop()
    assert cluster.committed(queue) == 100
    assert cluster.requests(LOCK)
    await cluster.stop()


@in_virtual_time
async def test_concurrency_bounds_all_queues_together() -> None:
    cluster, _ = await with_keys(*(f"k{number}" for number in range(40)), queues=3)
    keys = Keys(seconds=0.1)
    active = most = 0

    async def count(message: Message) -> None:
        nonlocal active, most
        active += 1
        most = max(most, active)
        await asyncio.sleep(0.1)
        active -= 1

    member = await cluster.member(keyed(count, concurrency=7)).start()
    await eventually(lambda: member.consumer.counters.handled == 120, 3)
    assert most == 7
    assert keys.calls == []
    assert await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_a_failed_message_is_retried_in_place_and_holds_only_its_key() -> None:
    cluster, (queue,) = await with_keys("a", "b", "a", "b", "c")
    keys = Keys()
    keys.outcomes = {0: [ValueError(), Retry(after=3)], 3: [Skip()]}
    member = await cluster.member(keyed(keys)).start()
    await asyncio.sleep(2)
    assert keys.done == {"b": [1], "c": [4]}
    assert cluster.committed(queue) in (None, 0)
    await eventually(lambda: member.consumer.counters == HandlerStats(handled=5, retried=2), 5)
    assert keys.done["a"] == [0, 2]
    assert keys.attempts(0) == [1, 2, 3]
    assert [event.delay for event in member.events.of(Retried)] == [1.0, 3.0]  # type: ignore[attr-defined]
    assert await member.stop()
    assert cluster.committed(queue) == 5
    await cluster.stop()


@in_virtual_time
async def test_after_the_last_retry_the_next_of_the_key_goes_on_behind_the_stored_dead_letter() -> None:
    cluster, (queue,) = await with_keys("a", "a")
    keys = Keys()
    keys.outcomes = {0: [ValueError(), ValueError(), ValueError()]}
    member = await cluster.member(keyed(keys, retries=2)).start()
    await eventually(lambda: member.consumer.counters == HandlerStats(handled=1, retried=2, dead_lettered=1), 10)
    assert cluster.bodies(dlq_topic("group")) == [b"0"]
    assert keys.attempts(0) == [1, 2, 3]
    assert await member.stop()
    assert cluster.committed(queue) == 2
    await cluster.stop()


@in_virtual_time
async def test_messages_without_the_property_share_a_key() -> None:
    cluster, _ = await with_keys("", "", "a", "")
    keys = Keys(seconds=1)
    member = await cluster.member(keyed(keys)).start()
    await eventually(lambda: keys.count() == 4, 5)
    assert keys.done[""] == [0, 1, 3]
    assert await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_a_property_that_no_message_has_is_told_once_over_all_queues() -> None:
    cluster, _ = await with_keys(*[""] * 60, queues=5)
    keys = Keys()
    member = await cluster.member(keyed(keys)).start()
    await eventually(lambda: keys.count() == 300, 5)
    (event,) = member.events.of(OrderKeyMissing)
    assert isinstance(event, OrderKeyMissing)
    assert (event.topic, event.property, event.count) == ("topic", "k", 100)
    assert await member.stop()
    await cluster.stop()


@pytest.mark.parametrize("options", [{}, {"order_by": lambda message: None}], ids=["one has it", "a function"])
@in_virtual_time
async def test_a_property_that_some_message_has_is_not_told(options: dict[str, Any]) -> None:
    cluster, _ = await with_keys(*[""] * 60, "a", *[""] * 200)
    keys = Keys()
    member = await cluster.member(keyed(keys, **options)).start()
    await eventually(lambda: keys.count() == 261, 5)
    assert member.events.of(OrderKeyMissing) == []
    assert await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_a_key_that_cannot_be_told_makes_a_dead_letter_at_once_with_the_reason() -> None:
    def key_of(message: Message) -> object:
        return [] if message.offset == 1 else 1 / message.offset

    cluster, (queue,) = await with_keys("a", "a", "a")
    keys = Keys()
    member = await cluster.member(keyed(keys, order_by=key_of)).start()
    await eventually(lambda: member.consumer.counters == HandlerStats(handled=1, dead_lettered=2), 5)
    assert sorted(cluster.bodies(dlq_topic("group"))) == [b"0", b"1"]
    reasons = [event.reason for event in member.events if hasattr(event, "reason") and "order_by" in event.reason]
    assert any("ZeroDivisionError" in reason for reason in reasons)
    assert any("unhashable" in reason for reason in reasons)
    assert await member.stop()
    assert cluster.committed(queue) == 3
    await cluster.stop()


@pytest.mark.parametrize("by_method", [False, True])
@in_virtual_time
async def test_messages_of_a_key_go_one_by_one_whichever_of_its_handlers_they_are_for(by_method: bool) -> None:
    cluster = FakeCluster()
    await cluster.start()
    (queue,) = cluster.create("topic")
    for number in range(20):
        cluster.send(queue, b"x", TAGS="one" if number % 2 else "two", k=f"k{number % 4 // 2}")
    cluster.send(queue, b"x", TAGS="none")
    keys = Keys(seconds=0.1)
    keys.outcomes = {4: [ValueError()]}
    declared = [subscription(tag, tags=tag, order_by=keys.key_of if by_method else "k") for tag in ("one", "two")]
    member = await cluster.member(consumed_by(*(Handler(one, keys) for one in declared))).start()
    await eventually(lambda: keys.count() == 20, 5)
    assert keys.most == 2
    assert keys.attempts(4) == [1, 2]
    assert keys.done == {"k0": [at for at in range(20) if at % 4 < 2], "k1": [at for at in range(20) if at % 4 > 1]}
    assert await member.stop()
    assert cluster.committed(queue) == 21
    await cluster.stop()


@in_virtual_time
async def test_handlers_whose_order_by_differ_do_not_wait_for_one_another() -> None:
    cluster = FakeCluster()
    await cluster.start()
    (queue,) = cluster.create("topic")
    for number in range(20):
        cluster.send(queue, b"x", TAGS="one" if number % 2 else "two", k="1", j="1")
    one, two = Keys(seconds=10), Keys(seconds=0.1)
    member = await cluster.member(
        consumed_by(
            Handler(subscription("one", tags="one", order_by="k"), one),
            Handler(subscription("two", tags="two", order_by="j"), two),
        )
    ).start()
    await eventually(lambda: two.count() == 10, 3)
    assert one.most == two.most == 1
    await eventually(lambda: one.count() == 10, 100)
    assert await member.stop()
    assert cluster.committed(queue) == 20
    await cluster.stop()


@in_virtual_time
async def test_nothing_starts_and_nothing_is_acknowledged_while_the_lock_is_in_doubt() -> None:
    cluster, _ = await with_keys(*(f"k{number}" for number in range(200)))
    keys = Keys(seconds=5)
    member = await cluster.member(keyed(keys, concurrency=4)).start()
    await eventually(lambda: len(keys.calls) == 4)
    cluster.ignore(LOCK)
    await asyncio.sleep(90)
    stopped = len(keys.calls)
    await asyncio.sleep(60)
    assert len(keys.calls) == stopped
    handled = member.consumer.counters.handled
    assert handled == stopped - 4
    cluster.behave(LOCK)
    await eventually(lambda: member.consumer.counters.handled > handled + 10, 60)
    assert not member.events.of(Released)
    assert await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_two_members_never_handle_one_queue_at_once_and_nothing_is_lost() -> None:
    random = Random(1)
    cluster, queues = await with_keys(*(f"k{random.randrange(8)}" for _ in range(300)), queues=4)
    seen: dict[tuple[int, str], list[int]] = defaultdict(list)
    active: set[tuple[int, str]] = set()

    async def handle(message: Message) -> None:
        assert message.queue is not None
        at = message.queue.queue_id, message.properties["k"]
        assert at not in active
        active.add(at)
        await asyncio.sleep(random.random() / 50)
        active.discard(at)
        seen[at].append(message.offset)

    first = await cluster.member(keyed(handle)).start()
    await asyncio.sleep(0.1)
    second = await cluster.member(keyed(handle), seed=2).start()
    await asyncio.sleep(0.2)
    assert await first.stop()
    await eventually(lambda: sum(map(len, seen.values())) >= 1200, 120)
    for offsets in seen.values():
        assert offsets == sorted(set(offsets))
    assert sum(map(len, seen.values())) == 1200
    assert await second.stop()
    assert [cluster.committed(queue) for queue in queues] == [300] * 4
    await cluster.stop()


@in_virtual_time
async def test_a_paused_topic_starts_nothing_and_goes_on_in_order() -> None:
    cluster, (queue,) = await with_keys(*(f"k{number % 5}" for number in range(100)))
    keys = Keys(seconds=0.1)
    member = await cluster.member(keyed(keys)).start()
    await asyncio.sleep(0.35)
    member.consumer.pause("topic", "maintenance")
    await asyncio.sleep(0.2)
    done = keys.count()
    await asyncio.sleep(100)
    assert keys.count() == done
    assert cluster.committed(queue) == done
    member.consumer.resume("topic")
    await eventually(lambda: keys.count() == 100, 5)
    for offsets in keys.done.values():
        assert offsets == sorted(offsets)
    assert await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_stop_keeps_the_message_and_a_breaker_tries_one() -> None:
    cluster, (queue,) = await with_keys("a", "a", "b")
    keys = Keys()
    keys.outcomes = {0: [Pause("full")]}
    member = await cluster.member(keyed(keys)).start()
    await asyncio.sleep(20)
    assert len(keys.attempts(0)) == 1
    assert "said pause" in next(iter(member.consumer.snapshot().blocked.values()))
    member.consumer.resume("topic")
    await eventually(lambda: keys.count() == 3, 5)
    assert keys.attempts(0) == [1, 1]
    assert await member.stop()
    assert cluster.committed(queue) == 3
    await cluster.stop()


@in_virtual_time
async def test_a_breaker_tries_one_message_of_all_keys() -> None:
    down, calls = [True], list[float]()

    async def handle(_: Message) -> None:
        calls.append(asyncio.get_running_loop().time())
        await asyncio.sleep(0)
        if down[0]:
            raise ConnectionError

    cluster, _ = await with_keys(*(f"k{number}" for number in range(50)), queues=2)
    policy = Policy([1], breaker=Breaker(failures=4, pause=30))
    member = await cluster.member(keyed(handle, retry=policy, concurrency=4, retries=100)).start()
    await asyncio.sleep(20)
    before = len(calls)
    assert before <= 8
    await asyncio.sleep(100)
    assert 3 <= len(calls) - before <= 4
    down[0] = False
    await eventually(lambda: member.consumer.counters.handled == 100, 60)
    assert await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_a_stop_waits_for_running_calls_and_not_for_resting_messages() -> None:
    cluster, (queue,) = await with_keys("a", "b", "c", "a")
    keys = Keys(seconds=3)
    keys.outcomes = {1: [Retry(after=1000)]}
    member = await cluster.member(keyed(keys)).start()
    await asyncio.sleep(4)
    begun = cluster.loop.time()
    assert await member.stop()
    assert cluster.loop.time() - begun < 4
    assert keys.done == {"a": [0, 3], "c": [2]}
    assert cluster.committed(queue) == 1
    await cluster.stop()


@in_virtual_time
async def test_behind_a_dead_letter_of_the_end_a_key_goes_on_below_what_was_started() -> None:
    cluster, (queue,) = await with_keys("a", "b", "a", "b")

    async def handle(message: Message) -> None:
        if message.offset == 0:
            await asyncio.sleep(1.5)
            raise ValueError("bad")

    member = await cluster.member(keyed(handle, retries=0)).start()
    await asyncio.sleep(1)
    assert await member.stop()
    assert member.consumer.counters == HandlerStats(handled=3, dead_lettered=1)
    assert cluster.committed(queue) == 4
    await cluster.stop()


@in_virtual_time
@pytest.mark.parametrize(("seconds", "left"), [(0.5, []), (5.0, [0, 2])])
async def test_behind_a_dead_letter_without_a_call_that_the_end_met_a_key_goes_on_below_what_was_started(
    seconds: float, left: list[int]
) -> None:
    async def handle(message: Message) -> None: ...

    handler = Handler(subscription(order_by=lambda message: message.offset % 2, retries=0), handle)
    context = mode_context([handler], dead_letters=DeadLetters(after=seconds))
    context.attempts.keep(QUEUE, [Failed(0, 1)])
    way = MessageMode([consumed_by(handler)], context, in_order=True)
    process_queue, delivery = opened(way, QUEUE, *map(message, range(4)))
    await asyncio.sleep(0.1)
    delivery.end()
    await delivery.drained()
    assert [one.offset for one in process_queue.unfinished()] == left
    await way.callers.stop()


@in_virtual_time
async def test_a_cut_drain_cancels_what_runs_and_commits_what_is_below() -> None:
    hang = asyncio.Event()

    async def handle(message: Message) -> None:
        if message.offset == 2:
            await hang.wait()

    cluster, (queue,) = await with_keys("a", "b", "c", "d")
    member = await cluster.member(keyed(handle)).start()
    await asyncio.sleep(1)
    assert not await member.stop(drain_timeout=2)
    assert cluster.committed(queue) == 2
    assert member.consumer.counters == HandlerStats(handled=3)
    await cluster.stop()


@in_virtual_time
async def test_an_attempt_counts_also_when_the_lock_is_lost_before_the_next_one() -> None:
    cluster, (queue,) = await with_keys("a")
    keys = Keys()
    keys.outcomes = {0: [Retry(after=100)]}
    member = await cluster.member(keyed(keys)).start()
    await asyncio.sleep(1)
    cluster.locks["group", queue] = Lock("another", cluster.loop.time() + 50)
    await eventually(lambda: keys.done == {"a": [0]}, 120)
    assert keys.attempts(0) == [1, 2]
    assert await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_attempts_are_counted_on_when_a_handler_costs_the_queue_its_lock() -> None:
    cluster, (queue,) = await with_keys("a", "b")

    async def handle(message: Message) -> None:
        if message.offset == 0:
            cluster.locks.clear()
            await asyncio.sleep(70)  # longer than the lock is trusted
            return
        await asyncio.sleep(0)

    def steal(asked: Any) -> bool:
        return True

    cluster.misbehave[LOCK] = steal
    member = await cluster.member(keyed(handle, retries=1)).start()
    await asyncio.sleep(300)
    assert member.consumer.counters.handled >= 2
    assert await member.stop()
    assert cluster.committed(queue) == 2
    await cluster.stop()


@pytest.mark.parametrize("concurrency", [1, 3, 20])
async def test_a_sync_handler_keeps_the_order_of_each_key_in_threads(concurrency: int) -> None:
    names = [f"k{number % 7}" for number in range(400)]
    cluster, (queue,) = await with_keys(*names)
    lock, active = threading.Lock(), set[str]()
    done: dict[str, list[int]] = defaultdict(list)
    failed = set[int]()

    def handle(message: Message) -> None:
        key = message.properties["k"]
        with lock:
            assert key not in active
            active.add(key)
        threading.Event().wait(0.0002 if message.offset % 5 == 0 else 0)
        with lock:
            active.discard(key)
        if message.offset % 50 == 0 and message.offset not in failed:
            failed.add(message.offset)
            raise Retry(after=0.01)
        done[key].append(message.offset)

    member = await cluster.member(keyed(handle, is_async=False, concurrency=concurrency)).start()
    await eventually(lambda: member.consumer.counters.handled == 400, 20)
    for key, offsets in done.items():
        assert offsets == [at for at, name in enumerate(names) if name == key]
    assert member.consumer.counters.retried == 8
    assert await member.stop()
    assert cluster.committed(queue) == 400
    await cluster.stop()


@in_virtual_time
async def test_one_key_that_is_retried_holds_the_queue_no_further_than_its_span() -> None:
    cluster, (queue,) = await with_keys("bad", *(f"k{number}" for number in range(300)))
    keys = Keys()
    keys.outcomes = {0: [Retry(after=50)]}
    config = ConsumerConfig(queue_max_span=100)
    member = await cluster.member(keyed(keys), config=config).start()
    await asyncio.sleep(20)
    assert 100 <= keys.count() < 200
    (reason,) = member.consumer.snapshot().blocked.values()
    assert reason.startswith("#0 has failed: "), reason  # its span is used up as a consequence
    await eventually(lambda: keys.count() == 301, 60)
    assert await member.stop()
    assert cluster.committed(queue) == 301
    await cluster.stop()


@in_virtual_time
async def test_a_dead_letter_outcome_of_one_key_holds_no_other() -> None:
    cluster, _ = await with_keys("a", "b", "a")
    keys = Keys()
    keys.outcomes = {0: [DeadLetter("spoilt")]}
    member = await cluster.member(keyed(keys)).start()
    await eventually(lambda: member.consumer.counters == HandlerStats(handled=2, dead_lettered=1), 5)
    assert keys.done == {"b": [1], "a": [2]}
    assert await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_a_session_that_ends_as_its_lock_is_certain_again_is_drained_when_nothing_runs() -> None:
    running, calls = set[int](), list[int]()

    async def handle(message: Message) -> None:
        calls.append(message.offset)
        if calls == [0]:
            raise Retry(after=0.1)
        running.add(message.offset)
        await asyncio.sleep(1)
        running.remove(message.offset)

    handler = Handler(subscription(order_by=lambda message: message.offset, concurrency=1), handle)
    way = MessageMode([consumed_by(handler)], mode_context([handler], dead_letters=DeadLetters()), in_order=True)
    lock, process_queue = ScriptedLock(), ProcessQueue[Message](QUEUE, 0)
    delivery = way.open(under(lock, process_queue))
    process_queue.put(messages := [message(0), message(1)])
    delivery.deliver(messages)
    await asyncio.sleep(0.5)
    lock.run_out()
    await asyncio.sleep(1)
    assert (running, calls) == (set(), [0, 1])
    lock.decide(True)
    delivery.end()
    await delivery.drained()
    await asyncio.sleep(0.01)
    assert running == set()
    await way.callers.stop()


@in_virtual_time
async def test_a_queue_keeps_nothing_of_messages_that_are_dead_letters() -> None:
    async def handle(message: Message) -> None:
        raise ValueError

    handler = Handler(subscription(order_by=lambda message: message.offset % 7, retries=1), handle)
    way = MessageMode([consumed_by(handler)], mode_context([handler], dead_letters=DeadLetters()), in_order=True)
    process_queue = ProcessQueue[Message](QUEUE, 0)
    delivery = way.open(under(ScriptedLock(), process_queue))
    process_queue.put(messages := [message(offset) for offset in range(50)])
    delivery.deliver(messages)
    await eventually(lambda: not len(process_queue), 60)
    await asyncio.sleep(0)
    assert handler.stats.dead_lettered == 50
    assert repr(delivery.retries).endswith(": 0 failed, 0 before>")
    await way.callers.stop()
