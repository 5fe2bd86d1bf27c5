"""One worker walks through the messages of several keyed handlers."""

from __future__ import annotations

import asyncio
from typing import Any

from rocketapp.consumer.handler import Handler
from rocketapp.consumer.modes.in_order import InOrderMode
from rocketapp.model.message_queue import MessageQueue
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.wire.record import Message
from tests.unit.consumer.fake_cluster import consumed_by, subscription
from tests.unit.consumer.modes.contexts import way_context
from tests.unit.consumer.modes.test_orderly_delivery import DeadLetters, ScriptedLock
from tests.unit.consumer.reports import QUEUE, message
from tests.unit.scripted import in_virtual_time

OTHER = MessageQueue("topic", "broker-a", 1)


def keyed_way(*handlers: Handler) -> InOrderMode:
    topic = consumed_by(*handlers)
    return InOrderMode([topic], way_context(topic.handlers, dead_letters=DeadLetters()), by_key=True)


def opened(mode: Any, queue: MessageQueue, *messages: Message) -> tuple[ProcessQueue[Message], Any]:
    process_queue: ProcessQueue[Message] = ProcessQueue(queue, 0)
    delivery = mode.open(process_queue, ScriptedLock())
    process_queue.put(messages)
    delivery.deliver(messages)
    return process_queue, delivery


def by_offset(message: Message) -> int:
    return message.offset


@in_virtual_time
async def test_a_handler_with_a_backlog_holds_up_no_other_one() -> None:
    called: list[str] = []
    loop: Any = asyncio.get_running_loop()

    async def busy(_: Message) -> None:
        loop.stand_still(0.001)
        called.append("busy")

    async def other(_: Message) -> None:
        called.append("other")

    mode = keyed_way(
        Handler(subscription("busy", tags="busy", order_by=by_offset), busy),
        Handler(subscription("other", tags="other", order_by=by_offset), other),
    )
    opened(mode, QUEUE, *(message(at, "busy") for at in range(1000)), message(1000, "other"))
    await asyncio.sleep(20)
    await mode.stop()
    assert called.index("other") < 100


@in_virtual_time
async def test_a_walk_that_waits_for_its_turn_exceeds_no_concurrency() -> None:
    running = most = 0
    loop: Any = asyncio.get_running_loop()

    async def one(_: Message) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(1)
        running -= 1

    async def computes(_: Message) -> None:
        loop.stand_still(0.006)

    mode = keyed_way(
        Handler(subscription("computes", tags="computes", order_by=by_offset), computes),
        Handler(subscription("one", tags="one", concurrency=1, order_by=by_offset), one),
    )
    # Two queues of both handlers, and one of `one` alone.
    opened(mode, QUEUE, *(message(at, "computes") for at in range(32)), message(32, "one"))
    opened(mode, OTHER, *(message(at, "computes", OTHER) for at in range(3)), message(32, "one", OTHER))
    third = MessageQueue("topic", "broker-a", 2)
    opened(mode, third, *(message(at, "one", third) for at in range(3)))
    await asyncio.sleep(60)
    await mode.stop()
    assert most == 1
