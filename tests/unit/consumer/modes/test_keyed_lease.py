"""A keyed queue goes on after its lease was uncertain for a moment."""

from __future__ import annotations

import asyncio
from typing import Any

from rocketapp.consumer.handler import Handler
from rocketapp.consumer.modes.by_message import MessageMode
from rocketapp.model.message_queue import MessageQueue
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.wire.record import Message
from tests.unit.consumer.fake_cluster import consumed_by, subscription
from tests.unit.consumer.modes.contexts import DeadLetters, ScriptedLock, mode_context
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

    def opened(queue: MessageQueue) -> tuple[Any, Any, ScriptedLock]:
        process_queue: ProcessQueue[Message] = ProcessQueue(queue, 0)
        lock = ScriptedLock()
        return process_queue, mode.open(process_queue, lock), lock

    def deliver(process_queue: Any, delivery: Any, *messages: Message) -> None:
        process_queue.put(messages)
        delivery.deliver(messages)

    other, of_other, _ = opened(OTHER)
    queue, of_queue, lock = opened(QUEUE)
    deliver(other, of_other, message(0, queue=OTHER))
    await asyncio.sleep(1)
    deliver(queue, of_queue, message(0))  # it waits for the only call
    await asyncio.sleep(1)
    lock.suspend()  # the connection to its broker was lost
    deliver(other, of_other, message(1, queue=OTHER))
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
    queue: ProcessQueue[Message] = ProcessQueue(QUEUE, 0)
    lock = ScriptedLock()
    delivery = mode.open(queue, lock)
    queue.put([message(0)])
    delivery.deliver([message(0)])
    await asyncio.sleep(1)
    lock.suspend()
    await asyncio.sleep(0.1)
    context.member.pauses.resume("topic")
    await asyncio.sleep(0.1)
    lock.decide(usable=True)
    await asyncio.sleep(3600)
    assert called == [0]
    await mode.callers.stop()
