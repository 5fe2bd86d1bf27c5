"""Failed messages: retries, dead letters, and brokers that do not take them back."""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from rocketapp.config.consumer import ConsumerConfig
from rocketapp.consumer.handler import ConsumedTopic
from rocketapp.consumer.modes.sink import Sink
from rocketapp.model.event import DeadLettered, Moving, QueueBlocked, Retried, SendBackFailed
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.outcome import DeadLetter, Outcomes, Retry, Skip
from rocketapp.model.snapshot import HandlerStats
from rocketapp.wire import properties as names
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import Command
from rocketapp.wire.layout import Record
from rocketapp.wire.record import Message
from tests.cases import cases
from tests.unit.consumer.fake_cluster import FakeCluster, Lock, consumed
from tests.unit.scripted import eventually, in_virtual_time

SEND_BACK = RequestCode.CONSUMER_SEND_MSG_BACK
SEND = RequestCode.SEND_MESSAGE_V2


class Attempts(list[tuple[bytes, int, float]]):
    """Fails as told by `outcomes`, an outcome per attempt; remembers body, attempt and time."""

    def __init__(self, cluster: FakeCluster, *outcomes: Any) -> None:
        super().__init__()
        self.cluster, self.outcomes = cluster, outcomes

    async def __call__(self, message: Message) -> Any:
        self.append((message.body, message.attempt, self.cluster.loop.time()))
        assert message.topic == "topic"
        outcome = self.outcomes[min(message.attempt, len(self.outcomes)) - 1]
        if isinstance(outcome, BaseException) and not isinstance(outcome, Skip):
            raise outcome
        return outcome


RAISED_AT = f"test_redelivery.py:{Attempts.__call__.__code__.co_firstlineno + 5}"


async def one_message(**properties: str) -> tuple[FakeCluster, Any]:
    cluster = FakeCluster()
    await cluster.start()
    (queue,) = cluster.create("topic")
    cluster.send(queue, b"poison", **{"UNIQ_KEY": "id-1", **properties})
    return cluster, queue


@in_virtual_time
async def test_a_failed_message_comes_back_after_ten_and_then_thirty_seconds() -> None:
    cluster, queue = await one_message()
    attempts = Attempts(cluster, ValueError("no"), ValueError("no"), None)
    member = await cluster.member(consumed(attempts)).start()
    await eventually(lambda: len(attempts) == 3, 60)
    times = [time for _, _, time in attempts]
    assert [attempt for _, attempt, _ in attempts] == [1, 2, 3]
    assert times[1] - times[0] == pytest.approx(10, abs=0.1)
    assert times[2] - times[1] == pytest.approx(30, abs=0.1)
    assert [asked.fields["delayLevel"] for asked in cluster.requests(SEND_BACK)] == ["3", "4"]
    await asyncio.sleep(6)
    assert cluster.committed(queue) == 1
    assert member.consumer.counters == HandlerStats(handled=1, retried=2)
    first = member.events.of(Retried)[0]
    assert first == Retried("group", "handler", "topic", "id-1", 1, 10.0, f"ValueError: no ({RAISED_AT})")
    assert await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_retry_after_rounds_up_to_a_level() -> None:
    cluster, _ = await one_message()
    attempts = Attempts(cluster, Retry(after=45), None)
    member = await cluster.member(consumed(attempts)).start()
    await eventually(lambda: len(attempts) == 2, 100)
    assert [asked.fields["delayLevel"] for asked in cluster.requests(SEND_BACK)] == ["5"]
    await member.stop()
    await cluster.stop()


@pytest.mark.parametrize("outcome", [None, "anything", 0, Skip("no use"), ValueError("returned, not raised")])
def test_whatever_is_returned_is_done(outcome: Any) -> None:
    @in_virtual_time
    async def story() -> None:
        cluster, queue = await one_message()

        async def handler(_: Message) -> Any:
            return outcome

        member = await cluster.member(consumed(handler)).start()
        await eventually(lambda: member.consumer.counters.handled == 1)
        assert await member.stop()
        assert cluster.committed(queue) == 1
        assert not cluster.requests(SEND_BACK)
        await cluster.stop()

    story()


