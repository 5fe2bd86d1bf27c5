"""A keyed message that asked for a pause after its call was suspended is called again."""

from __future__ import annotations

import asyncio

from rocketapp.consumer.handler import Handler
from rocketapp.consumer.modes.by_message import MessageMode
from rocketapp.model.outcome import Pause
from rocketapp.wire.record import Message
from tests.unit.consumer.fake_cluster import consumed_by, subscription
from tests.unit.consumer.modes.contexts import DeadLetters, mode_context, opened
from tests.unit.consumer.reports import QUEUE, message
from tests.unit.scripted import in_virtual_time


@in_virtual_time
async def test_a_message_of_a_mixed_walk_that_pauses_its_topic_is_called_again_after_the_pause() -> None:
    called: list[int] = []

    async def pauses(message: Message) -> Pause | None:
        called.append(message.offset)
        await asyncio.sleep(1)
        return Pause("database away") if called.count(0) == 1 else None

    async def other(_: Message) -> None: ...

    topic = consumed_by(
        Handler(subscription("pauses", tags="pauses", order_by=lambda message: message.offset), pauses),
        Handler(subscription("other", tags="other", order_by=lambda message: message.offset), other),
    )
    context = mode_context(topic.handlers, dead_letters=DeadLetters())
    mode = MessageMode([topic], context, in_order=True)
    queue, _ = opened(mode, QUEUE, message(0, "pauses"), message(1, "other"))
    await asyncio.sleep(5)
    assert called == [0]
    assert context.member.pauses.is_paused("topic")
    context.member.pauses.resume("topic")
    await asyncio.sleep(3600)
    assert called == [0, 0]
    assert queue.commit_offset == 2
    await mode.callers.stop()


@in_virtual_time
async def test_the_same_with_one_handler_whose_other_worker_has_emptied_the_lane() -> None:
    called: list[int] = []

    async def pauses(message: Message) -> Pause | None:
        called.append(message.offset)
        await asyncio.sleep(1 if message.offset == 0 else 0.5)
        return Pause("database away") if message.offset == 0 and called.count(0) == 1 else None

    topic = consumed_by(Handler(subscription(concurrency=2, order_by=lambda message: message.offset), pauses))
    context = mode_context(topic.handlers, dead_letters=DeadLetters())
    mode = MessageMode([topic], context, in_order=True)
    opened(mode, QUEUE, message(0), message(1))
    await asyncio.sleep(5)
    context.member.pauses.resume("topic")
    await asyncio.sleep(3600)
    assert called == [0, 1, 0]
    await mode.callers.stop()
