"""One seed = one run: a workload, faults drawn by chance, and a history that is checked.

The faults end, what was held is released, what was frozen is thawed, and then the group has to catch up.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from rocketapp.broker.broker import Pace
from rocketapp.model.outcome import DeadLetter, Retry, Skip
from rocketapp.model.policy import Breaker
from rocketapp.wire.record import Message
from tests.simulation import by_hand, everyone, pop_checks
from tests.simulation.checks import check
from tests.simulation.cluster import Cluster, catch_up
from tests.simulation.disturber import Disturber, Group
from tests.simulation.excuses import UNDER_WAY
from tests.simulation.history import REBALANCING, SERVICE_DOWN, SERVICE_UP, Fault, History, Sent, Stored
from tests.simulation.pairs import PAIRS, Pairs
from tests.simulation.processes import ProcessLoop, run_simulated
from tests.simulation.threads import block
from tests.simulation.world import FEW_ROUNDS, Topic, World, number_of

CONCURRENT, ORDERLY, MIXED, PEACEFUL, OUTAGE = "concurrent", "orderly", "mixed", "peaceful", "outage"
KEYED, KEYED_PEACEFUL, KEYED_OUTAGE = "keyed", "keyed peaceful", "keyed outage"
GUARDED = "guarded"
"""A topic whose handler has a rate and a breaker beside a plain one. What that handler calls is down for a while."""
WORKLOADS = (CONCURRENT, ORDERLY, MIXED, PEACEFUL, OUTAGE)
"""Those that the seeds go round.

`peaceful`: members only come and go and no handler fails. `outage`: one of several brokers is down for minutes, and
nothing else happens. How many brokers there are, and which handlers are sync, the seed draws."""

KEYED_WORKLOADS = (KEYED, KEYED_PEACEFUL, KEYED_OUTAGE)
"""A topic with `order_by=` beside a concurrent one."""

BROADCAST = "broadcast"
"""A concurrent and an orderly topic of a broadcast group."""

POLL = "poll"
"""A polled topic beside a concurrent one. Its calls fail at times, and no message fails for ever."""

BY_HAND = "by hand"
"""Orderly handlers that commit by hand, beside plain ones."""

POP = "pop"
"""Two popped topics, one with few calls at once, which are paused at times."""

CHARGES, BREAKER = "charges", Breaker(failures=5, within=30.0, pause=6.0)

CATCH_UP = 330.0
"""Seconds that the group may take when everything is calm: a member whose machine is gone is forgotten after
120 s and its locks 60 s after their last renewal; the ladder of three attempts is 10 + 30 s; what a last, slow
handler still fails on goes round once more."""
KEYS, KEYS_SIDE_BY_SIDE = 6, 20
"""Keys of a topic; of a keyed one enough that each queue has several."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a run brought."""

    history: History
    findings: list[str]


def workload_of(seed: int) -> str:
    """The seeds go round all workloads."""
    return WORKLOADS[seed % len(WORKLOADS)]


def topics_of(workload: str, random: Random) -> tuple[Topic, ...]:
    concurrent, orderly = Topic(name="orders"), Topic(name="moves", orderly=True)
    if workload == GUARDED:
        rate, concurrency = random.choice((5.0, 20.0, 200.0)), random.choice((2, 8))
        charges = Topic(
            name=CHARGES, orderly=random.random() < 0.4, rate=rate, concurrency=concurrency, breaker=BREAKER
        )
        return replace(charges, sync=random.random() < 0.4), concurrent
    if workload == BY_HAND:
        return Topic(name="ledgers", orderly=True, by_hand=True), Topic(name="moves", orderly=True)
    if workload == POP:
        few = Topic(name="moves", popped=True, concurrency=random.choice((1, 4)), sync=random.random() < 0.4)
        return Topic(name="orders", popped=True), few
    topics = {CONCURRENT: (concurrent,), ORDERLY: (orderly,)}.get(workload, (concurrent, orderly))
    if workload == POLL:
        return Topic(name="files", every=random.choice((0.5, 2.0, 5.0)), concurrency=random.choice((1, 64))), concurrent
    if workload in KEYED_WORKLOADS:
        topics = Topic(name="accounts", keyed=True, concurrency=random.choice((20, 64))), concurrent
    is_broadcast = workload == BROADCAST
    return tuple(replace(topic, sync=random.random() < 0.4, broadcast=is_broadcast) for topic in topics)


def pop_options(random: Random) -> dict[str, Any]:
    """What a popped group may set."""
    return {
        "pop_invisible_time": random.choice((8.0, 12.0, 25.0)),
        "pop_batch_size": random.choice((1, 8, 32)),
        "pop_max_messages": random.choice((4, 96)),
        "subscription_check": "off",  # the brokers of these runs are not asked for members
    }


def brokers_of(workload: str, random: Random) -> int:
    if workload == BY_HAND:
        return 1  # each key has one queue, which its last message closes
    return random.choice((2, 3) if workload in OUTAGES else (1, 1, 2, 3))


