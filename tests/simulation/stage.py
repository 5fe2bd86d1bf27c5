"""A stage for named scenarios: a broker, a sender, members that join as told, and a watch on the clock."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any

from rocketapp.wire.record import Message
from tests.simulation import history as facts
from tests.simulation.checks import check
from tests.simulation.cluster import Cluster, Member, catch_up
from tests.simulation.processes import run_simulated
from tests.simulation.world import FEW_ROUNDS, Behave, Topic, World


async def at_once(message: Message) -> None:
    """A handler that needs no time."""


class Stage:
    """What one scenario plays on. Everything that joins is stopped, or buried, at its end."""

    def __init__(
        self,
        *topics: Topic,
        behave: Behave = at_once,
        block: Behave | None = None,
        latency: float = 0.0,
        brokers: int = 1,
        **consumer: Any,
    ) -> None:
        self.world = World(seed=0, topics=topics, behave=behave, block=block, latency=latency, consumer=consumer)
        self.world.pace = FEW_ROUNDS
        self.loop = self.world.loop
        self._cluster = Cluster(self.world, brokers=brokers)
        self.broker, *_ = self.brokers = self._cluster.brokers
        self.sender = self._cluster.sender
        self.members: list[Member] = []

    @property
    def now(self) -> float:
        return self.loop.time()

    async def begin(self) -> None:
        await self._cluster.start()

    async def send(self, topic: str, count: int, *, key: str = "", **more: Any) -> None:
        for _ in range(count):
            await self.sender.send(topic, key, **more)

    async def join(self) -> Member:
        member = Member(self.world, f"member-{len(self.members) + 1}")
        self.members.append(member)
        await member.join()
        return member

    async def until(self, condition: Callable[[], Any], seconds: float = 30.0, *, every: float = 0.05) -> float:
        """Wait for a condition, with a look so often; how long that took."""
        began = self.now
        while not condition():
            if self.now - began > seconds:
                raise AssertionError(f"not within {seconds:g} s")
            await asyncio.sleep(every)
        return self.now - began

    async def calm(self, within: float) -> None:
        """Everything is committed in time, and the whole history keeps the contract."""
        if not await catch_up(self.world, within):
            lag = [broker.lag() for broker in self.brokers]
            raise AssertionError(f"not caught up within {within:g} s: {lag}")
        if findings := self.findings(within):
            raise AssertionError("\n".join(findings))

    def findings(self, within: float = 1e9) -> list[str]:
        orderly = {topic.name for topic in self.world.topics if topic.orderly}
        keyed = {topic.name for topic in self.world.topics if topic.keyed}
        return check(self.world.history, orderly=orderly, keyed=keyed, within=within)

    def started(self, number: int | None = None) -> list[facts.Started]:
        found = (event for event in self.world.history if isinstance(event, facts.Started))
        return [event for event in found if number in (None, event.number)]

    def done(self) -> list[facts.Finished]:
        return [event for event in self.world.history if isinstance(event, facts.Finished) and event.done]

    def commits(self, queue: str) -> list[tuple[float, int]]:
        found = (event for event in self.world.history if isinstance(event, facts.Committed))
        return [(event.at, event.offset) for event in found if event.queue == queue]

    def committed(self) -> list[int]:
        """Every offset that was committed, of any queue."""
        return [event.offset for event in self.world.history if isinstance(event, facts.Committed)]

    def owners(self) -> dict[str, list[str]]:
        """Who consumes which queue, as far as assignments and releases tell."""
        owners: dict[str, list[str]] = {}
        for event in self.world.history:
            if isinstance(event, facts.Assigned):
                owners.setdefault(event.queue, []).append(event.member)
            elif isinstance(event, facts.Released):
                owners[event.queue].remove(event.member)
        return owners

    async def end(self) -> None:
        for member in self.members:
            if member.process.is_dead:
                member.process.bury()
                member.forget_notes()
            elif member.is_joined:
                await member.leave()
        await self._cluster.stop()


def scenario(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an async test on a loop of simulated processes."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        run_simulated(lambda: test(*args, **kwargs))

    return run
