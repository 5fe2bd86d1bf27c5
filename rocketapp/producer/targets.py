"""The queues that a topic can be sent to, also before the topic exists.

A missing topic is sent to the brokers of the default topic, which create it. Until a name server has its route, those
queues are used; subscribers are told at once to look for the new topic.
"""

from __future__ import annotations

import asyncio

from rocketapp.client.instance import ClientInstance
from rocketapp.errors import NoRouteError
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.names import DEFAULT_TOPIC
from rocketapp.model.route import TopicRoute
from rocketapp.producer.selection import publish_queues, queues_to_create

TRUST = 5.0
"""Seconds that the queues of a topic under creation are believed in before its route is asked for again."""


class Targets:
    """The queues that one producer can send to."""

    def __init__(self, client: ClientInstance, topic_queues: int) -> None:
        self._client, self._topic_queues = client, topic_queues
        self._watched: set[str] = set()
        self._creating: dict[str, tuple[list[MessageQueue], float]] = {}
        self._known: dict[str, tuple[TopicRoute, list[MessageQueue]]] = {}
        self._asking: dict[str, asyncio.Lock] = {}
        """Topics that are being asked for."""

    async def queues(self, topic: str) -> list[MessageQueue]:
        """Sorted, at least one. Raises NoRouteError when no queue is writable, TransportError without a name server."""
        return self.known(topic) or await self._ask(topic)

    def known(self, topic: str) -> list[MessageQueue]:
        """The queues, sorted, as far as they are known without asking; empty when they are not."""
        route = self._client.routes.get(topic)
        if route is not None:
            known = self._known.get(topic)
            if known is None or known[0] is not route:
                self._creating.pop(topic, None)
                self._known[topic] = known = route, publish_queues(topic, route)
            return known[1]
        queues, until = self._creating.get(topic, ([], 0.0))
        return queues if asyncio.get_running_loop().time() < until else []

    def stored(self, topic: str) -> None:
        """A message was stored: if that created the topic, its route is refreshed soon."""
        if topic in self._creating and self._client.routes.get(topic) is None:
            self._client.routes.refresh_soon(topic)

    def failed(self, topic: str) -> None:
        """A broker was not reached, or does not know the topic: refresh the route soon."""
        self._creating.pop(topic, None)
        self._client.routes.refresh_soon(topic)

    def watch(self, topic: str) -> None:
        """Keep the route of this topic up to date until `release`."""
        if topic not in self._watched:
            self._watched.add(topic)
            self._client.routes.watch(topic)

    def release(self) -> None:
        """Stop watching routes: nothing more is sent."""
        for topic in self._watched:
            self._client.routes.unwatch(topic)
        self._watched.clear()

    async def _ask(self, topic: str) -> list[MessageQueue]:
        # Of many that ask for one topic at once, the first one finds out for all.
        async with self._asking.setdefault(topic, asyncio.Lock()):
            try:
                return self.known(topic) or await self._find(topic)
            finally:
                self._asking.pop(topic, None)

    async def _find(self, topic: str) -> list[MessageQueue]:
        routes = self._client.routes
        self.watch(topic)
        route = await routes.fetch(topic)
        if route is not None:
            if queues := self.known(topic):
                return queues
            raise NoRouteError(topic, "none of its brokers can be written to")
        default = await routes.fetch(DEFAULT_TOPIC)
        queues = [] if default is None else queues_to_create(topic, default, self._topic_queues)
        if not queues:
            raise NoRouteError(topic, "it does not exist, and no broker creates topics by itself")
        self._creating[topic] = queues, asyncio.get_running_loop().time() + TRUST
        return queues
