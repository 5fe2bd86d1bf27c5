"""What chance does to a cluster: members that come and go, and faults of members, brokers and connections."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from random import Random
from typing import Any

from tests.simulation import history as facts
from tests.simulation.brokers import NamedBroker
from tests.simulation.cluster import Member, Sender
from tests.simulation.world import World

MOST_MEMBERS = 6
Kind = Callable[[], Awaitable[None]]


class Group:
    """The members of the group: those that are there, and those that crashed."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.members: dict[str, Member] = {}
        self._gone: list[Member] = []
        self._moving: list[asyncio.Task[Any]] = []
        self._names = 0
        self.unclean: list[tuple[float, str]] = []
        """When which member began to leave that ended before everything was finished and committed."""
        self.lost_machines: set[str] = set()

    def join(self) -> None:
        self._names += 1
        member = self.members[f"member-{self._names}"] = Member(self._world, f"member-{self._names}")
        self._start(member.join())

    def able(self) -> list[Member]:
        """Those that have joined and are not frozen."""
        return [each for each in self.members.values() if each.is_joined and not each.process.is_frozen]

    def leave(self, member: Member) -> asyncio.Task[None]:
        self.members.pop(member.name, None)  # it may have died while others left
        member.is_joined = False
        return self._start(self._leaving(member))

    async def _leaving(self, member: Member) -> None:
        began = self._world.loop.time()
        if (left := await self._left(member)) is not None and not left:
            self.unclean.append((began, member.name))

    async def _left(self, member: Member, drain_timeout: float = 60.0) -> bool | None:
        """Let it leave; whether its end was clean. None: it has died, perhaps before it began."""
        if member.process.is_dead:
            return None
        leaving = asyncio.ensure_future(member.leave(drain_timeout=drain_timeout))
        while not leaving.done():
            if member.process.is_dead:
                return None
            await asyncio.wait([leaving], timeout=0.5)
        return leaving.result()

    def crash(self, member: Member, *, silently: bool) -> None:
        del self.members[member.name]
        member.crash(silently=silently)
        if silently:
            self.lost_machines.add(member.name)
        self._gone.append(member)

    async def settled(self) -> None:
        """Everything that joins or leaves has done so."""
        await asyncio.gather(*self._moving)

    async def end(self) -> None:
        """All leave, and the dead are buried."""
        for member in list(self.members.values()):
            await self.leave(member)
        await self.settled()
        for member in self._gone:
            member.process.bury()

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._moving.append(task)
        return task


