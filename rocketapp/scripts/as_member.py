"""Read a topic as a member of a consumer group: what the loop is through with is committed.

The loop stands for the group's handler. It has one message in hand: asking for the next one ends the handler's call.
When the loop is left, that call is cancelled, and its message comes again: here, or to another member.
"""

from __future__ import annotations

import asyncio
from random import Random

from rocketapp.app.run.extensions import named
from rocketapp.app.settings import Settings
from rocketapp.client.instance import ClientInstance
from rocketapp.clock import Clock
from rocketapp.consumer.handler import ConsumedTopic, Handler
from rocketapp.consumer.member import Member
from rocketapp.consumer.pull.flow import FlowControl
from rocketapp.consumer.push_consumer import PushConsumer
from rocketapp.model.subscription import Subscription, SubscriptionData
from rocketapp.producer.producer import Producer
from rocketapp.scripts.reading import Wanted
from rocketapp.wire.record import Message


class AsMember:
    """One topic, read by a member of a group; see `reading.Reading`."""

    def __init__(
        self,
        client: ClientInstance,
        producer: Producer,
        settings: Settings,
        wanted: Wanted,
        group: str,
        *,
        clock: Clock,
        random: Random,
    ) -> None:
        self._idle = wanted.idle
        self._offered: asyncio.Queue[tuple[Message, asyncio.Future[None]] | None] = asyncio.Queue()
        self._in_hand: asyncio.Future[None] | None = None
        self._is_joined = False
        handler = Handler(_subscription(wanted, group, settings.consumer.retries), self._offer)
        data = SubscriptionData(wanted.topic, " || ".join(sorted(wanted.tags)) or "*", wanted.tags)
        topic = ConsumedTopic(wanted.topic, wanted.start, settings.consumer.retries, (handler,), data)
        topics: tuple[ConsumedTopic, ...] = (topic,)
        if producer.traces is not None:
            from rocketapp.consumer.traced import traced

            topics = traced(topics, group, producer.traces, random)
        member = Member(
            group,
            topics,
            client=client,
            config=settings.consumer,
            clock=clock,
            random=random,
            allocation=named(settings.consumer),
            max_inflated_bytes=settings.client.max_inflated_bytes,
        )
        flow_control = FlowControl(settings.consumer.cache_max_bytes)
        self._consumer = PushConsumer(member, sender=producer, flow_control=flow_control)

    async def start(self) -> None:
        self._is_joined = True
        try:
            await self._consumer.join()
        except BaseException:
            await self.stop()
            raise
        self._consumer.begin()

    async def next(self) -> list[Message]:
        try:
            async with asyncio.timeout(self._idle):
                while (offered := await self._offered.get()) is not None:
                    message, done = offered
                    if not done.done():  # else its queue went to another member
                        self._in_hand = done
                        return [message]
        except TimeoutError:
            pass
        return []

    def done(self, message: Message) -> None:
        """`message` is the one that `next` gave last."""
        if self._in_hand is not None and not self._in_hand.done():
            self._in_hand.set_result(None)

    async def stop(self) -> None:
        self._offered.put_nowait(None)
        if self._is_joined:
            self._is_joined = False
            cut = asyncio.Event()
            cut.set()
            await self._consumer.stop(drain_timeout=0.0, cut=cut)

    async def _offer(self, message: Message) -> None:
        """The handler of the group."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._offered.put_nowait((message, done))
        await done


def _subscription(wanted: Wanted, group: str, retries: int) -> Subscription:
    return Subscription(
        topic=wanted.topic,
        group=group,
        tags=wanted.tags,
        expression=wanted.expression,
        orderly=False,
        batch=None,
        batch_wait=0.1,
        concurrency=1,
        retries=retries,
        start=wanted.start,
        timeout=None,
        cluster="",
        is_async=True,
        handler_name="Client.messages",
        place=wanted.place,
    )
