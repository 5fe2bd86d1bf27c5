"""A popped topic, against brokers in memory: what is acknowledged, hidden for longer, given back, or dead."""

from __future__ import annotations

import asyncio
import gc
import itertools
from dataclasses import replace

import pytest

from rocketapp.config.consumer import ConsumerConfig
from rocketapp.consumer.handler import Handler
from rocketapp.consumer.workers.run import FreeRun
from rocketapp.errors import SetupError
from rocketapp.model.event import LoopFailed, QueueBlocked, Retried
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.outcome import DeadLetter, Park, Retry
from rocketapp.state.pop_queue import LATE
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.record import Message
from rocketapp.wire.requests.assignment import POP
from tests.unit.consumer.fake_cluster import Member, consumed, consumed_by, subscription
from tests.unit.consumer.pop.pop_cluster import PopCluster, popped
from tests.unit.scripted import eventually, in_virtual_time

TIMES = ConsumerConfig(subscription_check="off", pop_invisible_time=10.0)


class Seen(list[tuple[bytes, int]]):
    """A handler that remembers body and attempt, and takes its time."""

    def __init__(self, takes: float = 0.0) -> None:
        super().__init__()
        self.takes = takes
        self.done: list[bytes] = []

    async def __call__(self, message: Message) -> None:
        self.append((message.body, message.attempt))
        if self.takes:
            await asyncio.sleep(self.takes)
        self.done.append(message.body)


async def started(queues: int = 2, sent: int = 0) -> PopCluster:
    cluster = PopCluster()
    await cluster.start()
    for queue in cluster.create("topic", queues=queues):
        cluster.send_many(queue, sent)
    return cluster


def left(cluster: PopCluster) -> int:
    """Messages that were handed out and are not acknowledged."""
    return sum(map(len, cluster.hidden.values()))


@in_virtual_time
async def test_messages_are_handled_once_and_acknowledged_together_and_nothing_is_pulled() -> None:
    cluster, seen = await started(sent=200), Seen()
    member = await cluster.member(popped(seen)).start()
    await eventually(lambda: len(seen) == 400)
    await eventually(lambda: left(cluster) == 0)
    assert len(set(seen)) == 200, "both queues have the bodies 0 to 199"
    assert cluster.modes == {("broker-a", "topic"): POP}
    assert {one.fields["topic"] for one in cluster.requests(RequestCode.PULL_MESSAGE)} <= {"%RETRY%group"}
    assert sum(count for _, count in cluster.acks) == 400
    assert len(cluster.acks) <= 400 / 32
    snapshot = member.consumer.snapshot()
    (queue,) = [one for one in snapshot.queues if one.queue.topic == "topic"]
    assert (str(queue.queue), queue.unfinished, queue.position) == ("topic@broker-a:all", 0, None)
    assert queue.finished == 400
    assert await member.stop()
    assert member.events.of(LoopFailed) == []


@in_virtual_time
async def test_where_brokers_begin_by_themselves_no_start_undoes_what_others_have_popped() -> None:
    cluster, seen = await started(sent=3), Seen()
    members = [await cluster.member(popped(seen)).start() for _ in range(3)]
    await eventually(lambda: len(seen) == 6)
    assert cluster.requests(RequestCode.UPDATE_CONSUMER_OFFSET, topic="topic") == []
    assert all([await member.stop() for member in members])


@in_virtual_time
async def test_a_mode_that_is_pop_already_is_left_as_it_is() -> None:
    cluster = await started()
    cluster.modes["broker-a", "topic"] = POP
    member = await cluster.member(popped(Seen())).start()
    assert cluster.requests(RequestCode.SET_MESSAGE_REQUEST_MODE) == []
    assert await member.stop()