class Disturber:
    """Draws faults, and sees to it that each one ends."""

    def __init__(self, world: World, group: Group, sender: Sender, random: Random) -> None:
        self._world, self._group, self._sender, self._random = world, group, sender, random
        self._undo: list[asyncio.Task[None]] = []
        self._touched: set[str] = set()
        """Brokers that a fault has at present."""

    @property
    def peaceful(self) -> Sequence[Kind]:
        """Members come and go."""
        return self._join, self._join, self._leave, self._leave, self._storm, self._rolling, self._drain

    def some_kinds(self) -> Sequence[Kind]:
        """Some runs know few kinds of faults, so that one kind cannot hide behind another."""
        kinds: list[Kind] = [
            *self.peaceful,
            self._crash,
            self._cut,
            self._cut_all,
            self._hold,
            self._freeze,
            self._jump,
            self._bounce,
            self._freeze_broker,
        ]
        if len(self._world.brokers) > 1:
            kinds.append(self._hide)
        return self._random.sample(kinds, self._random.randint(2, len(kinds)))

    async def disturb(self, kinds: Sequence[Kind]) -> None:
        random = self._random
        for _ in range(random.randint(3, 12)):
            await asyncio.sleep(random.choice((0.0, 0.1, 1.0, 5.0, 20.0)) * random.random())
            await random.choice(kinds)()

    async def outage(self) -> None:
        """One broker of several is down for long, once or twice."""
        random, victim = self._random, self._random.choice(self._world.brokers)
        await asyncio.sleep(20)
        for _ in range(random.randint(1, 2)):
            kind, seconds = random.choice(("crash", "stop", "freeze", "hold")), random.uniform(10, 120)
            if kind == "freeze":
                await self._frozen(victim, seconds)
            elif kind == "hold":
                await self._holding(victim.name, victim.address, seconds)
            else:
                await self._bounced(victim, seconds, is_crash=kind == "crash")
            await asyncio.sleep(random.uniform(0, 30))

    async def is_over(self) -> None:
        """Everything that was held, frozen or stopped goes again, and what joins or leaves has done so."""
        await asyncio.gather(*self._undo)
        await self._group.settled()

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        self._undo.append(asyncio.get_running_loop().create_task(work))

    # Members come and go.

    def _some(self) -> Member | None:
        able = self._group.able()
        return self._random.choice(able) if able else None

    async def _join(self) -> None:
        if len(self._group.members) < MOST_MEMBERS:
            self._group.join()

    async def _leave(self) -> None:
        if member := self._some():
            self._group.leave(member)

    async def _storm(self) -> None:
        """Many joins and leaves at once."""
        for _ in range(self._random.randint(3, 6)):
            await self._random.choice((self._join, self._leave))()
            await asyncio.sleep(self._random.choice((0.0, 0.0, 0.05)))

    async def _rolling(self) -> None:
        """Every member is restarted, one after the other."""
        for member in self._group.able():
            if member.name in self._group.members and member in self._group.able():
                leaving = self._group.leave(member)
                if self._random.random() < 0.8:
                    await asyncio.wait([leaving], timeout=30)
                self._group.join()
                await asyncio.sleep(self._random.choice((0.0, 0.5, 2.0)))

    async def _drain(self) -> None:
        """All members leave at once."""
        for member in self._group.able():
            self._group.leave(member)
        await asyncio.sleep(self._random.choice((0.0, 0.2, 2.0)))
        await self._join()

    async def pause(self) -> None:
        """A topic is paused in one member, and goes on there later. No other member is told."""
        if member := self._some():
            topic = self._random.choice(self._world.topics).name
            self._later(self._paused(member, topic, self._random.choice((0.5, 5.0, 60.0))))

    async def _paused(self, member: Member, topic: str, seconds: float) -> None:
        async def set_paused(is_paused: bool) -> None:
            if is_paused:
                member.consumer.pause(topic, "for a while")
            else:
                member.consumer.resume(topic)

        member.process.start(set_paused(True))
        await asyncio.sleep(seconds)
        member.process.start(set_paused(False))

    # Faults of members.

    async def _crash(self) -> None:
        if member := self._some():
            self._group.crash(member, silently=self._random.random() < 0.3)
            if self._random.random() < 0.7:
                await self._join()

    async def _freeze(self) -> None:
        if member := self._some():
            self._later(self._frozen(member, self._random.choice((1, 10, 40, 70, 130))))

    async def _frozen(self, who: Member | NamedBroker, seconds: float) -> None:
        who.freeze()
        await asyncio.sleep(seconds)
        who.thaw()

    async def _jump(self) -> None:
        world = self._world
        clocks = [broker.clock for broker in world.brokers] + [self._sender.clock]
        clocks += [member.clock for member in self._group.members.values()]
        world.fault(facts.CLOCK)
        self._random.choice(clocks).epoch += self._random.choice((-86_400, -3600, 3600, 86_400))

    # Faults of connections.

    async def _cut(self) -> None:
        if member := self._some():
            self._world.fault(facts.CUT, member.name)
            self._world.network.cut(member.name)

    async def _cut_all(self) -> None:
        self._world.fault(facts.CUT)
        self._world.network.cut()

    async def _hold(self) -> None:
        member, broker = self._some(), self._random.choice(self._world.brokers)
        links = [(broker.name, broker.address), (self._sender.name, self._sender.name)]
        if member:
            links.append((member.name, member.name))
        name, link = self._random.choice(links)
        if not self._world.network.is_held(link):
            self._later(self._holding(name, link, self._random.uniform(0.5, 40)))

    async def _holding(self, name: str, link: str, seconds: float) -> None:
        self._world.fault(facts.HOLD, name)
        self._world.network.hold(link)
        await asyncio.sleep(seconds)
        self._world.fault(facts.RELEASE, name)
        if link not in self._group.lost_machines:
            self._world.network.release(link)

    # Faults of brokers, and of what is known of them.

    def _a_broker(self) -> NamedBroker | None:
        able = [broker for broker in self._world.brokers if broker.name not in self._touched]
        return self._random.choice(able) if able else None

    def _touch(self, broker: NamedBroker, work: Coroutine[Any, Any, None]) -> None:
        async def touching() -> None:
            await work
            self._touched.discard(broker.name)

        self._touched.add(broker.name)
        self._later(touching())

    async def _bounce(self) -> None:
        """A broker ends and comes again."""
        if broker := self._a_broker():
            seconds, is_crash = self._random.choice((0.0, 0.5, 10.0)), self._random.random() < 0.5
            self._touch(broker, self._bounced(broker, seconds, is_crash=is_crash))

    async def _bounced(self, broker: NamedBroker, seconds: float, *, is_crash: bool) -> None:
        # A name server forgets a broker that stops at once, and one that is gone after some time.
        listed = self._random.choice((0.0, 1.0, 30.0, 120.0))
        if is_crash:
            broker.crash(listed=listed)
        else:
            await broker.stop(listed=listed if self._random.random() < 0.3 else 0.0)
        await asyncio.sleep(seconds)
        await broker.start()

    async def _freeze_broker(self) -> None:
        if broker := self._a_broker():
            self._touch(broker, self._frozen(broker, self._random.choice((1, 10, 40, 70, 130))))

    async def _hide(self) -> None:
        """The name server was restarted, and one broker has not told it yet that it is there."""
        if broker := self._a_broker():
            self._touch(broker, self._hidden(broker, self._random.choice((0.1, 5.0, 35.0))))

    async def _hidden(self, broker: NamedBroker, seconds: float) -> None:
        broker.hide(True)
        await asyncio.sleep(seconds)
        broker.hide(False)
