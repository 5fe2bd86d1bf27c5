"""What becomes of works that nobody has started when their queue is given up."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from rocketapp.consumer.handler import Handler
from rocketapp.consumer.stats import GroupStats
from rocketapp.consumer.ways.concurrent import ConcurrentWay
from rocketapp.model.message_queue import MessageQueue
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.wire.properties import encode
from rocketapp.wire.record import Message, Record, decode_records, encode_record
from tests.unit.consumer.fake_cluster import consumed_by, subscription
from tests.unit.scripted import Events, in_virtual_time

QUEUE = MessageQueue("topic", "broker-a", 0)


def message(offset: int, tag: str) -> Message:
    record = Record("topic", b"body", raw_properties=encode({"TAGS": tag}), queue_offset=offset)
    return decode_records(encode_record(record), QUEUE)[0]


@in_virtual_time
async def test_what_lies_below_a_started_message_is_finished_but_not_when_all_is_discarded() -> None:
    called: list[int] = []

    async def slow(message: Message) -> None:
        called.append(message.offset)
        await asyncio.sleep(1)

    async def quick(message: Message) -> None:
        called.append(message.offset)

    handlers = [
        Handler(subscription("slow", tags="slow", concurrency=1), slow),
        Handler(subscription("quick", tags="quick"), quick),
    ]
    topic = consumed_by(*handlers)
    concurrently = ConcurrentWay(
        [topic], stats=GroupStats(topic.handlers), redelivery=cast(Any, None), observe=Events()
    )
    queue: ProcessQueue[Message] = ProcessQueue(QUEUE, 0)
    delivery = concurrently.open(queue)
    messages = [message(offset, "slow" if offset < 9 else "quick") for offset in range(10)]
    queue.put(messages)
    delivery.deliver(messages)
    await asyncio.sleep(0.5)
    assert sorted(called) == [0, 9]
    delivery.end()
    await asyncio.sleep(2)
    assert sorted(called) == [0, 1, 2, 9]
    delivery.discard()
    await asyncio.sleep(5)
    assert sorted(called) == [0, 1, 2, 9]
    await concurrently.stop()
