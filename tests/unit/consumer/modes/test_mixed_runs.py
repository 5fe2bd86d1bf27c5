"""One worker walks through messages of several handlers."""

from __future__ import annotations

import asyncio
from typing import Any

from rocketapp.consumer.handler import Handler
from rocketapp.model.message_queue import MessageQueue
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.wire.record import Message
from tests.unit.consumer.fake_cluster import consumed_by, subscription
from tests.unit.consumer.modes.test_concurrent import dropping
from tests.unit.consumer.reports import QUEUE, message
from tests.unit.scripted import in_virtual_time

OTHER = MessageQueue("topic", "broker-a", 1)


def opened(mode: Any, queue: MessageQueue, *messages: Message) -> tuple[ProcessQueue[Message], Any]:
    process_queue: ProcessQueue[Message] = ProcessQueue(queue, 0)
    delivery = mode.open(process_queue)
    process_queue.put(messages)
    delivery.deliver(messages)
    return process_queue, delivery


@in_virtual_time
async def test_a_run_that_waits_for_its_turn_exceeds_no_concurrency() -> None:
    """concurrency=1: two calls of `one` at once."""
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

    handlers = [
        Handler(subscription("one", tags="one", concurrency=1), one),
        Handler(subscription("computes", tags="computes", concurrency=8), computes),
    ]
    topic = consumed_by(*handlers)
    mode = dropping([topic], topic.handlers)
    opened(mode, QUEUE, *(message(at, "computes") for at in range(32)), message(32, "one"))
    # In the same moment a pull of another queue brings messages for `one` alone.
    opened(mode, OTHER, *(message(at, "one", OTHER) for at in range(3)))
    await asyncio.sleep(20)
    await mode.stop()
    assert most == 1


@in_virtual_time
async def test_a_handler_that_cancels_its_task_fails_no_message_of_another() -> None:
    async def cancels(_: Message) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()

    failed: list[int] = []
    done: list[int] = []

    async def other(message: Message) -> None:
        try:
            await asyncio.sleep(0.01)
        except BaseException:
            failed.append(message.offset)
            raise
        done.append(message.offset)

    handlers = [
        Handler(subscription("cancels", tags="cancels", concurrency=8), cancels),
        Handler(subscription("other", tags="other", concurrency=8), other),
    ]
    topic = consumed_by(*handlers)
    mode = dropping([topic], topic.handlers)
    opened(mode, QUEUE, message(0, "cancels"), message(1, "other"), message(2, "other"))
    await asyncio.sleep(5)
    await mode.stop()
    assert failed == []
    assert done == [1, 2]
