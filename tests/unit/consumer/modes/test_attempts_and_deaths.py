"""Failed attempts and deaths of a message in order are counted together, over sessions and processes."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

from rocketapp.consumer.handler import Handler
from rocketapp.consumer.journal import Journal
from rocketapp.consumer.modes.by_message import MessageMode
from rocketapp.consumer.retry.attempts import Failed
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.names import dlq_topic
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.wire.record import Message
from tests.unit.consumer.fake_cluster import Member, consumed, consumed_by, subscription
from tests.unit.consumer.modes.contexts import DeadLetters, ScriptedLock, mode_context, under
from tests.unit.consumer.reports import QUEUE, message
from tests.unit.consumer.test_quarantine import journal_with, with_ids
from tests.unit.scripted import ClockAt, eventually, in_virtual_time

OTHER = MessageQueue("topic", "broker-a", 1)
ORDERS: dict[str, dict[str, Any]] = {
    "orderly": {"orderly": True},
    "keyed": {"order_by": lambda message: message.offset},
}


class Called(list[tuple[int, int]]):
    """A handler that remembers offsets and attempts."""

    async def __call__(self, message: Message) -> None:
        self.append((message.offset, message.attempt))


class Sessions:
    """Sessions in order of one process, one after the other."""

    def __init__(self, call: Any, *, journal: Journal | None = None, **options: Any) -> None:
        topic = consumed_by(Handler(subscription(**options), call))
        self.dead = DeadLetters()
        self.context = mode_context(topic.handlers, dead_letters=self.dead, journal=journal)
        self.mode = MessageMode([topic], self.context, in_order=True)

    def begin(self, *messages: Message, queue: MessageQueue = QUEUE) -> tuple[ProcessQueue[Message], Any, ScriptedLock]:
        process_queue: ProcessQueue[Message] = ProcessQueue(queue, 0)
        lock = ScriptedLock()
        delivery: Any = self.mode.open(under(lock, process_queue))
        process_queue.put(messages)
        delivery.deliver(messages)
        return process_queue, delivery, lock

    async def end(self, process_queue: ProcessQueue[Message], delivery: Any) -> None:
        delivery.end()
        await delivery.drained()
        process_queue.close()
        delivery.discard()


@pytest.mark.parametrize("has_come", [True, False])
@pytest.mark.parametrize("order", ORDERS)
@in_virtual_time
async def test_attempts_outlive_a_session_in_which_their_message_was_not_started(order: str, has_come: bool) -> None:
    """Otherwise a message whose handler costs its queue the lock has all of its attempts again, time after time."""
    called = Called()
    sessions = Sessions(called, **ORDERS[order])
    sessions.context.attempts.keep(QUEUE, [Failed(0, 3, message(0).message_id)])
    pauses = sessions.context.member.pauses
    pauses.pause("topic", "operator")
    between = sessions.begin(*([message(0)] if has_come else []))
    await asyncio.sleep(1)
    await sessions.end(*between[:2])
    pauses.resume("topic")
    sessions.begin(message(0))
    await asyncio.sleep(1)
    await sessions.mode.callers.stop()
    assert called == [(0, 4)]


@pytest.mark.parametrize("order", ORDERS)
@in_virtual_time
async def test_deaths_make_no_dead_letter_of_a_message_whose_session_ended_before_its_call(
    order: str, tmp_path: Path
) -> None:
    """It was in flight with others as a process died, which says little of it, and has had no attempt since."""
    journal = journal_with(tmp_path, {f"group {QUEUE}": {0: [1, 0, 1000.0, False]}})
    called = Called()
    sessions = Sessions(called, journal=journal, retries=0, **ORDERS[order])
    pauses = sessions.context.member.pauses
    pauses.pause("topic", "operator")
    between = sessions.begin(message(0))
    await asyncio.sleep(1)
    between[1].end(start_no_more=True)
    await sessions.end(*between[:2])
    pauses.resume("topic")
    sessions.begin(message(0))
    await asyncio.sleep(1)
    await sessions.mode.callers.stop()
    journal.close()
    assert (called, sessions.dead.letters) == ([(0, 2)], [])


@in_virtual_time
async def test_a_message_that_waits_for_its_turn_when_its_session_ends_is_no_dead_letter_in_the_next(
    tmp_path: Path,
) -> None:
    journal = journal_with(tmp_path, {f"group {queue}": {0: [1, 0, 1000.0, False]} for queue in (QUEUE, OTHER)})
    called: list[tuple[int, int]] = []

    async def call(message: Message) -> None:
        called.append((message.queue_id, message.attempt))
        await asyncio.sleep(10 if message.queue == OTHER else 0)

    sessions = Sessions(call, journal=journal, retries=0, orderly=True)
    sessions.begin(message(0, queue=OTHER), queue=OTHER)
    await asyncio.sleep(1)
    between = sessions.begin(message(0))
    await asyncio.sleep(1)
    await sessions.end(*between[:2])
    process_queue, _, _ = sessions.begin(message(0))
    await asyncio.sleep(20)
    await sessions.mode.callers.stop()
    journal.close()
    assert sessions.dead.letters == []
    assert (process_queue.commit_offset, len(called)) == (1, 2)


@pytest.mark.parametrize("order", ORDERS)
@in_virtual_time
async def test_a_death_counts_once_for_a_message_whose_call_cost_its_queue_the_lock(order: str, tmp_path: Path) -> None:
    journal = journal_with(tmp_path, {f"group {QUEUE}": {0: [1, 0, 1000.0, False]}})
    attempts: list[int] = []

    async def call(message: Message) -> None:
        attempts.append(message.attempt)
        if len(attempts) == 1:
            await asyncio.sleep(60)

    sessions = Sessions(call, journal=journal, **ORDERS[order])
    process_queue, delivery, lock = sessions.begin(message(0))
    await asyncio.sleep(1)
    lock.run_out()
    process_queue.close()
    await sessions.end(process_queue, delivery)
    sessions.begin(message(0))
    await asyncio.sleep(1)
    await sessions.mode.callers.stop()
    journal.close()
    assert attempts == [2, 3]


@in_virtual_time
async def test_deaths_count_beside_failed_attempts_that_the_owner_before_has_told(tmp_path: Path) -> None:
    """It has failed once, and ends its process at each attempt since: for ever, if its deaths were not looked at."""
    cluster, attempts = await with_ids("a"), list[int]()
    left = [tmp_path / str(number) for number in range(10)]
    left[0].mkdir()
    for life in range(9):
        journal = Journal(left[life], ClockAt(1000.0 + life), lambda _: None)
        dies = asyncio.Event()

        async def handle(one: Message, life: int = life, dies: asyncio.Event = dies) -> None:
            if one.offset == 0:
                attempts.append(one.attempt)
                if len(attempts) == 1:
                    raise ValueError("once")
                shutil.copytree(left[life], left[life + 1])  # what it leaves as it dies
                dies.set()
                await asyncio.sleep(3600)

        member = await cluster.member(consumed(handle, orderly=True, retries=4), journal=journal).start()

        def is_over(member: Member = member, dies: asyncio.Event = dies) -> bool:
            return dies.is_set() or member.consumer.counters.handled == 7

        await eventually(is_over, 200)
        if not dies.is_set():
            await member.stop()
            journal.close()
            break
        await member.kill()
        cluster.behave()
        cluster.locks.clear()
    assert attempts == [1, 2, 3, 4, 5]
    assert cluster.bodies(dlq_topic("group")) == [b"0"]
    await cluster.stop()
