"""How sessions end while threads go on, while quarantined messages wait for their turn, and after an error of ours."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from rocketapp.consumer.handler import Handler
from rocketapp.consumer.modes.by_message import MessageMode
from rocketapp.consumer.retry.attempts import Failed
from rocketapp.consumer.workers.caller import Caller
from rocketapp.consumer.workers.run import FreeRun, Run
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.names import retry_topic
from rocketapp.model.outcome import Park, Pause
from rocketapp.model.policy import Breaker, Policy
from rocketapp.state.handover import RUN_ON
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.wire.record import Message
from tests.unit.consumer.fake_cluster import FakeCluster, consumed, consumed_by, subscription
from tests.unit.consumer.modes.contexts import DeadLetters, DroppedFailures, ScriptedLock, mode_context, under
from tests.unit.consumer.modes.test_orderly_note import in_flight
from tests.unit.consumer.reports import QUEUE, message
from tests.unit.consumer.test_quarantine import journal_with
from tests.unit.scripted import eventually, in_virtual_time

OTHER = MessageQueue("topic", "broker-a", 1)
LONG = 30.0
"""Seconds that nothing takes, also on a slow machine."""
ORDERS: dict[str, dict[str, Any]] = {
    "concurrent": {},
    "keyed": {"order_by": lambda message: message.offset},
    "orderly": {"orderly": True},
}
"""Options of handlers by the order in which they are called."""


def mode_of(order: str, *handlers: Handler, **parts: Any) -> MessageMode:
    """A mode for handlers with this order; parts of its group."""
    topic = consumed_by(*handlers)
    if order == "concurrent":
        return MessageMode([topic], mode_context(topic.handlers, redelivery=DroppedFailures(), **parts))
    return MessageMode([topic], mode_context(topic.handlers, dead_letters=DeadLetters(), **parts), in_order=True)


def session_of(
    mode: MessageMode, order: str, *messages: Message, queue: MessageQueue = QUEUE
) -> tuple[ProcessQueue[Message], Any]:
    """A session that has pulled these messages: its process queue and its delivery."""
    process_queue: ProcessQueue[Message] = ProcessQueue(queue, messages[0].offset)
    delivery: Any = (
        mode.open(process_queue) if order == "concurrent" else mode.open(under(ScriptedLock(), process_queue))
    )
    process_queue.put(messages)
    delivery.deliver(messages)
    return process_queue, delivery


# Threads go on while a session ends.


@pytest.mark.parametrize("when", ["before", "after"])
async def test_what_a_thread_starts_while_its_session_ends_is_held_and_nothing_else(
    when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, is_at_1, may_end = (threading.Event() for _ in range(3))
    called: list[int] = []

    def call(message: Message) -> None:
        called.append(message.offset)
        if message.offset == 0:
            go.wait(LONG)
        elif message.offset == 1:
            is_at_1.set()
            may_end.wait(LONG)

    mode = mode_of("concurrent", Handler(subscription(is_async=False, concurrency=1), call))
    process_queue, delivery = session_of(mode, "concurrent", *(message(at) for at in range(10)))
    await eventually(lambda: called == [0], LONG)
    withdraw = FreeRun.withdraw

    def meanwhile(run: FreeRun) -> Any:
        if when == "before":
            go.set()
            assert is_at_1.wait(LONG)
        left = withdraw(run)
        go.set()
        return left

    monkeypatch.setattr(FreeRun, "withdraw", meanwhile)
    delivery.end()
    is_held = process_queue.is_unfinished(1)
    may_end.set()
    await asyncio.wait_for(delivery.drained(), LONG)
    await mode.callers.stop()
    expected = [0, 1] if when == "before" else [0]
    assert (called, is_held, process_queue.commit_offset) == (expected, when == "before", len(expected))


@pytest.mark.parametrize("order", ["concurrent", "keyed"])
async def test_messages_that_a_thread_walks_through_at_the_end_are_given_to_no_other_thread(
    order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a handler gets a message of another one: two threads look at the same message, and take two."""
    called: list[tuple[str, str, int]] = []
    a_goes_on, d_ends, all_end = (threading.Event() for _ in range(3))
    a_runs, d_runs, c_runs, looks, is_at_1 = (threading.Event() for _ in range(5))
    c_ends = asyncio.Event()

    def a(message: Message) -> None:
        called.append(("a", message.tag, message.offset))
        if message.offset == 0:
            a_runs.set()
            a_goes_on.wait(LONG)

    def b(message: Message) -> None:
        called.append(("b", message.tag, message.offset))
        if message.offset == 1:
            is_at_1.set()
            all_end.wait(LONG)

    async def c(_: Message) -> None:
        c_runs.set()
        await c_ends.wait()

    def d(_: Message) -> None:
        d_runs.set()
        d_ends.wait(LONG)

    options, threads = ORDERS[order], {"is_async": False, "concurrency": 4}
    mode = mode_of(
        order,
        Handler(subscription("a", tags="a", **threads, **options), a),
        Handler(subscription("b", tags="b", rate=1000.0, **threads, **options), b),
        Handler(subscription("c", tags="c", **options), c),
        Handler(subscription("d", tags="d", **threads, **options), d),
    )
    may_start = Caller.may_start

    def slowly(caller: Caller, item: Any) -> bool:
        if caller.handler.name == "b" and not looks.is_set():
            looks.set()
            is_at_1.wait(0.5)  # this thread gets the processor again when another one, if it may, has gone on
        return may_start(caller, item)

    monkeypatch.setattr(Caller, "may_start", slowly)
    session_of(mode, order, message(0, "d", OTHER), queue=OTHER)
    await eventually(d_runs.is_set, LONG)
    _, delivery = session_of(mode, order, *(message(at, "ab"[at % 2]) for at in range(8)), message(8, "c"))
    await eventually(lambda: a_runs.is_set() and c_runs.is_set(), LONG)
    delivery.end()
    # The loop is busy for a moment; the threads are not.
    a_goes_on.set()
    assert looks.wait(LONG)
    d_ends.set()
    assert is_at_1.wait(LONG)
    all_end.set()
    c_ends.set()
    await asyncio.wait_for(delivery.drained(), LONG)
    await mode.callers.stop()
    assert [(name, tag, offset) for name, tag, offset in called if name != tag] == []


