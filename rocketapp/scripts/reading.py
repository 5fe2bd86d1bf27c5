"""Read a topic as its messages come: outside of any group, or as a member of one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, TypedDict

from rocketapp.app.declare.options import option_problem, options_given, tags_said, topic_name_problem
from rocketapp.app.run.extensions import named
from rocketapp.app.settings import Settings
from rocketapp.client.instance import ClientInstance
from rocketapp.clock import Clock
from rocketapp.consumer.handler import ConsumedTopic, Handler
from rocketapp.consumer.member import Member
from rocketapp.consumer.pull.flow import FlowControl
from rocketapp.consumer.push_consumer import PushConsumer
from rocketapp.errors import SetupError
from rocketapp.model.event import Event, LoopFailed, QueueBlocked, SubscriptionsDiffer, TopicMissing
from rocketapp.model.subscription import ALL_TAGS, Start, Subscription, SubscriptionData
from rocketapp.producer.producer import Producer
from rocketapp.scripts.following import Reading, Wanted
from rocketapp.wire.record import Message

log: logging.Logger = logging.getLogger("rocketapp.client")


class ReadOptions(TypedDict, total=False):
    """The keyword arguments of `messages`."""

    tags: str | Sequence[str]
    """`["paid", "refunded"]` or `"paid || refunded"`; `"*"` (default) is all of them."""
    start: Start
    """The oldest message of each queue ("first"), what comes from now on ("last", default), or what was stored at a
    time. In a group it is for queues of which the group has no offset."""
    idle: float | None
    """Seconds without a message after which the loop ends; None (default) goes on for ever."""
    group: str | None
    """The consumer group that reads; None (default): no group takes part, and nothing is committed."""


def wanted_of(topic: object, options: Mapping[str, Any], place: str) -> Wanted:
    """Raises SetupError for an argument that `messages` does not take."""
    given = options_given("messages", options, frozenset(ReadOptions.__annotations__), place)
    problems = (topic_name_problem(topic), *(option_problem(name, value) for name, value in given.items()))
    if (problem := next(filter(None, problems), None)) is not None:
        raise SetupError(place, f"messages: {problem}")
    expression, tags = tags_said(given.get("tags", ALL_TAGS))
    return Wanted(
        str(topic), expression, tags, given.get("start", "last"), given.get("idle"), given.get("group"), place
    )


def tell(event: Event) -> None:
    """Log what keeps a client from going on: a waiting script would not learn it otherwise."""
    if isinstance(event, QueueBlocked):
        log.warning("%s: %s", event.queue, event.reason)
    elif isinstance(event, LoopFailed):
        log.warning("%s: %s", event.loop, event.error)
    elif isinstance(event, TopicMissing):
        log.warning("topic %s does not exist yet: waiting for it", event.topic)
    elif isinstance(event, SubscriptionsDiffer):
        log.warning("group %s: %s", event.group, event.problem)


class AsMember(Reading):
    """A topic read by a member of a consumer group: what the loop is through with is committed.

    The loop stands for the group's handler. It has one message in flight: asking for the next one ends the handler's
    call. When the loop is left, that call is cancelled, and its message comes again: here, or to another member.
    """

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
        super().__init__(wanted.idle)
        self._offered: asyncio.Queue[tuple[Message, asyncio.Future[None]] | None] = asyncio.Queue()
        self._in_flight: asyncio.Future[None] | None = None
        self._is_joined, self._stopping = False, asyncio.Lock()
        subscription = Subscription(
            topic=wanted.topic,
            group=group,
            tags=wanted.tags,
            expression=wanted.expression,
            concurrency=1,
            retries=settings.consumer.retries,
            start=wanted.start,
            is_async=True,
            handler_name="Client.messages",
            place=wanted.place,
        )
        handler = Handler(subscription, self._offer)
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
        self._consumer = PushConsumer(member, send_raw=producer.send_raw, flow_control=flow_control)

    async def start(self) -> None:
        self._is_joined = True
        try:
            await self._consumer.join()
        except BaseException:
            await self.stop()
            raise
        self._consumer.begin()

    async def _next(self) -> list[Message]:
        if self._in_flight is not None and not self._in_flight.done():
            self._in_flight.set_result(None)
        while (offered := await self._offered.get()) is not None:
            message, self._in_flight = offered
            if not self._in_flight.done():  # else its queue went to another member
                return [message]
        return []

    async def stop(self) -> None:
        self._offered.put_nowait(None)
        async with self._stopping:  # a loop that is left and its client, which closes the connections after that
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
