"""Request-reply: requests that wait for their reply.

A reply comes from the broker that the replier sent it to, over a connection whose heartbeat named this client. That may
be any broker of the cluster, so all of them are connected before the first request is sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random

from rocketapp.client.instance import ClientInstance
from rocketapp.errors import NoReply, TransportError
from rocketapp.model.event import LoopFailed
from rocketapp.model.route import MASTER_ID, TopicRoute
from rocketapp.producer.targets import Targets
from rocketapp.transport.connection import Connection
from rocketapp.wire import properties as names
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import Command
from rocketapp.wire.layout import encode_record
from rocketapp.wire.record import Message, decode_records
from rocketapp.wire.requests.replies import PushReply, reply_topic, request_marks


@dataclass(frozen=True, slots=True)
class AwaitedReply:
    """One request, from before it is sent until its reply has arrived."""

    topic: str
    marks: Mapping[str, str]
    """The properties that make a message this request."""
    deadline: float
    """By the event loop's clock."""
    timeout: float
    _reply: asyncio.Future[Message]

    async def reply(self, message_id: str, keys: Sequence[str]) -> Message:
        """The reply to the message that was sent with these marks. Raises NoReply when it does not come in time."""
        try:
            async with asyncio.timeout_at(self.deadline):
                return await self._reply
        except TimeoutError:
            raise NoReply(self.topic, self.timeout, message_id, keys) from None


class Requests:
    """The waiting requests of one client."""

    def __init__(self, client: ClientInstance, targets: Targets, *, random: Random, max_inflated_bytes: int) -> None:
        self._client, self._targets, self._observe, self._random = client, targets, client.observe, random
        self._max_inflated_bytes = max_inflated_bytes
        self._waiting: dict[str, asyncio.Future[Message]] = {}
        self._unreached: set[str] = set()
        """Brokers that a request has waited for in vain: while they are away no other one waits for them."""

    @contextmanager
    def waiting(self, topic: str, *, timeout: float, deadline: float) -> Iterator[AwaitedReply]:
        """Context manager in which a reply is accepted until `deadline` (loop time).

        `timeout`: seconds, for the error.
        """
        self._client.inbound[RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT] = self._serve
        loop = asyncio.get_running_loop()
        correlation_id = f"{self._random.getrandbits(128):032x}"
        future: asyncio.Future[Message] = loop.create_future()
        self._waiting[correlation_id] = future
        marks = request_marks(correlation_id, self._client.client_id, deadline - loop.time())
        try:
            yield AwaitedReply(topic, marks, deadline, timeout, future)
        finally:
            del self._waiting[correlation_id]

    async def ready(self, topic: str, timeout: float) -> None:
        """Connect the brokers from which a reply may come, as far as they are reached within `timeout` seconds.

        A broker that is away is waited for once: the client dials it until it is back.
        """
        try:
            async with asyncio.timeout(timeout):
                route = await self._route(topic)
                clusters = {} if route is None else dict.fromkeys(broker.cluster for broker in route.brokers)
                routes = [route, *[await self._route(reply_topic(cluster)) for cluster in clusters]]
                missing = {
                    address
                    for found in routes
                    if found is not None
                    for broker in found.brokers
                    if (address := broker.addresses.get(MASTER_ID)) and not self._client.living_connection(address)
                }
                await self._reach(missing)
        except (TimeoutError, TransportError):
            # The request may be answered all the same: the send says what is wrong with the broker that it needs.
            return

    async def _reach(self, missing: set[str]) -> None:
        self._unreached &= missing
        try:
            dials = map(self._client.connection, missing - self._unreached)
            await asyncio.gather(*dials, return_exceptions=True)
        finally:
            self._unreached.update(each for each in missing if not self._client.living_connection(each))

    async def _route(self, topic: str) -> TopicRoute | None:
        self._targets.watch(topic)
        # Every request waits for it, not the first one alone: a reply may come before the others are connected.
        return self._client.routes.get(topic) or await self._client.routes.fetch(topic)

    def _serve(self, connection: Connection, request: Command) -> Command:
        """A broker delivers a reply. One that is too late is dropped, and answered as a success all the same."""
        push = PushReply.from_fields(request.fields)
        (message,) = decode_records(
            encode_record(push.record(request.body)), None, max_inflated_bytes=self._max_inflated_bytes
        )
        correlation_id = message.properties.get(names.CORRELATION_ID, "")
        future = self._waiting.get(correlation_id)
        if future is None or future.done():
            # The same words each time, so that the log tells a slow handler once and not for each of its replies.
            self._observe(LoopFailed("requests", "a reply came too late and was dropped: its request had ended"))
        else:
            future.set_result(message)
        return Command.response(request, ResponseCode.SUCCESS)