# Quarantined messages.


@pytest.mark.parametrize("start_no_more", [False, True])
@pytest.mark.parametrize("order", ["concurrent", "keyed"])
@in_virtual_time
async def test_a_quarantined_message_that_had_its_turn_and_was_not_called_stays_quarantined(
    order: str, start_no_more: bool, tmp_path: Path
) -> None:
    journal = journal_with(tmp_path, {f"group {queue}": {4: [1, 0, 1000.0, False]} for queue in (QUEUE, OTHER)})
    called: list[tuple[int, int]] = []

    async def call(message: Message) -> None:
        assert message.queue is not None
        called.append((message.queue.queue_id, message.offset))
        await asyncio.sleep(10)

    mode = mode_of(order, Handler(subscription(concurrency=1, **ORDERS[order]), call), journal=journal)
    process_queue, delivery = session_of(mode, order, message(0))
    later = [message(at) for at in range(1, 5)]
    await asyncio.sleep(1)
    process_queue.put(later)
    delivery.deliver(later)
    await asyncio.sleep(1)
    delivery.end(start_no_more=start_no_more)
    await delivery.drained()
    commit = process_queue.commit_offset
    await asyncio.sleep(0.1)  # its offset is committed with an answer, and then the session is closed
    process_queue.close()
    delivery.discard()
    await asyncio.sleep(100)
    assert (called, commit) == ([(0, 0)], 1)
    assert list(journal.quarantined("group", QUEUE, 0)) == [4]
    # Its turn is over: the next one has it.
    session_of(mode, order, message(4, queue=OTHER), queue=OTHER)
    await asyncio.sleep(100)
    await mode.callers.stop()
    journal.close()
    assert called[1:] == [(1, 4)]


