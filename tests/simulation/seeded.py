"""One seed = one run: a workload, faults drawn by chance, and a history that is checked.

The faults end, what was held is released, what was frozen is thawed, and then the group has to catch up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from rocketapp.model.outcome import DeadLetter, Retry, Skip
from rocketapp.wire.record import Message
from tests.simulation import history as facts
from tests.simulation.cluster import ADDRESS, Broker, Member, Sender, Topic, World, catch_up
from tests.simulation.history import History
from tests.simulation.processes import run_simulated

CONCURRENT, ORDERLY, MIXED, PEACEFUL = "concurrent", "orderly", "mixed", "peaceful"
WORKLOADS = (CONCURRENT, ORDERLY, MIXED, PEACEFUL)
"""`peaceful`: members only come and go, nothing fails, handlers are quick: nothing at all is repeated."""

CATCH_UP = 330.0
"""Seconds that the group may take when everything is calm: a member whose machine is gone is forgotten after
120 s and its locks 60 s after their last renewal; the ladder of three attempts is 10 + 30 s; what a last, slow
handler still fails on goes round once more."""
KEYS = 6


@dataclass(frozen=True, slots=True)
class Result:
    """What a run brought."""

    history: History
    findings: list[str]


def topics_of(workload: str) -> tuple[Topic, ...]:
    concurrent, orderly = Topic(name="orders"), Topic(name="moves", orderly=True)
    return {CONCURRENT: (concurrent,), ORDERLY: (orderly,)}.get(workload, (concurrent, orderly))


def behaviour(seed: int, *, peaceful: bool) -> Callable[[Message], Awaitable[Any]]:
    """What handlers do follows from the seed, the message and the attempt alone, whoever handles it when."""

    async def behave(message: Message) -> Any:
        random = Random(f"{seed}/{message.text()}/{message.attempt}")
        slow, very_slow = (0.0, 0.0) if peaceful else (0.06, 0.01)
        luck = random.random()
        if luck < very_slow:
            await asyncio.sleep(random.uniform(5, 25))
        elif luck < very_slow + slow:
            await asyncio.sleep(random.uniform(0.5, 4))
        elif luck < 0.8:
            await asyncio.sleep(random.uniform(0, 0.08))
        if not peaceful:
            return _outcome(Random(f"{seed}/{message.text()}").random(), random)
        return None

    return behave


def _outcome(of_message: float, random: Random) -> Any:
    if of_message < 0.02:
        raise ValueError("fails always")
    if of_message < 0.12 and random.random() < 0.6:
        raise random.choice((ValueError("fails sometimes"), Retry(), Retry(1), DeadLetter("unwanted")))
    return Skip("not needed") if of_message > 0.97 else None


def simulate(seed: int, workload: str) -> Result:
    """Run one seed."""
    return run_simulated(lambda: Run(seed, workload).run())


class Run:
    """One simulation."""

    def __init__(self, seed: int, workload: str) -> None:
        self._peaceful = workload == PEACEFUL
        self._world = World(
            seed=seed,
            topics=topics_of(workload),
            behave=behaviour(seed, peaceful=self._peaceful),
            # Who gives a queue away has to hear of it within a moment, or both handle what comes meanwhile.
            latency=Random(f"{seed}/latency").choice((0.0, 0.002, 0.02, 0.02 if self._peaceful else 0.2)),
        )
        self._random = self._world.random("faults")
        self._broker, self._sender = Broker(self._world), Sender(self._world)
        self._members: dict[str, Member] = {}
        self._gone: list[Member] = []
        self._undo: list[asyncio.Task[None]] = []
        self._names = 0
        self._lost_machines: set[str] = set()

    async def run(self) -> Result:
        random, world = self._random, self._world
        await self._broker.start()
        await self._sender.start()
        sending = [
            self._sender.send_all(topic.name, f"{topic.name}-{key}", random.randint(5, 25), self._pause)
            for topic in world.topics
            for key in range(KEYS)
        ]
        for _ in range(random.randint(1, 3)):
            await self._join()
            await asyncio.sleep(random.choice((0.0, 0.1, 2.0)))
        await self._disturb()
        await asyncio.gather(*sending)
        await asyncio.gather(*self._undo)
        await asyncio.sleep(facts.UNDER_WAY)  # what was held back arrives, and may be stored still
        if not self._members:
            await self._join()
        await asyncio.gather(*self._undo)  # who joined last is in, too
        await catch_up(world, self._broker, CATCH_UP)
        await self._end()
        orderly = {topic.name for topic in world.topics if topic.orderly}
        findings = facts.check(world.history, orderly=orderly, within=CATCH_UP, rebalances_repeat=not self._peaceful)
        return Result(world.history, findings)

    def _pause(self) -> float:
        return self._random.choice((0.0, 0.01, 0.3, 3.0))

    async def _disturb(self) -> None:
        random = self._random
        kinds = [self._join_soon, self._leave]
        if not self._peaceful:
            kinds += [self._crash, self._cut, self._cut_all, self._hold, self._freeze, self._jump, self._bounce]
            # Some runs know few kinds of faults, so that one kind cannot hide behind another.
            kinds = random.sample(kinds, random.randint(2, len(kinds)))
        for _ in range(random.randint(3, 12)):
            await asyncio.sleep(random.choice((0.0, 0.1, 1.0, 5.0, 20.0)) * random.random())
            await random.choice(kinds)()

    # Faults.

    async def _join(self) -> None:
        self._names += 1
        member = self._members[f"member-{self._names}"] = Member(self._world, f"member-{self._names}")
        self._undo.append(asyncio.get_running_loop().create_task(member.join()))

    async def _join_soon(self) -> None:
        if len(self._members) < 5:
            await self._join()

    def _some(self) -> Member | None:
        """A member that lives and has joined."""
        able = [each for each in self._members.values() if each.is_joined and not each.process.is_frozen]
        return self._random.choice(able) if able else None

    async def _leave(self) -> None:
        if member := self._some():
            del self._members[member.name]
            member.is_joined = False
            self._undo.append(asyncio.get_running_loop().create_task(self._leaving(member)))

    async def _leaving(self, member: Member) -> None:
        is_clean = await member.leave()
        if self._peaceful and not is_clean:
            raise AssertionError(f"{member.name} did not leave cleanly although nothing disturbed it")

    async def _crash(self) -> None:
        if member := self._some():
            del self._members[member.name]
            silently = self._random.random() < 0.3
            member.crash(silently=silently)
            if silently:
                self._lost_machines.add(member.name)
            self._gone.append(member)
            if self._random.random() < 0.7:
                await self._join()

    async def _cut(self) -> None:
        if member := self._some():
            self._world.fault(facts.CUT, member.name)
            self._world.network.cut(member.name)

    async def _cut_all(self) -> None:
        self._world.fault(facts.CUT)
        self._world.network.cut()

    async def _hold(self) -> None:
        member = self._some()
        link = self._random.choice([ADDRESS, self._sender.name, *([member.name] if member else [])])
        if not self._world.network.is_held(link):
            self._later(self._holding(link, self._random.uniform(0.5, 40)))

    async def _holding(self, link: str, seconds: float) -> None:
        self._world.fault(facts.HOLD, link)
        self._world.network.hold(link)
        await asyncio.sleep(seconds)
        self._world.fault(facts.RELEASE, link)
        if link not in self._lost_machines:
            self._world.network.release(link)

    async def _freeze(self) -> None:
        if member := self._some():
            self._later(self._freezing(member, self._random.choice((1, 10, 40, 70, 130))))

    async def _freezing(self, member: Member, seconds: float) -> None:
        member.freeze()
        await asyncio.sleep(seconds)
        member.thaw()

    async def _jump(self) -> None:
        clocks = [self._broker.clock, self._sender.clock, *(member.clock for member in self._members.values())]
        self._world.fault(facts.CLOCK)
        self._random.choice(clocks).epoch += self._random.choice((-86_400, -3600, 3600, 86_400))

    async def _bounce(self) -> None:
        """The broker ends and comes again."""
        if not self._broker.is_running:
            return
        if self._random.random() < 0.5:
            self._broker.crash()
        else:
            await self._broker.stop()
        self._later(self._starting(self._random.choice((0.0, 0.5, 10.0))))

    async def _starting(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self._broker.start()

    def _later(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._undo.append(task)

    async def _end(self) -> None:
        for member in self._members.values():
            await member.leave()
        await self._sender.stop()
        await self._broker.stop()
        for member in self._gone:
            member.process.bury()
        self._broker.bury()
