"""A keyed queue goes on after its lease was uncertain for a moment."""

from __future__ import annotations

import asyncio

from rocketapp.consumer.handler import Handler
from rocketapp.consumer.modes.by_message import MessageMode
from rocketapp.model.message_queue import MessageQueue
from rocketapp.wire.record import Message
from tests.unit.consumer.fake_cluster import consumed_by, subscription
from tests.unit.consumer.modes.contexts import DeadLetters, ScriptedLock, mode_context, opened
from tests.unit.consumer.reports import QUEUE, message
from tests.unit.scripted import in_virtual_time

OTHER = MessageQueue("topic", "broker-b", 0)


@in_virtual_time
async def test_a_keyed_queue_whose_lease_was_uncertain_while_all_calls_were_busy_goes_on() -> None:
    called: list[tuple[str, int]] = []

    async def call(message: Message) -> None:
        assert message.queue is not None
        called.append((message.queue.broker_name, message.offset))
        await asyncio.sleep(10)

    topic = consumed_by(Handler(subscription(concurrency=1, order_by=lambda message: message.offset), call))
    mode = MessageMode([topic], mode_context(topic.handlers, dead_letters=DeadLetters()), in_order=True)

    other, of_other = opened(mode, OTHER, message(0, queue=OTHER))
    await asyncio.sleep(1)
    queue, _ = opened(mode, QUEUE, message(0))  # it waits for the only call
    lock = queue.lease
    assert isinstance(lock, ScriptedLock)
    await asyncio.sleep(1)
    lock.run_out()  # the connection to its broker was lost
    of_other.deliver(other.put([message(1, queue=OTHER)]))
    await asyncio.sleep(1)
    lock.decide(usable=True)  # renewed a second later
    await asyncio.sleep(3600)
    assert sorted(called) == [("broker-a", 0), ("broker-b", 0), ("broker-b", 1)]
    await mode.callers.stop()


@in_virtual_time
async def test_a_keyed_queue_that_is_resumed_while_its_lease_is_uncertain_goes_on() -> None:
    called: list[int] = []

    async def call(message: Message) -> None:
        called.append(message.offset)

    topic = consumed_by(Handler(subscription(order_by=lambda message: message.offset), call))
    context = mode_context(topic.handlers, dead_letters=DeadLetters())
    mode = MessageMode([topic], context, in_order=True)
    context.member.pauses.pause("topic", "operator")
    queue, _ = opened(mode, QUEUE, message(0))
    lock = queue.lease
    assert isinstance(lock, ScriptedLock)
    await asyncio.sleep(1)
    lock.run_out()
    await asyncio.sleep(0.1)
    context.member.pauses.resume("topic")
    await asyncio.sleep(0.1)
    lock.decide(usable=True)
    await asyncio.sleep(3600)
    assert called == [0]
    await mode.callers.stop()


@in_virtual_time
async def test_messages_that_were_given_back_at_the_end_of_a_lease_start_at_once_if_it_was_granted_meanwhile() -> None:
    called: list[int] = []

    async def call(message: Message) -> None:
        called.append(message.offset)
        await asyncio.sleep(1)

    topic = consumed_by(Handler(subscription(concurrency=1, order_by=lambda message: message.offset), call))
    mode = MessageMode([topic], mode_context(topic.handlers, dead_letters=DeadLetters()), in_order=True)
    queue, delivery = opened(mode, QUEUE, message(0), message(1))
    await asyncio.sleep(0.5)
    (run,) = delivery.runs()
    run.starts_nothing = True  # as a worker says that sees the end of the lease
    await asyncio.sleep(5)
    assert (called, queue.commit_offset) == ([0, 1], 2)
    await mode.callers.stop()
