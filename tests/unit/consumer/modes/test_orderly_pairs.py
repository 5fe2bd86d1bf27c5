"""An orderly queue whose topic is paused again and again."""

from __future__ import annotations

import asyncio
from typing import Any

from rocketapp.consumer.handler import Handler
from rocketapp.consumer.modes.by_message import MessageMode
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.snapshot import HandlerStats
from rocketapp.state.pauses import Probe
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.wire.record import Message
from tests.unit.consumer.fake_cluster import consumed_by, subscription
from tests.unit.consumer.modes.contexts import DeadLetters, ScriptedLock, mode_context, under
from tests.unit.consumer.reports import QUEUE, message
from tests.unit.scripted import in_virtual_time

OTHER = MessageQueue("topic", "broker-a", 1)


@in_virtual_time
async def test_a_leave_of_an_earlier_pause_starts_nothing_in_a_later_one() -> None:
    called: list[tuple[int, int]] = []

    async def call(message: Message) -> None:
        called.append((message.queue.queue_id, message.offset))
        await asyncio.sleep(10)

    topic = consumed_by(Handler(subscription(orderly=True, concurrency=1), call))
    context = mode_context(topic.handlers, dead_letters=DeadLetters())
    mode = MessageMode([topic], context, in_order=True)
    pauses = context.member.pauses

    def opened(queue: MessageQueue, *messages: Message) -> Any:
        process_queue: ProcessQueue[Message] = ProcessQueue(queue, 0)
        delivery = mode.open(under(ScriptedLock(), process_queue))
        process_queue.put(messages)
        delivery.deliver(messages)
        return delivery

    opened(QUEUE, message(0))
    await asyncio.sleep(1)
    assert called == [(0, 0)]  # it has the only call until second 10
    pauses.pause("topic", "breaker")
    opened(OTHER, message(0, queue=OTHER))
    await asyncio.sleep(1)
    pauses.probe("topic", "breaker", Probe("handler", HandlerStats()))
    await asyncio.sleep(1)
    pauses.resume("topic")
    pauses.pause("topic", "operator")
    await asyncio.sleep(30)
    assert pauses.is_paused("topic")
    assert called == [(0, 0)]
    await mode.callers.stop()