PEACES, OUTAGES = (PEACEFUL, KEYED_PEACEFUL), (OUTAGE, KEYED_OUTAGE)


class Handlers:
    """What handlers do follows from the seed, the message and the attempt alone, not from who handles it when."""

    def __init__(self, seed: int, workload: str) -> None:
        self._seed, self._fails = seed, workload not in (*PEACES, *OUTAGES)
        long = (0.03, 0.005) if workload in PEACES else (0.0, 0.0) if workload in OUTAGES else (0.06, 0.01)
        # Some peaceful runs have only quick handlers: nothing at all is handled twice there.
        is_quick = workload in PEACES and Random(f"{seed}/quick").random() < 0.6
        self._slow, self._very_slow = (0.0, 0.0) if is_quick else long
        self.service_is_down = False
        self.refused: set[tuple[int, int]] = set()
        """Numbers and attempts of which they have made dead letters."""
        self.decisions = by_hand.Decisions(seed)

    async def call(self, message: Message) -> Any:
        seconds, result = self._plan(message)
        if seconds is not None:
            await asyncio.sleep(seconds)
        return _return(result)

    def block(self, message: Message) -> Any:
        """Of a sync topic: in a simulated thread."""
        seconds, result = self._plan(message)
        block(seconds or 0.0)
        return _return(result)

    def _plan(self, message: Message) -> tuple[float | None, Any]:
        """How long the call takes, and what it returns or raises."""
        if self.service_is_down and message.topic == CHARGES:
            return 0.05, ConnectionError("the service is down")
        if self.decisions.is_closing:
            return None, None
        random = Random(f"{self._seed}/{message.text()}/{message.attempt}")
        luck, seconds = random.random(), None
        if luck < self._very_slow:
            seconds = random.uniform(5, 25)
        elif luck < self._very_slow + self._slow:
            seconds = random.uniform(0.5, 4)
        elif luck < 0.8:
            seconds = random.uniform(0, 0.08)
        if not self._fails or (message.topic == "files" and message.attempt > 2):
            return seconds, None
        outcome = _outcome(Random(f"{self._seed}/{message.text()}").random(), random)
        if isinstance(outcome, DeadLetter):
            self.refused.add((number_of(message.body), message.attempt))
        return seconds, outcome


def _outcome(of_message: float, random: Random) -> Any:
    if of_message < 0.02:
        return ValueError("fails always")
    if of_message < 0.12 and random.random() < 0.6:
        return random.choice((ValueError("fails sometimes"), Retry(), Retry(1), DeadLetter("unwanted")))
    return Skip("not needed") if of_message > 0.97 else None


def _return(result: Any) -> Any:
    if isinstance(result, Exception) and not isinstance(result, Skip):
        raise result
    return result


def simulate(seed: int, workload: str | None = None, *, pace: Pace = FEW_ROUNDS, **consumer: Any) -> Result:
    """Run one seed; without a workload, the one that it draws. `consumer`: options that are not the defaults.

    With another pace of the brokers a seed is another story. Those of `pairs` are told with the usual one.
    """
    if workload == PAIRS:
        result = run_simulated(lambda: _pairs(seed, **consumer))
    else:
        result = run_simulated(lambda: Run(seed, workload or workload_of(seed), pace, **consumer).run())
    refused = Counter(event.outcome == "refused" for event in result.history if isinstance(event, Sent))
    # A broker may be out of reach for as long as messages are sent: most of them are refused then.
    if refused[True] <= refused[False] and not any(isinstance(event, Stored) for event in result.history):
        result.findings.append("nothing was stored: such a run proves nothing")
    return result


async def _pairs(seed: int, **consumer: Any) -> Result:
    run = Pairs(seed, **consumer)
    return Result(run.world.history, await run.run())