@pytest.mark.parametrize("batch", [None, 2])
@in_virtual_time
async def test_a_dead_letter_without_a_call_that_the_end_withdraws_is_left_in_quarantine(
    batch: int | None, tmp_path: Path
) -> None:
    """No broker has stored it: its next owner would call the handler that ends the process."""
    journal = journal_with(tmp_path, {f"group {QUEUE}": {0: [1, 1, 1000.0, False]}})

    async def call(message: Message) -> None: ...

    mode = mode_of("concurrent", Handler(subscription(retries=0, batch=batch), call), journal=journal)
    reported: Any = mode.context.member.observe
    process_queue, delivery = session_of(mode, "concurrent", message(0), message(1))
    delivery.end()  # in the same turn of the loop
    await delivery.drained()
    await asyncio.sleep(1)
    await mode.callers.stop()
    quarantined = list(journal.quarantined("group", QUEUE, 0))
    journal.close()
    assert (process_queue.commit_offset, quarantined, reported) == (0, [0], [])


@pytest.mark.parametrize("turns", range(6))
@pytest.mark.parametrize("start_no_more", [False, True])
@pytest.mark.parametrize("order", ["concurrent", "orderly"])
@in_virtual_time
async def test_a_session_that_ends_while_a_message_gets_its_turn_gives_the_turn_back(
    order: str, start_no_more: bool, turns: int, tmp_path: Path
) -> None:
    journal = journal_with(tmp_path, {f"group {queue}": {4: [1, 0, 1000.0, False]} for queue in (QUEUE, OTHER)})
    called: list[int] = []

    async def call(message: Message) -> None:
        assert message.queue is not None
        called.append(message.queue.queue_id)
        await asyncio.sleep(10)

    mode = mode_of(order, Handler(subscription(**ORDERS[order]), call), journal=journal)
    process_queue, delivery = session_of(mode, order, message(4), message(5))
    for _ in range(turns):
        await asyncio.sleep(0)
    delivery.end(start_no_more=start_no_more)
    await delivery.drained()
    process_queue.close()
    delivery.discard()
    await asyncio.sleep(100)
    noted = in_flight(tmp_path)
    session_of(mode, order, message(4, queue=OTHER), queue=OTHER)
    await asyncio.sleep(100)
    await mode.callers.stop()
    journal.close()
    assert (noted, called.count(OTHER.queue_id)) == ([], 1)


@pytest.mark.parametrize("order", ["concurrent", "keyed", "orderly"])
@in_virtual_time
async def test_in_a_void_session_a_message_that_waits_for_a_call_leaves_its_turn_at_once(
    order: str, tmp_path: Path
) -> None:
    """An operator has moved the group, for example: the next session waited until the turn was late."""
    journal = journal_with(tmp_path, {f"group {queue}": {4: [1, 0, 1000.0, False]} for queue in (QUEUE, OTHER)})
    called: list[tuple[int, int, float]] = []

    async def call(message: Message) -> None:
        assert message.queue is not None
        called.append((message.queue.queue_id, message.offset, asyncio.get_running_loop().time()))
        await asyncio.sleep(10)
        if message.offset == 0:
            raise ValueError

    topic = consumed_by(Handler(subscription(concurrency=1, **ORDERS[order]), call))
    context = mode_context(topic.handlers, dead_letters=DeadLetters(), journal=journal)
    mode = MessageMode([topic], context, in_order=order != "concurrent")
    process_queue, delivery = session_of(mode, order, message(0))
    await asyncio.sleep(1)
    later = [message(4)]
    process_queue.put(later)
    delivery.deliver(later)
    await asyncio.sleep(1)
    delivery.discard()
    session_of(mode, order, message(4, queue=OTHER), queue=OTHER)
    await asyncio.sleep(100)
    await mode.callers.stop()
    noted = in_flight(tmp_path)
    journal.close()
    assert called == [(0, 0, pytest.approx(0, abs=0.1)), (1, 4, pytest.approx(10, abs=0.1))]
    assert noted == []


