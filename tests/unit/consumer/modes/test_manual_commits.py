"""Orderly handlers that commit by hand: what they have handled waits for their word."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from rocketapp.consumer.handler import ConsumedTopic, Handler
from rocketapp.model.event import DeadLettered, Retried
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.names import dlq_topic
from rocketapp.model.outcome import COMMIT, Decision, Decisions, Retry
from rocketapp.model.policy import Breaker, Policy
from rocketapp.wire.layout import encode_record
from rocketapp.wire.record import Message
from rocketapp.wire.requests.direct import NOT_TAKEN, DirectRequest
from tests.unit.consumer.fake_cluster import FakeCluster, Member, consumed, consumed_by, subscription
from tests.unit.scripted import eventually, in_virtual_time

Says = Callable[[Message], Decision | BaseException | None]


class Ledger:
    """Handles messages, and decides as it is told."""

    def __init__(self, says: Says, *, tags: str = "*", is_async: bool = True, **options: Any) -> None:
        self.decisions, self.calls = Decisions(), list[tuple[int, int]]()
        self.times: list[float] = []
        self._says, self._loop = says, asyncio.get_running_loop()
        about = subscription(
            f"ledger {tags}", orderly=True, commit="manual", tags=tags, is_async=is_async, concurrency=4, **options
        )
        self.handler = Handler(about, self._on_loop if is_async else self._handle, decisions=self.decisions)

    async def _on_loop(self, item: Any) -> object:
        return self._handle(item)

    def _handle(self, item: Any) -> object:
        message: Message = item[-1] if isinstance(item, list) else item
        self.decisions.begin(message.queue)
        self.calls.append((message.offset, message.attempt))
        self.times.append(self._loop.time())
        said = self._says(message)
        if isinstance(said, Retry) or said == COMMIT:
            self.decisions.say(message.queue, said)
        elif isinstance(said, BaseException):
            raise said
        return said if isinstance(said, Retry) else None  # as an app's handlers do

    @property
    def offsets(self) -> list[int]:
        return [offset for offset, _ in self.calls]


async def begun(count: int, *ledgers: Ledger, tag: str = "") -> tuple[FakeCluster, MessageQueue, Member]:
    cluster = FakeCluster()
    await cluster.start()
    (queue,) = cluster.create("topic")
    cluster.send_many(queue, count)
    topic: ConsumedTopic = consumed_by(*(ledger.handler for ledger in ledgers))
    return cluster, queue, await cluster.member(topic).start()


@in_virtual_time
async def test_nothing_is_committed_before_the_handler_says_so_and_then_everything_so_far() -> None:
    ledger = Ledger(lambda message: COMMIT if message.offset % 4 == 3 else None)
    cluster, queue, member = await begun(10, ledger)
    await eventually(lambda: len(ledger.calls) == 10, 5)
    await eventually(lambda: cluster.committed(queue) == 8, 10)
    await asyncio.sleep(20)
    assert cluster.committed(queue) == 8
    assert member.consumer.counters.handled == 8
    assert ledger.offsets == list(range(10))
    assert await member.stop()
    assert cluster.committed(queue) == 8

    again = Ledger(lambda message: COMMIT if message.offset == 9 else None)
    other = await cluster.member(consumed_by(again.handler)).start()
    await eventually(lambda: cluster.committed(queue) == 10, 10)
    assert again.offsets == [8, 9]
    await other.stop()
    await cluster.stop()


def test_sync_handlers_commit_and_roll_back_from_their_threads() -> None:
    async def run() -> None:
        rollbacks = [Retry(0.01)]

        def says(message: Message) -> Decision | None:
            if message.offset == 3 and rollbacks:
                return rollbacks.pop()
            return COMMIT if message.offset % 4 == 3 else None

        ledger = Ledger(says, is_async=False)
        cluster, queue, member = await begun(6, ledger)
        await eventually(lambda: cluster.committed(queue) == 4 and len(ledger.calls) == 10, 30)
        assert ledger.offsets == [0, 1, 2, 3, 0, 1, 2, 3, 4, 5]
        await member.stop()
        assert cluster.committed(queue) == 4
        await cluster.stop()

    asyncio.run(run())


@in_virtual_time
async def test_a_rollback_has_everything_uncommitted_handled_again_in_order_and_counts_for_its_message_alone() -> None:
    rollbacks = [Retry(2.5), Retry()]

    def says(message: Message) -> Decision | None:
        if message.offset == 4 and rollbacks:
            return rollbacks.pop(0)
        return COMMIT if message.offset in (1, 5) else None

    ledger = Ledger(says)
    cluster, queue, member = await begun(6, ledger)
    await eventually(lambda: cluster.committed(queue) == 6, 20)
    assert ledger.offsets == [0, 1, 2, 3, 4, 2, 3, 4, 2, 3, 4, 5]
    assert [attempt for offset, attempt in ledger.calls if offset == 4] == [1, 2, 3]
    assert {attempt for offset, attempt in ledger.calls if offset != 4} == {1}
    assert ledger.times[5] - ledger.times[4] == pytest.approx(2.5, abs=0.01)
    assert ledger.times[8] - ledger.times[7] == pytest.approx(1.0, abs=0.01)
    assert [event.error for event in member.events.of(Retried)] == [  # type: ignore[attr-defined]
        "Rollback: by the handler"
    ] * 2
    assert member.consumer.counters.handled == 6
    await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_a_failure_is_retried_alone_and_a_message_without_retries_ends_in_the_dead_letters() -> None:
    failures: dict[int, list[Decision | BaseException]] = {2: [ValueError("no")], 3: [Retry(0.1)] * 99}

    def says(message: Message) -> Decision | BaseException | None:
        if left := failures.get(message.offset):
            return left.pop(0)
        return COMMIT if message.offset == 4 else None

    ledger = Ledger(says, retries=2)
    cluster, queue, member = await begun(5, ledger)
    await eventually(lambda: cluster.committed(queue) == 5, 20)
    assert ledger.offsets == [0, 1, 2, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 4]
    (dead,) = member.events.of(DeadLettered)
    assert dead.message.offset == 3  # type: ignore[attr-defined]
    assert dead.reason == "Rollback: by the handler"  # type: ignore[attr-defined]
    assert cluster.bodies("%DLQ%group") == [b"3"]
    await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_batches_are_committed_and_rolled_back_as_they_were_handled() -> None:
    rollbacks = [Retry(0.2)]

    def says(last: Message) -> Decision | None:
        if last.offset == 5 and rollbacks:
            return rollbacks.pop()
        return COMMIT if last.offset >= 5 else None

    ledger = Ledger(says, batch=2, batch_wait=0.0)
    cluster, queue, member = await begun(6, ledger)
    await eventually(lambda: cluster.committed(queue) == 6, 10)
    assert ledger.offsets == [1, 3, 5, 1, 3, 5]
    assert member.consumer.counters.handled == 6
    await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_handlers_of_one_topic_commit_and_roll_back_for_each_other() -> None:
    rollbacks = [Retry(0.2)]
    left = Ledger(lambda _: None, tags="left")
    right = Ledger(lambda _: rollbacks.pop() if rollbacks else COMMIT, tags="right")
    cluster = FakeCluster()
    await cluster.start()
    (queue,) = cluster.create("topic")
    for tag in ("left", "left", "right", "left"):
        cluster.send(queue, b"", TAGS=tag)
    member = await cluster.member(consumed_by(left.handler, right.handler)).start()
    await eventually(lambda: cluster.committed(queue) == 3, 10)
    await eventually(lambda: left.offsets == [0, 1, 0, 1, 3])
    assert right.calls == [(2, 1), (2, 2)]
    await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_the_attempts_of_a_message_that_was_rolled_back_are_counted_on_by_the_next_owner_of_its_queue() -> None:
    rollbacks = [Retry(0.2)] * 3

    def says(message: Message) -> Decision | None:
        if message.offset == 1 and not rollbacks:
            member.consumer.pause("topic", "by the test")
        return rollbacks.pop() if message.offset == 3 else None

    ledger = Ledger(says, retries=3)
    cluster, _queue, member = await begun(4, ledger)
    await eventually(lambda: not rollbacks and ledger.offsets[-2:] == [0, 1], 10)
    assert [attempt for offset, attempt in ledger.calls if offset == 3] == [1, 2, 3]
    await member.stop()

    again = Ledger(lambda message: Retry(0.2) if message.offset == 3 else None, retries=3)
    other = await cluster.member(consumed_by(again.handler)).start()
    await eventually(lambda: len(cluster.bodies("%DLQ%group")) == 1, 10)
    assert [attempt for offset, attempt in again.calls if offset == 3] == [4]
    await other.stop()
    await cluster.stop()


@in_virtual_time
async def test_a_handler_that_commits_by_hand_is_called_by_no_tool_and_no_other_member() -> None:
    """Handled is not committed, and what such a call says would be said of the call of its own queue."""
    ledger = Ledger(lambda _: None)
    cluster, queue, member = await begun(1, ledger)
    await eventually(lambda: len(ledger.calls) == 1, 10)
    for offset in (0, -1):
        request = DirectRequest("group", "", "", queue.topic, queue.broker_name, offset)
        answer = await member.consumer.consume_directly(request, encode_record(cluster.log[queue][0]))
        assert answer.result == NOT_TAKEN
        assert answer.remark == "ledger * commits by hand: it is called for queues of its own member alone"
    await asyncio.sleep(1)
    assert len(ledger.calls) == 1
    await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_a_breaker_goes_by_what_is_handled_although_its_commit_follows_later() -> None:
    failures = [0, 0, 0]
    policy = Policy(breaker=Breaker(failures=3, within=60.0, pause=30.0))

    def says(message: Message) -> Decision | BaseException | None:
        if failures and message.offset == failures[0]:
            failures.pop(0)
            return ConnectionError("no database")
        return COMMIT if message.offset % 50 == 49 else None

    ledger = Ledger(says, retry=policy)
    cluster, _, member = await begun(100, ledger)
    await eventually(lambda: len(ledger.calls) == 4, 60)
    opened = ledger.times[2]
    await eventually(lambda: member.consumer.counters.handled == 100, 600)
    # One message was tried after a pause, and went well.
    assert ledger.times[3] - opened == pytest.approx(30, abs=1)
    assert ledger.times[-1] - opened < 32
    failures[:] = [101, 120, 140]
    cluster.send_many(MessageQueue("topic", "broker-a", 0), 55)
    await eventually(lambda: len(ledger.calls) == 161, 60)
    # Three failures among more calls that went well than its share allows.
    assert not member.consumer.snapshot().blocked
    await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_what_comes_back_for_a_retry_when_its_handler_commits_by_hand_by_now_becomes_a_dead_letter() -> None:
    """An earlier version was concurrent. Handled is not committed: it would be lost with what the handler gathers."""

    async def fails(_: Message) -> None:
        raise ValueError("not yet")

    ledger = Ledger(lambda _: None)
    cluster = FakeCluster()
    await cluster.start()
    (queue,) = cluster.create("topic")
    cluster.send(queue, b"failed")
    old = await cluster.member(consumed(fails)).start()
    await eventually(lambda: cluster.committed(queue) == 1, 20)
    await old.stop()
    new = await cluster.member(consumed_by(ledger.handler)).start()
    await eventually(lambda: cluster.bodies(dlq_topic("group")) == [b"failed"], 60)
    assert ledger.calls == []
    (dead,) = new.events.of(DeadLettered)
    assert "it came back for a retry, and its handler commits by hand by now" in str(dead)
    await new.stop()
    await cluster.stop()


@in_virtual_time
async def test_the_message_that_a_breaker_tries_is_none_that_becomes_a_dead_letter_without_a_call() -> None:
    """Each of those that come back for a retry would cost another pause, although the handler is well again."""

    async def fails(_: Message) -> None:
        raise ValueError("not yet")

    first_fails = iter([ConnectionError("no database")])
    ledger = Ledger(
        lambda _: next(first_fails, COMMIT), retry=Policy(breaker=Breaker(failures=1, within=60.0, pause=30.0))
    )
    cluster = FakeCluster()
    await cluster.start()
    (queue,) = cluster.create("topic")
    cluster.send_many(queue, 3)
    old = await cluster.member(consumed(fails)).start()
    await eventually(lambda: cluster.committed(queue) == 3, 20)
    await old.stop()
    cluster.send(queue, b"after a while")
    # The retry topic is pulled during the pause: for this one.
    other = consumed(fails, topic="other")
    new = await cluster.member(consumed_by(ledger.handler), other).start()
    await eventually(lambda: len(ledger.calls) == 2, 300)
    assert ledger.times[1] - ledger.times[0] == pytest.approx(30, abs=1)
    await eventually(lambda: len(cluster.bodies(dlq_topic("group"))) == 3, 60)
    await new.stop()
    await cluster.stop()


@in_virtual_time
async def test_a_message_that_was_handled_at_last_and_waits_for_a_commit_is_not_told_as_failing() -> None:
    failures = [ValueError("once")]
    ledger = Ledger(lambda message: failures.pop() if failures else None)
    cluster, _, member = await begun(2, ledger)
    await asyncio.sleep(30)
    assert ledger.calls == [(0, 1), (0, 2), (1, 1)]
    assert member.consumer.snapshot().blocked == {}
    await member.stop()
    await cluster.stop()