@pytest.mark.parametrize(
    "error",
    [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError(), MemoryError(), BaseException(), GeneratorExit()],
)
def test_whatever_is_raised_is_a_failure_and_the_worker_survives(error: BaseException) -> None:
    @in_virtual_time
    async def story() -> None:
        cluster, queue = await one_message()
        cluster.send(queue, b"good")
        done = []

        async def handler(message: Message) -> None:
            if message.body == b"poison":
                raise error
            done.append(message.body)

        member = await cluster.member(consumed(handler, concurrency=1)).start()
        await eventually(lambda: done == [b"good"])
        await eventually(lambda: len(cluster.requests(SEND_BACK)) == 1)
        assert member.consumer.counters == HandlerStats(handled=1, retried=1)
        assert await member.stop()
        await cluster.stop()

    story()


@pytest.mark.parametrize("orderly", [False, True])
def test_a_handler_that_calls_sys_exit_gets_the_message_again_and_it_is_not_done_before(orderly: bool) -> None:
    @in_virtual_time
    async def story() -> None:
        cluster, queue = await one_message()
        attempts = 0

        async def handler(_: Message) -> None:
            nonlocal attempts
            attempts += 1
            assert cluster.committed(queue) == 0 or not orderly
            if attempts < 3:
                sys.exit("no database")

        member = await cluster.member(consumed(handler, orderly=orderly, concurrency=1)).start()
        await eventually(lambda: member.consumer.counters.handled == 1, 100)
        assert member.consumer.counters == HandlerStats(handled=1, retried=2)
        assert attempts == 3
        errors = [event.error for event in member.events.of(Retried)]  # type: ignore[attr-defined]
        place = f"test_redelivery.py:{handler.__code__.co_firstlineno + 5}"
        assert errors == [f"SystemExit: no database ({place})"] * 2
        assert await member.stop()
        assert cluster.committed(queue) == 1
        await cluster.stop()

    story()


@in_virtual_time
async def test_a_handler_that_cancels_itself_has_failed_and_its_worker_goes_on() -> None:
    cluster, queue = await one_message()
    cluster.send(queue, b"good")
    done = []

    async def handler(message: Message) -> None:
        if message.body == b"poison":
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
        await asyncio.sleep(1)
        done.append(message.body)

    member = await cluster.member(consumed(handler, concurrency=1)).start()
    await eventually(lambda: done == [b"good"])
    assert len(cluster.requests(SEND_BACK)) == 1
    assert await member.stop()
    await cluster.stop()


@pytest.mark.parametrize("retries", [0, 2])
def test_after_the_last_retry_a_message_is_dead_at_once_and_says_why(retries: int) -> None:
    @in_virtual_time
    async def story() -> None:
        cluster, queue = await one_message(KEYS="k", DELAY="5", traceparent="00-1-2-01")
        attempts = Attempts(cluster, ValueError("line one\nline\x01two"))
        member = await cluster.member(consumed(attempts, retries=retries, handler_name="app:pay")).start()
        await eventually(lambda: cluster.bodies("%DLQ%group") == [b"poison"], 100)
        assert len(attempts) == retries + 1
        assert cluster.loop.time() - attempts[-1][2] < 0.1
        (dead,) = [record for at, record in cluster.records if at.topic == "%DLQ%group"]
        properties = names.decode(dead.raw_properties)
        assert properties["rocketapp.handler"] == "app:pay"
        assert properties["rocketapp.exception"] == "ValueError"
        assert properties["rocketapp.reason"].startswith("line one line two (")
        assert properties["rocketapp.attempts"] == str(retries + 1)
        assert properties["rocketapp.app_version"] == "1.2.3"
        assert properties["RETRY_TOPIC"] == "topic"
        assert properties["ORIGIN_MESSAGE_ID"] == "id-1"
        assert properties["KEYS"] == "k"
        assert properties["traceparent"] == "00-1-2-01"
        assert "DELAY" not in properties
        await eventually(lambda: member.consumer.counters == HandlerStats(retried=retries, dead_lettered=1))
        (event,) = member.events.of(DeadLettered)
        assert isinstance(event, DeadLettered)
        assert event.attempt == retries + 1
        assert await member.stop()
        assert cluster.committed(queue) == 1
        await cluster.stop()

    story()


