"""Pulls that wait for room, and what makes room."""

from __future__ import annotations

import asyncio

from rocketapp.config.consumer import ConsumerConfig
from rocketapp.consumer.member import Member
from rocketapp.consumer.pull.flow import FlowControl, QueueFlow
from rocketapp.model.message_queue import MessageQueue
from rocketapp.state.flow_control import QueueLimits
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.wire.layout import Record, encode_record
from rocketapp.wire.record import Message, decode_records
from tests.unit.consumer.members import member_alone
from tests.unit.scripted import in_virtual_time


def message(queue: MessageQueue, offset: int, size: int) -> Message:
    return decode_records(encode_record(Record(queue.topic, bytes(size), queue_offset=offset)), queue)[0]


class Queue:
    """A queue whose pulls bring single messages."""

    def __init__(self, control: FlowControl, topic: str = "topic", number: int = 0, **options: int) -> None:
        self.process_queue: ProcessQueue[Message] = ProcessQueue(MessageQueue(topic, "broker-a", number), 0)
        config = ConsumerConfig(pull_batch_bytes=1024, **options)
        limits = QueueLimits(config.queue_max_messages, config.queue_max_bytes, config.queue_max_span)
        self.member: Member = member_alone(config=config)
        self.flow: QueueFlow = QueueFlow(control, self.member, self.process_queue, limits)

    def answered(self, size: int) -> bool:
        """A pull has brought one message; whether there was room for it."""
        only = message(self.process_queue.message_queue, self.process_queue.end_offset, size)
        if admitted := self.flow.answered(only.size):
            self.process_queue.put([only])
        return admitted

    def fill(self, size: int) -> int:
        """Pull until there is no room; how many messages are held."""
        while self.flow.may_pull():
            assert self.answered(size)
        return len(self.process_queue)

    def finish(self, count: int = 1) -> None:
        self.process_queue.finish_all(self.process_queue.unfinished()[:count])


async def settled() -> None:
    """What was scheduled for the next turns of the loop has run."""
    for _ in range(5):
        await asyncio.sleep(0)


@in_virtual_time
async def test_a_queue_at_its_own_limit_goes_on_when_a_quarter_of_it_is_finished() -> None:
    queue = Queue(FlowControl(1 << 20), queue_max_messages=8)
    assert queue.fill(10) == 8
    waiting = asyncio.ensure_future(queue.flow.room())
    await settled()
    queue.finish(2)
    await settled()
    assert not waiting.done()
    queue.finish()
    await settled()
    assert waiting.done()


@in_virtual_time
async def test_a_queue_that_is_not_pulled_any_more_is_not_said_to_wait_for_room() -> None:
    queue = Queue(FlowControl(1 << 20), queue_max_messages=8)
    queue.fill(10)
    pulling = asyncio.ensure_future(queue.flow.passed())
    await settled()
    (reason,) = queue.member.blocked.reasons().values()
    assert reason == "flow control: 8 unfinished messages, limit queue_max_messages 8"
    pulling.cancel()
    queue.finish(7)
    await settled()
    assert queue.member.blocked.reasons() == {}


@in_virtual_time
async def test_a_hung_topic_holds_half_of_the_budget_and_another_one_goes_on() -> None:
    control = FlowControl(100_000)
    hung, alive = Queue(control, "hung"), Queue(control, "alive")
    hung.fill(1000)
    assert 48_000 <= hung.process_queue.size <= 52_000
    waiting = asyncio.ensure_future(hung.flow.room())
    for _ in range(1000):
        assert alive.flow.may_pull()
        assert alive.answered(1000)
        alive.finish()
    assert not waiting.done()
    waiting.cancel()


@in_virtual_time
async def test_a_queue_without_room_goes_on_at_once_when_one_that_waits_has_finished_messages() -> None:
    control = FlowControl(10_000)
    full, empty = Queue(control, number=0), Queue(control, number=1)
    full.fill(1000)
    waiting = [asyncio.ensure_future(each.flow.room()) for each in (full, empty)]
    await settled()
    full.finish()
    await settled()
    # There is room for one pull, and the queue that came first gets it.
    assert [each.done() for each in waiting] == [True, False]
    waiting[1].cancel()


@in_virtual_time
async def test_bytes_that_a_silent_queue_finished_are_found_within_a_tenth_of_a_second() -> None:
    control = FlowControl(10_000)
    silent, waits = Queue(control, number=0), Queue(control, number=1)
    silent.fill(1000)
    waiting = asyncio.ensure_future(waits.flow.room())
    await asyncio.sleep(1)
    assert not waiting.done()
    silent.finish(5)
    async with asyncio.timeout(0.1):
        await waiting


@in_virtual_time
async def test_what_was_given_up_makes_room() -> None:
    control = FlowControl(10_000)
    gone, waits = Queue(control, number=0), Queue(control, number=1)
    gone.fill(1000)
    waiting = asyncio.ensure_future(waits.flow.room())
    await settled()
    gone.flow.close()
    await settled()
    assert waiting.done()


@in_virtual_time
async def test_pulls_that_brokers_hold_leave_their_room_to_others() -> None:
    control = FlowControl(10_240)
    queues = [Queue(control, number=number) for number in range(50)]
    async with asyncio.timeout(10):
        rooms = await asyncio.gather(*(each.flow.room() for each in queues))
    assert len(rooms) == 50


@in_virtual_time
async def test_a_queue_that_waited_in_vain_leaves_nothing_behind() -> None:
    control = FlowControl(10_000)
    full, waits, alive = Queue(control, number=0), Queue(control, number=1), Queue(control, "alive")
    full.fill(1000)
    waiting = asyncio.ensure_future(waits.flow.room())
    await settled()
    full.finish(5)
    waits.flow.close()
    waiting.cancel()
    await asyncio.wait([waiting])
    full.flow.close()
    alive.fill(1000)
    assert alive.process_queue.size >= 5000
    assert control.budget.used == alive.process_queue.size
