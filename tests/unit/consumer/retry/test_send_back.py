"""Failed messages on their way back to one broker."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from rocketapp.config.consumer import ConsumerConfig
from rocketapp.consumer.handler import Handler
from rocketapp.consumer.retry.redelivery import Redelivery
from rocketapp.errors import ConnectionLostError
from rocketapp.model.message_queue import MessageQueue
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.state.redelivery import Failure
from rocketapp.wire.layout import Record, encode_record
from rocketapp.wire.record import Message, decode_records
from tests.unit.consumer.fake_cluster import subscription
from tests.unit.consumer.members import member_alone
from tests.unit.scripted import eventually, in_virtual_time

QUEUE = MessageQueue("topic", "broker-a", 0)


def message(offset: int) -> Message:
    return decode_records(encode_record(Record("topic", b"body", queue_offset=offset)), QUEUE)[0]


class ComesBackSoon:
    """A broker that cannot be reached for half a second."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._back_at = self._loop.time() + 0.5

    async def send_back(self, *_: object, **__: object) -> None:
        await asyncio.sleep(0.01)
        if self._loop.time() < self._back_at:
            raise ConnectionLostError("127.0.0.1:10911", "closed by the peer")


class NoSender:
    """What it would do is forbidden to a group with locks."""


@in_virtual_time
async def test_many_failures_at_one_moment_count_as_one_outage_of_their_broker() -> None:
    in_order = Handler(subscription(orderly=True), lambda _: None)
    member = member_alone([in_order], brokers=ComesBackSoon(), config=ConsumerConfig(send_back_timeout=1.0))
    redelivery = Redelivery(member, cast(Any, NoSender()))
    queue: ProcessQueue[Message] = ProcessQueue(QUEUE, 0)
    handler = Handler(subscription(), lambda _: None)
    messages = [message(offset) for offset in range(100)]
    queue.put(messages)
    for each in messages:
        redelivery.fail(handler, queue, each, Failure("ValueError", ""))
    await eventually(lambda: not len(queue), 2.0)
    await member.tasks.close()