class Run:
    """One simulation."""

    def __init__(self, seed: int, workload: str, pace: Pace, **consumer: Any) -> None:
        self._workload = workload
        self._handlers = handlers = Handlers(seed, workload)
        if workload == POP:
            consumer = {**pop_options(Random(f"{seed}/options")), **consumer}
        self._world = world = World(
            seed=seed,
            topics=topics_of(workload, Random(f"{seed}/sync")),
            behave=handlers.call,
            block=handlers.block,
            decide=handlers.decisions.of,
            # A peaceful hand-over waits 1 s for the commit of the member before, which has to hear of it first.
            latency=Random(f"{seed}/latency").choice((0.0, 0.002, 0.02, 0.02 if workload in PEACES else 0.2)),
            pace=pace,
            consumer=consumer,
        )
        self._random = world.random("faults")
        count = brokers_of(workload, Random(f"{seed}/count"))
        invisible = consumer["pop_invisible_time"] if workload == POP else None
        self._cluster = Cluster(world, brokers=count, invisible=invisible)
        self._sender = self._cluster.sender
        self._group = Group(world)
        self._disturber = Disturber(world, self._group, self._sender, self._random)

    async def run(self) -> Result:
        random, world = self._random, self._world
        await self._cluster.start()
        sending = [task for topic in world.topics for task in self._send(topic)]
        for _ in range(3 if self._workload in OUTAGES else random.randint(1, 3)):
            self._group.join()
            await asyncio.sleep(random.choice((0.0, 0.1, 2.0)))
        service = [asyncio.get_running_loop().create_task(self._lose_service())] if self._workload == GUARDED else []
        await self._disturb()
        await asyncio.gather(*sending, *service)
        await self._disturber.is_over()
        await asyncio.sleep(UNDER_WAY)  # what was held back arrives, and may be stored still
        if not self._group.members:
            self._group.join()
        await self._group.settled()  # a member that joined last is in, too
        if self._workload == BROADCAST:
            return await self._all_have_all()
        if self._workload == BY_HAND:
            await self._close_by_hand()
        await catch_up(world, CATCH_UP)
        await self._end()
        if self._workload == POP:
            retries, refused = world.topics[0].retries, self._handlers.refused
            findings = pop_checks.broken(world.history, retries=retries, refused=refused, within=CATCH_UP)
            return Result(world.history, findings + self._unended())
        orderly = {topic.name for topic in world.topics if topic.orderly}
        keyed = {topic.name for topic in world.topics if topic.keyed}
        guarded = [topic for topic in world.topics if topic.is_guarded]
        if self._workload == BY_HAND:
            names = {topic.name for topic in world.topics if topic.by_hand}
            return Result(world.history, by_hand.broken(world.history, names, orderly=orderly, within=CATCH_UP))
        polled = {topic.name for topic in world.topics if topic.every is not None}
        topics: dict[str, Any] = {"orderly": orderly, "keyed": keyed, "guarded": guarded, "polled": polled}
        findings = check(world.history, **topics, within=CATCH_UP, latency=world.latency)
        if self._workload in PEACES:
            findings += self._unclean()
        return Result(world.history, findings)

    async def _all_have_all(self) -> Result:
        world, members = self._world, self._group.members
        await everyone.all_idle(world, members.values(), CATCH_UP)
        present, orderly = list(members), {topic.name for topic in world.topics if topic.orderly}
        await self._end()
        return Result(world.history, everyone.broken(world.history, orderly=orderly, present=present, within=CATCH_UP))

    async def _close_by_hand(self) -> None:
        """The last message of each key commits what its queue has handled."""
        self._handlers.decisions.is_closing = True
        for topic in self._world.topics:
            for key in range(KEYS if topic.by_hand else 0):
                await self._sender.send(topic.name, f"{topic.name}-{key}")

    async def _lose_service(self) -> None:
        """Every call of the guarded handler fails for a while."""
        random = Random(f"{self._world.seed}/service")
        await asyncio.sleep(random.uniform(0, 15))
        self._handlers.service_is_down = True
        self._world.fault(SERVICE_DOWN)
        await asyncio.sleep(random.uniform(5, 60))
        self._handlers.service_is_down = False
        self._world.fault(SERVICE_UP)

    def _unclean(self) -> list[str]:
        """A member that leaves finishes and commits everything, unless it was just giving a queue to another one.

        A call of such a queue that runs longer than the hand-over waits is repeated by that other member.
        """
        moved = [event.at for event in self._world.history if isinstance(event, Fault) and event.kind in REBALANCING]
        return [
            f"{name} did not leave cleanly at {began:.3f}"
            for began, name in self._group.unclean
            if not any(began - UNDER_WAY < at < began for at in moved)
        ]

    def _unended(self) -> list[str]:
        """A member that has left leaves no task behind."""
        loop = self._world.loop
        assert isinstance(loop, ProcessLoop)
        alive = [each for each in loop.processes if each.name.startswith("member") and not each.is_dead]
        return [f"{each.name} has left {task}" for each in alive for task in each.unended()]

    def _send(self, about: Topic) -> list[asyncio.Task[None]]:
        random, topic, keys = self._random, about.name, KEYS_SIDE_BY_SIDE if about.keyed else KEYS
        if self._workload in OUTAGES:
            # Enough keys that every broker has some, and long enough to outlast the outage.
            return [
                self._sender.send_all(topic, f"{topic}-{key}", random.randint(20, 35), self._steady)
                for key in range(2 * KEYS)
            ]
        return [self._sender.send_all(topic, f"{topic}-{key}", self._count(), self._pause) for key in range(keys)]

    def _count(self) -> int:
        # Some queues get more than one batch.
        return 90 if self._random.random() < 0.05 else self._random.randint(5, 25)

    def _pause(self) -> float:
        return self._random.choice((0.0, 0.01, 0.3, 3.0))

    def _steady(self) -> float:
        return self._random.uniform(1.0, 8.0)

    async def _disturb(self) -> None:
        disturber = self._disturber
        if self._workload in OUTAGES:
            await disturber.outage()
        elif self._workload in PEACES:
            await disturber.disturb(disturber.peaceful)
        else:
            pauses = [disturber.pause] if self._workload == POP else []
            await disturber.disturb([*disturber.some_kinds(), *pauses])

    async def _end(self) -> None:
        await self._group.end()
        await self._cluster.stop()