@in_virtual_time
async def test_a_cluster_without_pop_is_named_at_the_start_also_before_the_topic_exists() -> None:
    cluster = PopCluster()
    await cluster.start()
    cluster.create("%RETRY%group")
    cluster.refuse(RequestCode.QUERY_ASSIGNMENT, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
    member = cluster.member(popped(Seen()))
    with pytest.raises(SetupError, match=r'mode="pop" of topic \'topic\': broker broker-a does not have it'):
        await member.start()
    await member.client.stop()


@in_virtual_time
async def test_a_broker_that_lost_pop_is_named_and_nothing_is_pulled_instead() -> None:
    cluster, seen = await started(sent=1), Seen()
    cluster.ignore(RequestCode.QUERY_ASSIGNMENT)
    joining = asyncio.ensure_future(cluster.member(popped(seen)).start())
    await asyncio.sleep(2)
    cluster.refuse(RequestCode.QUERY_ASSIGNMENT, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
    member = await joining
    await asyncio.sleep(5)
    assert 'it cannot be popped (mode="pop")' in member.consumer.snapshot().unassigned
    assert seen == []
    await member.stop()


@in_virtual_time
async def test_a_message_stays_hidden_while_its_handler_runs_and_is_handled_once() -> None:
    cluster, seen = await started(queues=1, sent=3), Seen(takes=95.0)
    member = await cluster.member(popped(seen), config=TIMES).start()
    other = await cluster.member(popped(seen), config=TIMES).start()
    await eventually(lambda: len(seen.done) == 3, seconds=120)
    await eventually(lambda: left(cluster) == 0)
    await asyncio.sleep(60)
    assert sorted(seen) == [(b"0", 1), (b"1", 1), (b"2", 1)]
    changes = cluster.requests(RequestCode.CHANGE_MESSAGE_INVISIBLETIME)
    assert 3 * 12 <= len(changes) <= 3 * 20, "about every half of 10 s"
    assert await member.stop()
    assert await other.stop()


@in_virtual_time
async def test_messages_are_hidden_anew_in_time_when_their_time_is_changed() -> None:
    cluster, seen = await started(queues=1), Seen(takes=40.0)
    config = replace(TIMES, pop_invisible_time=300.0)
    members = [await cluster.member(popped(seen), config=config).start() for _ in range(2)]
    (queue,) = [MessageQueue("topic", "broker-a", 0)]
    await asyncio.sleep(1)
    for number, seconds in enumerate((5.0, None)):
        # The requests under way hide their messages for the time of before.
        for member in members:
            member.consumer.adjust({"topic": {"pop_invisible_time": seconds}})
        cluster.send_many(queue, 1)
        await eventually(lambda count=number + 1: len(seen) == count, seconds=20)
        cluster.send_many(queue, 1)
        await asyncio.sleep(100)
    assert sorted(seen) == [(b"0", 1), (b"1", 1), (b"2", 1), (b"3", 1)]
    assert {int(one.fields["invisibleTime"]) for one in cluster.requests(RequestCode.POP_MESSAGE)} == {5000, 300_000}
    assert all([await member.stop() for member in members])


@in_virtual_time
async def test_what_a_killed_member_had_in_hand_comes_again_when_its_time_is_over() -> None:
    cluster, hung, seen = await started(queues=1, sent=1), Seen(takes=1e6), Seen()
    killed = await cluster.member(popped(hung), config=TIMES).start()
    await eventually(lambda: len(hung) == 1)
    began = asyncio.get_running_loop().time()
    await killed.kill()
    cluster.behave()
    member = await cluster.member(popped(seen), config=TIMES).start()
    await eventually(lambda: len(seen) == 1, seconds=60)
    assert 9.9 <= asyncio.get_running_loop().time() - began <= 10 + 15 + 1
    assert seen == [(b"0", 2)]
    assert await member.stop()


@in_virtual_time
async def test_a_failed_message_comes_again_after_its_delay_and_is_dead_at_last() -> None:
    cluster, times = await started(queues=1, sent=1), list[float]()

    async def fail(message: Message) -> None:
        times.append(asyncio.get_running_loop().time())
        raise OSError("the bank is away")

    member = await cluster.member(popped(fail, retries=2)).start()
    await eventually(lambda: bool(cluster.bodies("%DLQ%group")), seconds=120)
    await eventually(lambda: left(cluster) == 0)
    gaps = [after - before for before, after in itertools.pairwise(times)]
    assert [round(gap) for gap in gaps] == [10, 30]
    assert [event.delay for event in member.events.of(Retried) if isinstance(event, Retried)] == [10, 30]
    counters = member.consumer.counters
    assert (counters.handled, counters.retried, counters.dead_lettered) == (0, 2, 1)
    assert await member.stop()


@in_virtual_time
async def test_a_parked_message_stays_hidden_and_starts_again_with_the_same_attempt_and_no_worker() -> None:
    cluster, called = await started(queues=1, sent=2), list[tuple[bytes, int, float]]()

    async def park(message: Message) -> Park | None:
        called.append((message.body, message.attempt, round(asyncio.get_running_loop().time() - began)))
        return Park(40.0, "another copy") if message.body == b"0" and len(called) < 3 else None

    began = asyncio.get_running_loop().time()
    member = await cluster.member(popped(park, retries=0, concurrency=1), config=TIMES).start()
    await eventually(lambda: len(called) == 3, seconds=120)
    assert sorted(called) == [(b"0", 1, 0), (b"0", 1, 40), (b"1", 1, 0)]
    await eventually(lambda: left(cluster) == 0, seconds=20)
    assert not member.events.of(Retried)
    assert await member.stop()


@in_virtual_time
async def test_a_dead_letter_is_stored_before_its_message_is_acknowledged() -> None:
    cluster = await started(queues=1, sent=1)

    async def refuse(message: Message) -> None:
        raise DeadLetter("no")

    cluster.refuse(RequestCode.SEND_MESSAGE_V2)
    cluster.refuse(RequestCode.CONSUMER_SEND_MSG_BACK)
    member = await cluster.member(popped(refuse), config=TIMES).start()
    await asyncio.sleep(60)
    assert (left(cluster), cluster.acks) == (1, []), "it stays hidden, and is not acknowledged"
    cluster.behave()
    await eventually(lambda: left(cluster) == 0, seconds=60)
    assert cluster.bodies("%DLQ%group") == [b"0"]
    assert await member.stop()


@in_virtual_time
async def test_a_stop_finishes_what_runs_and_gives_the_rest_back_at_once() -> None:
    cluster, slow, seen = await started(queues=1, sent=10), Seen(takes=3.0), Seen()
    member = await cluster.member(popped(slow, concurrency=2)).start()
    await eventually(lambda: len(slow) == 2)
    began = asyncio.get_running_loop().time()
    assert await member.stop()
    assert asyncio.get_running_loop().time() - began < 4
    assert sorted(slow.done) == [b"0", b"1"]
    other = await cluster.member(popped(seen), config=replace(TIMES, long_poll=2.0)).start()
    await eventually(lambda: len(seen) == 8, seconds=20)
    assert sorted(seen) == [(str(number).encode(), 1) for number in range(2, 10)]
    assert await other.stop()


@in_virtual_time
async def test_an_acknowledgement_that_is_not_answered_is_sent_again_and_said() -> None:
    cluster, seen = await started(queues=1, sent=5), Seen()
    cluster.ignore(RequestCode.BATCH_ACK_MESSAGE)
    member = await cluster.member(popped(seen)).start()
    await eventually(lambda: bool(member.events.of(QueueBlocked)), seconds=20)
    assert any(
        "5 handled messages cannot be acknowledged" in one for one in member.consumer.snapshot().blocked.values()
    )
    cluster.behave()
    await eventually(lambda: left(cluster) == 0, seconds=20)
    await asyncio.sleep(120)
    assert len(seen) == 5
    assert await member.stop()


@in_virtual_time
async def test_a_broker_without_batches_gets_one_acknowledgement_for_each_message() -> None:
    cluster, seen = await started(queues=1, sent=40), Seen()
    cluster.refuse(RequestCode.BATCH_ACK_MESSAGE, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
    member = await cluster.member(popped(seen)).start()
    await eventually(lambda: len(seen) == 40 and left(cluster) == 0)
    assert len(cluster.requests(RequestCode.BATCH_ACK_MESSAGE)) == 1
    assert await member.stop()


@in_virtual_time
async def test_a_pause_keeps_what_is_in_hand_hidden_and_asks_for_nothing_more() -> None:
    cluster, seen = await started(queues=1, sent=100), Seen(takes=0.5)
    member = await cluster.member(popped(seen, concurrency=1), config=TIMES).start()
    await eventually(lambda: len(seen) == 1)
    member.consumer.pause("topic", "later")
    await asyncio.sleep(60)
    assert len(seen) == 1
    pops = len(cluster.requests(RequestCode.POP_MESSAGE))
    member.consumer.resume("topic")
    await eventually(lambda: len(seen.done) == 100, seconds=120)
    assert {attempt for _, attempt in seen} == {1}
    assert pops <= 4
    assert await member.stop()


@in_virtual_time
async def test_a_paused_topic_is_not_idle_before_its_broker_was_asked_again() -> None:
    cluster, seen = await started(queues=1), Seen()
    member = await cluster.member(popped(seen)).start()
    await asyncio.sleep(30)
    assert (await member.consumer.idle()).reasons == ()
    member.consumer.pause("topic", "for a while")
    await asyncio.sleep(60)
    cluster.send_many(MessageQueue("topic", "broker-a", 0), 1)
    (reason,) = (await member.consumer.idle()).reasons
    assert "its broker has not said that nothing is left" in reason
    member.consumer.resume("topic")
    assert (await member.consumer.idle()).reasons
    await eventually(lambda: seen.done == [b"0"], seconds=30)
    assert await member.stop()


@in_virtual_time
async def test_a_failed_message_hurries_the_pops_of_its_own_topic_alone() -> None:
    cluster = await started(queues=1, sent=1)
    cluster.create("quiet", queues=1)

    async def fail(message: Message) -> None:
        raise Retry(after=600)

    member = await cluster.member(popped(fail), popped(Seen(), topic="quiet")).start()
    await asyncio.sleep(60)
    hurried, quiet = (len(cluster.requests(RequestCode.POP_MESSAGE, topic=name)) for name in ("topic", "quiet"))
    assert quiet < 15 < hurried
    assert await member.stop()


@in_virtual_time
async def test_a_retry_that_another_member_gets_is_waited_for_until_it_would_be_late() -> None:
    cluster, seen = await started(queues=1, sent=1), Seen()

    async def fail(message: Message) -> None:
        raise Retry(after=5)

    member = await cluster.member(popped(fail)).start()
    await asyncio.sleep(1)
    member.consumer.pause("topic", "operator")
    other = await cluster.member(popped(seen), config=replace(TIMES, long_poll=2.0)).start()
    await eventually(lambda: len(seen) == 1, seconds=20)
    member.consumer.resume("topic")
    assert any("retry that was sent back" in reason for reason in (await member.consumer.idle()).reasons)
    assert await other.stop()
    await asyncio.sleep(LATE + 5)
    assert (await member.consumer.idle()).reasons == ()
    asked = len(cluster.requests(RequestCode.POP_MESSAGE, topic="topic"))
    await asyncio.sleep(60)
    assert len(cluster.requests(RequestCode.POP_MESSAGE, topic="topic")) - asked < 15, "pops are not hurried any more"
    assert await member.stop()


@in_virtual_time
async def test_of_failed_messages_with_one_id_the_one_that_comes_last_is_waited_for() -> None:
    """Brokers up to 5.3.3 give the messages of a batch one id."""
    cluster, handled = await started(queues=1), list[bytes]()
    for seconds in (b"60", b"5"):
        cluster.send(MessageQueue("topic", "broker-a", 0), seconds, UNIQ_KEY="7F0001")

    async def fail_once(message: Message) -> None:
        if message.attempt == 1:
            raise Retry(after=float(message.body))
        handled.append(message.body)

    member = await cluster.member(popped(fail_once)).start()
    await eventually(lambda: handled == [b"5"], seconds=20)
    await asyncio.sleep(10)
    assert any("retry that was sent back" in reason for reason in (await member.consumer.idle()).reasons)
    await eventually(lambda: handled == [b"5", b"60"], seconds=60)
    await asyncio.sleep(3)
    assert (await member.consumer.idle()).reasons == ()
    assert await member.stop()


@pytest.mark.parametrize("after", [1.0, 60.0])
@in_virtual_time
async def test_retry_after_rounds_up_to_the_levels_that_all_handlers_have(after: float) -> None:
    cluster, times = await started(queues=1), list[float]()
    cluster.send(MessageQueue("topic", "broker-a", 0), b"0", UNIQ_KEY="7F0001")

    async def once(message: Message) -> None:
        times.append(asyncio.get_running_loop().time())
        if message.attempt == 1:
            raise Retry(after=after)

    member = await cluster.member(popped(once)).start()
    await eventually(lambda: len(times) == 1)
    await asyncio.sleep(0.5)
    report = await member.consumer.idle()
    assert any("retry that was sent back" in reason for reason in report.reasons)
    await eventually(lambda: len(times) == 2, seconds=90)
    assert after - 0.01 <= times[1] - times[0] <= after + 2
    await asyncio.sleep(2)
    assert (await member.consumer.idle()).reasons == (), "it has come, and nothing else is due"
    assert await member.stop()


@in_virtual_time
async def test_a_popped_topic_and_a_pulled_one_live_in_one_group() -> None:
    cluster, one, other = await started(queues=1, sent=5), Seen(), Seen()
    (queue,) = cluster.create("pulled", queues=1)
    cluster.send_many(queue, 5)
    member: Member = await cluster.member(popped(one), consumed(other, topic="pulled")).start()
    await eventually(lambda: (len(one), len(other)) == (5, 5))
    assert await member.stop()
    assert cluster.committed(queue) == 5
    assert left(cluster) == 0


@in_virtual_time
async def test_nothing_is_left_of_what_is_done_while_messages_of_another_handler_wait_for_long() -> None:
    cluster, over, quick = await started(queues=1), asyncio.Event(), Seen()
    queue = MessageQueue("topic", "broker-a", 0)

    async def hangs(_: Message) -> None:
        await over.wait()

    def runs() -> int:
        gc.collect()
        return sum(type(each) is FreeRun for each in gc.get_objects())

    slow = Handler(subscription("hangs", tags="slow", mode="pop", concurrency=1), hangs)
    member = await cluster.member(
        consumed_by(slow, Handler(subscription("quick", tags="quick", mode="pop"), quick)), config=TIMES
    ).start()
    cluster.send_many(queue, 3, TAGS="slow")
    await asyncio.sleep(1)
    before = runs()
    for _ in range(500):
        cluster.send_many(queue, 1, TAGS="quick")
        await asyncio.sleep(0.1)
    assert len(quick) == 500
    assert runs() < before + 10
    over.set()
    assert await member.stop()