@in_virtual_time
async def test_dead_letter_needs_no_further_attempt() -> None:
    cluster, _ = await one_message()
    attempts = Attempts(cluster, DeadLetter("undecodable"))
    member = await cluster.member(consumed(attempts)).start()
    await eventually(lambda: cluster.bodies("%DLQ%group") == [b"poison"])
    assert len(attempts) == 1
    await member.stop()
    await cluster.stop()


class Raises:
    """A reason that does not tell what it is."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __str__(self) -> str:
        raise self.error


@cases(
    "reason, text",
    [
        (ValueError("no such order"), "ValueError: no such order"),
        (KeyError(), "KeyError"),
        (7, "7"),
        (None, ""),
        (b"raw", "b'raw'"),
        ({"order": 7}, "{'order': 7}"),
        (Raises(RuntimeError()), "(its text raised RuntimeError)"),
        (Raises(SystemExit()), "(its text raised SystemExit)"),
        ("half \ud800 and \x02 and \x01", "half ? and   and  "),
        ("long" * 10_000, ("long" * 1000)[:500]),
    ],
)
def test_a_dead_letter_takes_any_reason(reason: Any, text: str) -> None:
    @in_virtual_time
    async def story() -> None:
        cluster, queue = await one_message()
        member = await cluster.member(consumed(Attempts(cluster, DeadLetter(reason)))).start()
        await eventually(lambda: cluster.bodies("%DLQ%group") == [b"poison"])
        (dead,) = [record for at, record in cluster.records if at.topic == "%DLQ%group"]
        assert names.decode(dead.raw_properties).get("rocketapp.reason", "") == text
        assert await member.stop()
        assert cluster.committed(queue) == 1
        await cluster.stop()

    story()


def test_a_reason_to_skip_may_be_an_exception_as_well() -> None:
    assert Skip(ValueError("no such order")).reason == "ValueError: no such order"


@pytest.mark.parametrize("orderly", [False, True])
def test_a_dead_letter_whose_properties_leave_no_room_for_reasons_goes_without_them(orderly: bool) -> None:
    @in_virtual_time
    async def story() -> None:
        cluster, queue = await one_message(padding="x" * 32_600)
        member = await cluster.member(consumed(Attempts(cluster, DeadLetter("a reason")), orderly=orderly)).start()
        await eventually(lambda: cluster.bodies("%DLQ%group") == [b"poison"])
        assert [asked.fields["delayLevel"] for asked in cluster.requests(SEND_BACK)] == ["-1"]
        assert not cluster.requests(SEND)
        assert await member.stop()
        assert cluster.committed(queue) == 1
        await cluster.stop()

    story()


def expired(_: Any) -> Command:
    return Command(1, remark="look message by offset failed, 4711")


@pytest.mark.parametrize("name", ["long", names.KEYS])
def test_a_dead_letter_carries_less_when_its_broker_has_no_record_to_copy(name: str) -> None:
    @in_virtual_time
    async def story() -> None:
        cluster, queue = await one_message(**{name: "y" * 32_700})
        cluster.misbehave[SEND_BACK] = expired
        member = await cluster.member(consumed(Attempts(cluster, DeadLetter("x")))).start()
        await eventually(lambda: cluster.committed(queue) == 1, 40)
        assert cluster.bodies("%DLQ%group") == [b"poison"]
        await member.stop()
        await cluster.stop()

    story()


@in_virtual_time
async def test_a_send_back_that_is_refused_for_good_is_not_repeated_and_the_copy_is_ours() -> None:
    cluster, queue = await one_message()
    cluster.misbehave[SEND_BACK] = expired
    cluster.refuse(SEND, 14)
    attempts = Attempts(cluster, ValueError(), None)
    member = await cluster.member(consumed(attempts)).start()
    await asyncio.sleep(30)
    assert len(cluster.requests(SEND_BACK)) == 1
    assert cluster.committed(queue) == 0
    cluster.behave(SEND)
    await eventually(lambda: len(attempts) == 2, 25)
    assert len(cluster.requests(SEND_BACK)) == 1
    assert await member.stop()
    assert cluster.committed(queue) == 1
    await cluster.stop()


async def nothing(_: Any) -> None: ...


class Takes:
    """A sink of a plugin that finishes nothing."""

    def take(self, messages: Sequence[Message]) -> None: ...

    async def drain(self) -> None: ...

    def discard(self) -> None: ...


SINK = Sink(new_writer=lambda _: Takes(), locked=True)


@pytest.mark.parametrize(
    "other",
    [
        consumed(nothing, topic="orders", orderly=True),
        consumed(nothing, topic="orders", every=5.0),
        replace(consumed(nothing, topic="orders"), sink=SINK),
    ],
    ids=["orderly", "polled", "a sink"],
)
@in_virtual_time
async def test_in_a_group_with_locks_a_message_that_is_not_taken_back_is_a_dead_letter_that_says_so_with_one_warning(
    other: ConsumedTopic,
) -> None:
    cluster, queue = await one_message()
    cluster.create("orders")
    cluster.misbehave[SEND_BACK] = expired
    failing = consumed(Attempts(cluster, ValueError("first of all")))
    member = await cluster.member(failing, other).start()
    await eventually(lambda: cluster.bodies("%DLQ%group") == [b"poison"])
    (dead,) = [record for at, record in cluster.records if at.topic == "%DLQ%group"]
    properties = names.decode(dead.raw_properties)
    assert properties["rocketapp.exception"] == "ValueError"
    assert "look message by offset failed, 4711" in properties["rocketapp.reason"]
    assert "first of all" in properties["rocketapp.reason"]
    await asyncio.sleep(60)
    assert len(cluster.requests(SEND_BACK)) == 1
    assert len(member.events.of(SendBackFailed)) == len(member.events.of(DeadLettered)) == 1
    assert member.consumer.counters == HandlerStats(dead_lettered=1)
    assert await member.stop()
    assert cluster.committed(queue) == 1
    await cluster.stop()


@pytest.mark.parametrize("outcome", [ValueError(), DeadLetter("x")])
def test_one_lost_answer_makes_at_most_two_copies(outcome: BaseException) -> None:
    @in_virtual_time
    async def story() -> None:
        cluster, queue = await one_message()
        lost = []

        def stored_but_not_answered(asked: Any) -> Command | bool | None:
            if lost:
                return True
            lost.append(asked)
            cluster.send(queue._replace(topic="%COPY%"), b"copy")
            return None

        for code in (SEND_BACK, SEND):
            cluster.misbehave[code] = stored_but_not_answered
        member = await cluster.member(consumed(Attempts(cluster, outcome, None))).start()
        await eventually(lambda: cluster.committed(queue) == 1, 60)
        assert len(cluster.requests(SEND_BACK)) + len(cluster.requests(SEND)) == 2
        assert await member.stop()
        await cluster.stop()

    story()


@in_virtual_time
async def test_a_broker_that_never_answers_gets_few_copies_and_the_message_stays() -> None:
    cluster, queue = await one_message()
    cluster.ignore(SEND_BACK)
    member = await cluster.member(consumed(Attempts(cluster, ValueError(), None))).start()
    await asyncio.sleep(600)
    assert not cluster.requests(SEND)
    times = [asked.time for asked in cluster.requests(SEND_BACK)]
    assert 8 <= len(times) <= 12
    waits = [int(after - before) for before, after in itertools.pairwise(times)]
    assert [least <= wait < least + 11 for least, wait in zip([5, 10, 20, 40, 60, 60], waits, strict=False)] == [
        True
    ] * 6
    assert cluster.committed(queue) == 0
    assert not await member.stop(drain_timeout=1.0)
    await cluster.stop()


@in_virtual_time
async def test_a_dead_letter_that_cannot_be_sent_is_sent_back_to_die() -> None:
    cluster, queue = await one_message()
    cluster.refuse(SEND, 16)
    attempts = Attempts(cluster, DeadLetter("x"))
    member = await cluster.member(consumed(attempts)).start()
    await eventually(lambda: cluster.bodies("%DLQ%group") == [b"poison"], 20)
    assert [asked.fields["delayLevel"] for asked in cluster.requests(SEND_BACK)] == ["-1"]
    assert await member.stop()
    assert cluster.committed(queue) == 1
    await cluster.stop()


@pytest.mark.parametrize("outcome", [ValueError(), DeadLetter("x")])
def test_a_copy_that_we_send_ourselves_keeps_the_flag_of_its_producer(outcome: BaseException) -> None:
    @in_virtual_time
    async def story() -> None:
        cluster = FakeCluster()
        await cluster.start()
        (queue,) = cluster.create("topic")
        cluster.store(queue, Record("topic", b"poison", flag=5))
        cluster.refuse(SEND_BACK)
        member = await cluster.member(consumed(Attempts(cluster, outcome, None))).start()
        await eventually(lambda: len(cluster.requests(SEND)) == 1)
        assert cluster.requests(SEND)[0].fields["h"] == "5"
        await member.stop()
        await cluster.stop()

    story()


@in_virtual_time
async def test_what_the_broker_does_not_take_back_is_sent_to_the_retry_topic() -> None:
    cluster, queue = await one_message(DELAY="7", REAL_TOPIC="x")
    cluster.refuse(SEND_BACK)
    attempts = Attempts(cluster, ValueError(), None)
    member = await cluster.member(consumed(attempts)).start()
    await eventually(lambda: len(attempts) == 2, 15)
    (sent,) = cluster.requests(SEND)
    properties = names.decode(sent.fields["i"].encode())
    assert sent.fields["b"] == "%RETRY%group"
    assert (sent.fields["j"], sent.fields["l"]) == ("1", "16")
    assert properties["DELAY"] == "3"
    assert properties["RETRY_TOPIC"] == "topic"
    assert properties["ORIGIN_MESSAGE_ID"] == "id-1"
    assert properties["RECONSUME_TIME"] == "1"
    assert properties["MAX_RECONSUME_TIMES"] == "16"
    assert "REAL_TOPIC" not in properties
    assert attempts[1][1] == 2
    assert await member.stop()
    assert cluster.committed(queue) == 1
    await cluster.stop()


@in_virtual_time
async def test_a_busy_broker_makes_no_dead_letter_while_another_member_holds_locks() -> None:
    """A roll-out brings the group its first topic in order: a copy of ours would be a dead letter of its broker."""
    cluster, queue = await one_message()
    cluster.locks["group", MessageQueue("moves", "broker-a", 0)] = Lock("another member", cluster.loop.time() + 3600)
    cluster.refuse(SEND_BACK, ResponseCode.SERVICE_NOT_AVAILABLE, times=1)
    attempts = Attempts(cluster, ValueError(), None)
    member = await cluster.member(consumed(attempts)).start()
    await eventually(lambda: len(attempts) == 2, 20)
    assert cluster.bodies("%DLQ%group") == []
    assert await member.stop()
    assert cluster.committed(queue) == 1
    await cluster.stop()


@in_virtual_time
async def test_what_no_broker_takes_stays_uncommitted_and_is_tried_until_one_does() -> None:
    cluster, queue = await one_message()
    cluster.refuse(SEND_BACK)
    cluster.refuse(SEND)
    attempts = Attempts(cluster, ValueError(), None)
    member = await cluster.member(consumed(attempts)).start()
    await asyncio.sleep(60)
    assert cluster.committed(queue) == 0
    assert len(attempts) == 1
    assert 5 <= len(cluster.requests(SEND_BACK)) <= 40
    assert member.events.of(SendBackFailed)
    assert (await member.consumer.idle()).reasons
    cluster.behave()
    await eventually(lambda: len(attempts) == 2, 30)
    await asyncio.sleep(6)
    assert cluster.committed(queue) == 1
    assert await member.stop()
    await cluster.stop()


@pytest.mark.parametrize("mixed", [True, False])
def test_a_message_that_is_refused_waits_longer_each_time_whatever_becomes_of_others(mixed: bool) -> None:
    @in_virtual_time
    async def story() -> None:
        cluster, queue = await one_message()
        cluster.create("orders")
        cluster.misbehave[SEND_BACK] = lambda asked: (
            Command(1, remark="strange") if asked.fields["offset"] == "0" else True
        )
        if not mixed:
            cluster.misbehave[SEND] = lambda _: Command(1, remark="strange")

        async def orderly(_: Message) -> None: ...

        topics = [consumed(Attempts(cluster, ValueError(), None))]
        topics += [consumed(orderly, topic="orders", orderly=True)] if mixed else []
        member = await cluster.member(*topics).start()
        for _ in range(600):
            cluster.send_many(queue, 1)
            await asyncio.sleep(0.1)
        rounds = cluster.requests(SEND_BACK, offset="0")
        assert 6 <= len(rounds) <= 15
        assert not member.events.of(DeadLettered)
        # A record that is refused for five minutes is not retried for ever: it becomes a dead letter.
        await asyncio.sleep(300)
        assert cluster.bodies("%DLQ%group") == ([b"poison"] if mixed else [])
        asked = len(cluster.requests(SEND_BACK, offset="0")) + len(cluster.requests(SEND))
        await asyncio.sleep(60)
        assert len(cluster.requests(SEND_BACK, offset="0")) + len(cluster.requests(SEND)) - asked <= 30
        await member.stop()
        await cluster.stop()

    story()


@in_virtual_time
async def test_messages_that_wait_long_to_be_sent_back_are_a_reason_of_their_queue() -> None:
    cluster, queue = await one_message()
    cluster.refuse(SEND_BACK)
    cluster.refuse(SEND)
    member = await cluster.member(consumed(Attempts(cluster, ValueError(), None))).start()
    await asyncio.sleep(3)
    assert not member.events.of(QueueBlocked)
    cluster.send_many(queue, 2)
    await asyncio.sleep(30)
    reason = member.consumer.snapshot().blocked[queue]
    assert reason.startswith("3 failed messages wait to be sent back: ")
    told = [event for event in member.events.of(QueueBlocked) if event.queue == queue]
    assert len(told) == 1
    cluster.behave()
    await eventually(lambda: queue not in member.consumer.snapshot().blocked, 15)
    assert [event.queue for event in member.events.of(Moving)] == [queue]
    await member.stop()
    await cluster.stop()


@pytest.mark.parametrize(
    ("code", "remark", "seconds"),
    [(1, "", 30), (16, "the broker[a] sending message is forbidden", 200), (16, "check signature failed.", 600)],
    ids=["an error", "the broker is read-only", "its keys are not accepted for a while"],
)
@in_virtual_time
async def test_a_group_with_an_orderly_topic_never_sends_to_its_retry_topic_itself(
    code: int, remark: str, seconds: float
) -> None:
    cluster, queue = await one_message()
    cluster.create("orders")
    cluster.refuse(SEND_BACK, code, remark=remark)
    attempts = Attempts(cluster, ValueError(), None)
    member = await cluster.member(consumed(attempts), consumed(nothing, topic="orders", orderly=True)).start()
    await asyncio.sleep(seconds)
    assert not cluster.requests(SEND)
    assert cluster.committed(queue) == 0
    cluster.behave()
    await eventually(lambda: len(attempts) == 2, 30)
    assert await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_failures_of_a_broker_that_is_down_block_no_handler() -> None:
    cluster = FakeCluster(brokers=2)
    await cluster.start()
    first, second = cluster.create("topic")
    cluster.send_many(first, 200)
    cluster.send_many(second, 200)
    cluster.ignore(SEND_BACK)
    cluster.ignore(SEND)
    handled = []

    async def handler(message: Message) -> None:
        assert message.queue is not None
        if message.queue == first:
            raise ValueError
        handled.append(message.offset)

    member = await cluster.member(consumed(handler, concurrency=4)).start()
    await eventually(lambda: len(handled) == 200, 5)
    await asyncio.sleep(20)
    assert cluster.committed(first) == 0
    assert not await member.stop(drain_timeout=1.0)
    assert cluster.committed(first) == 0
    assert cluster.committed(second) == 200
    await cluster.stop()


@in_virtual_time
async def test_a_failing_batch_is_retried_as_a_whole_or_message_by_message() -> None:
    cluster = FakeCluster()
    await cluster.start()
    (queue,) = cluster.create("topic")
    cluster.send_many(queue, 4)
    batches = []

    async def handler(messages: list[Message]) -> Any:
        batches.append([message.body for message in messages])
        if len(batches) == 1:
            raise ValueError
        if len(batches) == 2:
            by_body = {message.body: message for message in messages}
            return Outcomes({by_body[b"1"]: Retry(), by_body[b"2"]: DeadLetter("x"), by_body[b"3"]: Skip()})
        return None

    member = await cluster.member(consumed(handler, batch=4, batch_wait=0.2)).start()
    await eventually(lambda: len(batches) == 3, 60)
    assert [len(batch) for batch in batches] == [4, 4, 1]
    await eventually(lambda: member.consumer.counters == HandlerStats(handled=3, retried=5, dead_lettered=1))
    assert cluster.bodies("%DLQ%group") == [b"2"]
    assert await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_an_app_is_not_idle_while_a_retry_is_still_due() -> None:
    cluster, _ = await one_message()
    attempts = Attempts(cluster, ValueError(), None)
    member = await cluster.member(consumed(attempts)).start()
    idle_at = 0.0
    while (await member.consumer.idle()).reasons:
        await asyncio.sleep(0.1)
        idle_at = cluster.loop.time()
    assert len(attempts) == 2
    assert 10 < idle_at < 14
    await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_an_app_is_not_idle_while_a_call_runs_whose_message_was_sent_back() -> None:
    cluster, queue = await one_message()

    async def call(message: Message) -> None:
        await asyncio.sleep(100 if message.attempt == 1 else 0)

    config = ConsumerConfig(subscription_check="off", send_back_slow=True, handler_warning=5.0)
    member = await cluster.member(consumed(call), config=config).start()
    await eventually(lambda: member.consumer.counters.handled == 1, 60)
    await asyncio.sleep(20)
    assert cluster.committed(queue) == 1
    assert (await member.consumer.idle()).reasons == ("1 handler runs",)
    await asyncio.sleep(80)
    assert (await member.consumer.idle()).reasons == ()
    assert await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_a_retry_that_no_handler_wants_any_more_is_unmatched() -> None:
    cluster, queue = await one_message(TAGS="gone")
    cluster.refuse(SEND_BACK, times=0)
    attempts = Attempts(cluster, ValueError())
    first = await cluster.member(consumed(attempts, tags="gone")).start()
    await eventually(lambda: first.consumer.counters.retried == 1)
    await first.stop()
    second = await cluster.member(consumed(Attempts(cluster, None), tags="other")).start()
    await eventually(lambda: second.consumer.counters.unmatched == 1, 20)
    assert await second.stop()
    await cluster.stop()
    assert cluster.committed(queue) == 1
