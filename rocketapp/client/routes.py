"""Routes of topics, kept up to date by one loop that asks name servers only.

So a dead broker, however many calls wait for it, never delays the news that it has a new address.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from random import Random

from rocketapp.client.name_servers import NameServers
from rocketapp.model.event import LoopFailed, Observe
from rocketapp.model.route import MASTER_ID, TopicRoute
from rocketapp.state.backoff import Backoff
from rocketapp.state.route_cache import RouteCache
from rocketapp.tasks import is_set_by

FIRST_WAIT, MOST_WAIT = 0.5, 10.0
"""Seconds until the next poll when no name server answers."""
AT_ONCE = 64
"""Most questions of one process to its name servers that are under way."""


class RouteTable:
    """The routes of the topics that this process uses."""

    def __init__(
        self,
        name_servers: NameServers,
        cache: RouteCache,
        *,
        changed: Callable[[], None],
        observe: Observe,
        random: Random,
    ) -> None:
        self._name_servers, self._cache = name_servers, cache
        self._changed, self._observe = changed, observe
        self._random = random
        self._wake = asyncio.Event()
        self._turns = asyncio.Semaphore(AT_ONCE)

    def get(self, topic: str) -> TopicRoute | None:
        """The known route; None when the topic was not asked for yet, or no broker holds it."""
        return self._cache.get(topic)

    def broker_names(self) -> Collection[str]:
        """Every broker that a known route names, or that is held."""
        return self._cache.brokers().keys()

    def addresses(self, *, with_slaves: bool) -> list[str]:
        """The addresses of these brokers' masters, or of all their copies."""
        return list(
            dict.fromkeys(
                address
                for addresses in self._cache.brokers().values()
                for broker_id, address in addresses.items()
                if broker_id == MASTER_ID or with_slaves
            )
        )

    async def fetch(self, topic: str) -> TopicRoute | None:
        """Ask a name server now; None when the topic has no route. TransportError when no name server answers."""
        async with self._turns:
            route = await self._name_servers.route(topic)
        now = asyncio.get_running_loop().time()
        if route is None:
            self._cache.missing(topic, now)
        elif self._cache.found(topic, route, now):
            self._changed()
        return route

    def watch(self, topic: str) -> None:
        """Keep this topic's route up to date. Every `watch` needs its `unwatch`."""
        self._tell(self._cache.watch, topic)

    def unwatch(self, topic: str) -> None:
        self._cache.unwatch(topic)

    def hold_broker(self, broker_name: str) -> None:
        """Keep the addresses of this broker, and heartbeats to it, while no route names it.

        An assignment calls it when it begins to consume a queue of that broker, and `release_broker` once
        it has committed for the last time and unlocked: a name server that restarts may lose a live broker
        for a moment. Counted: every hold needs its release.
        """
        self._cache.hold_broker(broker_name)

    def release_broker(self, broker_name: str) -> None:
        """End one hold. After the last one, a broker that no route names is forgotten and its connection closed."""
        self._cache.release_broker(broker_name)

    def refresh_soon(self, topic: str) -> None:
        """The topic may have changed: ask for its route at once, if it is watched."""
        self._tell(self._cache.soon, topic)

    def lacks_a_broker(self, topic: str) -> None:
        """The topic is expected on a broker that its route does not name: ask soon, and a few times after that."""
        self._tell(self._cache.lacks_a_broker, topic)

    def unreachable(self, address: str) -> None:
        """This broker cannot be reached: ask soon for the routes that name it."""
        self._tell(self._cache.unreachable, address)

    def _tell(self, change: Callable[[str, float], None], of: str) -> None:
        change(of, asyncio.get_running_loop().time())
        self._wake.set()

    async def run(self) -> None:
        """Ask for every watched topic when it is due, until cancelled. Errors do not end the loop."""
        backoff = Backoff(FIRST_WAIT, MOST_WAIT)
        while True:
            try:
                await self._wait_until_due()
                await self._poll()
                backoff.reset()
            except Exception as error:
                # No error may end this loop: the cluster's next change must still be seen.
                self._observe(LoopFailed("routes", str(error) or type(error).__name__))
                await asyncio.sleep(backoff.next(self._random.random()))

    async def _wait_until_due(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._wake.clear()
            due = self._cache.next_due()
            if due is not None and due <= loop.time():
                return
            if not await is_set_by(self._wake, due):
                return

    async def _poll(self) -> None:
        now = asyncio.get_running_loop().time()
        due = self._cache.due(now)
        # What fails stays due: in one order, some topics that always fail would keep the others from being asked for.
        self._random.shuffle(due)
        problem: BaseException | None = None
        for begin in range(0, len(due), AT_ONCE):
            some = due[begin : begin + AT_ONCE]
            results = await asyncio.gather(*map(self.fetch, some), return_exceptions=True)
            problems = [result for result in results if isinstance(result, BaseException)]
            problem = problem or next(iter(problems), None)
            if len(problems) == len(some):
                break  # no name server answers: what is left stays due
        self._cache.forget_unused(now)
        if problem is not None:
            raise problem