# An error of ours.


@pytest.mark.parametrize("order", ["keyed", "orderly"])
@in_virtual_time
async def test_a_session_in_order_whose_worker_failed_is_drained(order: str) -> None:
    async def call(_: Message) -> None: ...

    def fails() -> None:
        raise ZeroDivisionError

    mode = mode_of(order, Handler(subscription(**ORDERS[order]), call))
    process_queue, delivery = session_of(mode, order, message(0))
    process_queue.watch(fails)
    later = [message(at) for at in range(1, 3)]
    process_queue.put(later)
    delivery.deliver(later)
    await asyncio.wait([delivery.over], timeout=LONG)
    process_queue.unwatch(fails)
    assert isinstance(delivery.over.exception(), ZeroDivisionError)
    await asyncio.wait_for(delivery.drained(), 3600)
    await mode.callers.stop()


# What an end costs.


@pytest.mark.parametrize("order", ["concurrent", "keyed"])
@in_virtual_time
async def test_an_end_with_many_parked_messages_looks_at_each_now_and_then_and_not_once_for_each_other_one(
    order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, is_about_to_start = [0], Run.is_about_to_start

    def seen(run: Run) -> bool:
        looks[0] += 1
        return bool(is_about_to_start.__get__(run))

    async def call(one: Message) -> None:
        if one.offset < 200:
            raise Park(LONG)
        await asyncio.sleep(one.offset / 200)

    mode = mode_of(order, Handler(subscription(concurrency=1000, **ORDERS[order]), call))
    process_queue, delivery = session_of(mode, order, *(message(offset) for offset in range(300)))
    await asyncio.sleep(0.9)
    monkeypatch.setattr(Run, "is_about_to_start", property(seen))
    delivery.end()
    await delivery.drained()
    assert [each.offset for each in process_queue.unfinished()] == [*range(200)]
    assert looks[0] < 20 * 300
    await mode.callers.stop()


# The last attempt ends behind the end.


@pytest.mark.parametrize(("after", "seconds", "is_done"), [(0.4, 2.4, True), (3600.0, 2.0 + RUN_ON, False)])
@in_virtual_time
async def test_a_dead_letter_of_a_last_call_is_waited_for_but_not_for_long(
    after: float, seconds: float, is_done: bool
) -> None:
    async def call(_message: Message) -> None:
        await asyncio.sleep(2.0)
        raise ValueError("the last attempt")

    topic = consumed_by(Handler(subscription(orderly=True, retries=0), call))
    context = mode_context(topic.handlers, dead_letters=DeadLetters(after))
    mode = MessageMode([topic], context, in_order=True)
    process_queue, delivery = session_of(mode, "orderly", message(0), message(1))
    await asyncio.sleep(0.1)
    delivery.end()

    await delivery.drained()

    # Otherwise the next owner would call the handler once more, and store a second dead letter.
    assert process_queue.commit_offset == int(is_done)
    assert asyncio.get_running_loop().time() == pytest.approx(seconds, abs=0.1)


def _refuses(_message: Message) -> int:
    raise ValueError("no key")


@pytest.mark.parametrize(("after", "seconds", "is_done"), [(0.4, 0.4, True), (3600.0, 0.1 + RUN_ON, False)])
@pytest.mark.parametrize("cause", ["it has ended a process", "its attempts are exhausted", "it has no place"])
@in_virtual_time
async def test_a_dead_letter_without_a_call_is_waited_for_as_well(
    cause: str, after: float, seconds: float, is_done: bool, tmp_path: Path
) -> None:
    called: list[int] = []

    async def call(message: Message) -> None:
        called.append(message.offset)

    journal = journal_with(tmp_path, {f"group {QUEUE}": {0: [1, 1, 1000.0, False]}} if "ended" in cause else {})
    options: dict[str, Any] = {"order_by": _refuses} if "place" in cause else {"orderly": True}
    topic = consumed_by(Handler(subscription(retries=0, **options), call))
    context = mode_context(topic.handlers, dead_letters=DeadLetters(after), journal=journal)
    if "attempts" in cause:
        context.attempts.keep(QUEUE, [Failed(0, 1)])
    mode = MessageMode([topic], context, in_order=True)
    process_queue, delivery = session_of(mode, "in order", message(0))
    await asyncio.sleep(0.1)
    delivery.end()

    await delivery.drained()

    # Otherwise the next owner would call the handler for a dead letter, or store it once more.
    assert (called, process_queue.commit_offset) == ([], int(is_done))
    assert asyncio.get_running_loop().time() == pytest.approx(seconds, abs=0.05)
    await mode.callers.stop()
    journal.close()


def _refuses_the_first(message: Message) -> int:
    return _refuses(message) if message.offset == 0 else message.offset


@pytest.mark.parametrize(
    ("cause", "order"),
    [
        ("it has ended a process", "concurrent"),
        ("it has ended a process", "keyed"),
        ("it has ended a process", "orderly"),
        ("its attempts are exhausted", "keyed"),
        ("its attempts are exhausted", "orderly"),
        ("it has no place", "keyed"),
    ],
)
@in_virtual_time
async def test_a_dead_letter_without_a_call_is_done_also_when_nothing_behind_it_has_started(
    cause: str, order: str, tmp_path: Path
) -> None:
    """The next owner would call the handler for a dead letter, or store it once more."""
    called: list[int] = []

    async def call(message: Message) -> None:
        called.append(message.offset)

    journal = journal_with(tmp_path, {f"group {QUEUE}": {0: [1, 1, 1000.0, False]}} if "ended" in cause else {})
    options: dict[str, Any] = {"order_by": _refuses_the_first} if "place" in cause else ORDERS[order]
    mode = mode_of(order, Handler(subscription(retries=0, **options), call), journal=journal)
    if "attempts" in cause:
        mode.context.attempts.keep(QUEUE, [Failed(0, 1)])
    mode.context.member.pauses.pause("topic", "operator")
    process_queue, delivery = session_of(mode, order, message(0), message(1))
    await asyncio.sleep(1)
    delivery.end()
    await delivery.drained()
    await mode.callers.stop()
    journal.close()
    assert (called, process_queue.commit_offset) == ([], 1)


@in_virtual_time
async def test_a_retry_of_a_topic_that_is_polled_by_now_is_a_dead_letter_once() -> None:
    async def call(_: Message) -> None: ...

    retries = MessageQueue(retry_topic("group"), "broker-a", 0)
    polled, paused = consumed(call, topic="polled", every=5.0), consumed(call)
    mode = MessageMode(
        [polled, paused], mode_context([*polled.handlers, *paused.handlers], redelivery=DroppedFailures())
    )
    mode.context.member.pauses.pause("topic", "operator")
    messages = [message(at, queue=retries, origin=topic) for at, topic in enumerate(["polled", "topic"])]
    process_queue, delivery = session_of(mode, "concurrent", *messages, queue=retries)
    await asyncio.sleep(1)
    delivery.end()
    await delivery.drained()
    await mode.callers.stop()
    assert process_queue.commit_offset == 1


# Nothing has started.


@pytest.mark.parametrize("order", ORDERS)
@in_virtual_time
async def test_a_session_that_has_started_nothing_ends_where_it_began(order: str) -> None:
    async def call(_: Message) -> None: ...

    mode = mode_of(order, Handler(subscription(**ORDERS[order]), call))
    mode.context.member.pauses.pause("topic", "operator")
    process_queue, delivery = session_of(mode, order, message(10), message(11))
    await asyncio.sleep(1)
    delivery.end()
    await delivery.drained()
    await mode.callers.stop()
    assert process_queue.commit_offset == 10


@in_virtual_time
async def test_an_offset_that_a_broker_has_lost_is_not_put_back_to_0_as_its_queue_is_given_back() -> None:
    cluster, hangs = FakeCluster(), asyncio.Event()
    await cluster.start()
    first, second = cluster.create("topic", 2)
    cluster.send_many(first, 1)
    cluster.send_many(second, 12)
    cluster.offsets["group", second] = 10

    async def call(_: Message) -> None:
        await hangs.wait()

    member = await cluster.member(consumed(call, concurrency=1)).start()
    await asyncio.sleep(2)
    del cluster.offsets["group", second]
    await member.stop(drain_timeout=5.0)
    assert cluster.committed(second) in {None, 10}
    await cluster.stop()


@in_virtual_time
@pytest.mark.parametrize("is_lost", [True, False])
@pytest.mark.parametrize("order", ["keyed", "orderly"])
async def test_a_pause_that_is_said_while_the_lock_is_uncertain_holds_after_that(order: str, is_lost: bool) -> None:
    lock = ScriptedLock()

    async def call(message: Message) -> None:
        lock.run_out()
        raise Pause("no account answers")

    handler = Handler(subscription(**ORDERS[order]), call)
    context = mode_context([handler], dead_letters=DeadLetters())
    mode = MessageMode([consumed_by(handler)], context, in_order=True)
    process_queue = ProcessQueue[Message](QUEUE, 0)
    delivery = mode.open(under(lock, process_queue))
    process_queue.put([message(0)])
    delivery.deliver([message(0)])
    await asyncio.sleep(1)
    if is_lost:
        lock.decide(False)
        await asyncio.wait([delivery.over])
    else:
        delivery.end()
    assert context.member.pauses.is_paused("topic")
    await mode.callers.stop()


@in_virtual_time
@pytest.mark.parametrize("order", ORDERS)
async def test_a_call_whose_queue_was_given_back_pauses_its_topic_all_the_same(order: str) -> None:
    called: list[int] = []

    async def call(message: Message) -> None:
        called.append(message.offset)
        await asyncio.sleep(1)
        raise Pause("no account answers")

    handler = Handler(subscription(**ORDERS[order]), call)
    context = mode_context([handler], dead_letters=DeadLetters())
    way = MessageMode([consumed_by(handler)], context, in_order=order != "concurrent")
    process_queue = ProcessQueue[Message](QUEUE, 0)
    delivery = way.open(under(ScriptedLock(), process_queue) if order != "concurrent" else process_queue)
    process_queue.put([message(0)])
    delivery.deliver([message(0)])
    await asyncio.sleep(0.5)
    delivery.end()
    process_queue.close()
    await asyncio.sleep(1)
    assert called == [0]
    assert context.member.pauses.is_paused("topic")
    await way.callers.stop()


@in_virtual_time
async def test_a_call_that_a_cut_drain_cancels_is_no_failure_for_its_breaker() -> None:
    async def call(_: Message) -> None:
        await asyncio.sleep(100)

    handler = Handler(subscription(orderly=True, retry=Policy([1], breaker=Breaker(failures=1))), call)
    context = mode_context([handler], dead_letters=DeadLetters())
    way = MessageMode([consumed_by(handler)], context, in_order=True)
    process_queue = ProcessQueue[Message](QUEUE, 0)
    delivery = way.open(under(ScriptedLock(), process_queue))
    process_queue.put([message(0)])
    delivery.deliver([message(0)])
    await asyncio.sleep(1)
    delivery.end()
    assert await delivery.abandon()
    assert not context.member.pauses.is_paused("topic")
    await way.callers.stop()
