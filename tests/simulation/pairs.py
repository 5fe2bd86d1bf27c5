"""Two or three mechanisms at once: each is right alone, and together they must not break a promise.

A seed draws them from ELEMENTS. `orders` is consumed as the first mode among them says, `moves` as the second one does,
and `probe` always by a quick concurrent handler that none of them concerns. What must hold stands in `pair_checks`.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from rocketapp.config.consumer import ConsumerConfig
from rocketapp.consumer.handler import ConsumedTopic
from rocketapp.consumer.modes.sink import Sink
from rocketapp.consumer.rollout.check import digest
from rocketapp.model.outcome import DeadLetter, Pause, Retry
from rocketapp.model.policy import Breaker
from rocketapp.model.subscription import ALL_TAGS
from rocketapp.wire.record import Message
from tests.simulation import everyone, guards, pair_checks, pop_checks
from tests.simulation import history as facts
from tests.simulation.cluster import Cluster, Member, catch_up, name_of
from tests.simulation.disturber import Group
from tests.simulation.threads import block
from tests.simulation.world import GROUP, TAGS, Topic, World, number_of

PAIRS = "pairs"
ORDERLY, KEYED, POP, POLL, BROADCAST, SINK, BATCH = "orderly", "keyed", "pop", "poll", "broadcast", "sink", "batch"
QUARANTINE, ROLL_OUT, PAUSE, STOP, BREAKER, ADJUST, RATE, CUT, THIRD, JAVA = (
    "quarantine",
    "roll-out",
    "pause",
    "stop",
    "breaker",
    "adjust",
    "rate",
    "cut drain",
    "third member",
    "java",
)
ELEMENTS = {
    ORDERLY: 3,
    KEYED: 3,
    POP: 1,
    POLL: 1,
    BROADCAST: 1,
    SINK: 1,
    BATCH: 1,
    QUARANTINE: 4,
    ROLL_OUT: 4,
    PAUSE: 2,
    STOP: 1,
    BREAKER: 1,
    ADJUST: 1,
    RATE: 1,
    CUT: 3,
    THIRD: 1,
    JAVA: 1,
}
"""What a seed may draw, and how often."""
MODES = ORDERLY, KEYED, POP, POLL, BROADCAST, SINK, BATCH
_APART = {
    # Its brokers hand out single messages and know no locks.
    POP: {ORDERLY, KEYED, POLL, BROADCAST, SINK, BATCH, ROLL_OUT, JAVA},
    # Of all topics of a group, and each member has all messages.
    BROADCAST: {KEYED, SINK, BATCH, POP, POLL, ROLL_OUT, JAVA},
    # Java members are in a group to be replaced.
    SINK: {ROLL_OUT, JAVA, BREAKER, RATE, ADJUST},
    POLL: {ROLL_OUT, JAVA, BREAKER, RATE, ADJUST},
}
"""What does not go together."""
PROBE, MAIN, SECOND = "probe", "orders", "moves"
KEYS = 6
CATCH_UP = 1500.0
"""Seconds: what hangs for 200 s hangs twice, and what is quarantined comes one after the other."""
MOST_KILLS = 12
"""A message that has ended so many processes ends no more."""
INVISIBLE = 25.0


def elements_of(seed: int) -> frozenset[str]:
    """What this seed puts together."""
    random = Random(f"{seed}/pairs")
    most, found = random.choice((2, 3, 3)), set[str]()
    while len(found) < most:
        (one,) = random.choices(list(ELEMENTS), list(ELEMENTS.values()))
        if not any(one in _APART.get(other, ()) or other in _APART.get(one, ()) for other in found):
            found.add(one)
    return frozenset(found)


def topics_of(seed: int, elements: Collection[str]) -> tuple[Topic, ...]:
    """`orders`, `moves` and `probe`, consumed as the elements say."""
    random = Random(f"{seed}/topics")
    modes = [mode for mode in MODES if mode in elements]
    random.shuffle(modes)
    modes = sorted(modes, key=lambda mode: mode not in (POP, BROADCAST))[:2]  # there are two topics
    retries, is_sync = random.choice((0, 2)), random.random() < 0.25
    main = Topic(name=MAIN, retries=retries, concurrency=random.choice((4, 64)))
    second, probe = Topic(name=SECOND, retries=retries), Topic(name=PROBE, retries=retries)
    if BROADCAST in elements or POP in elements:
        everywhere = {"broadcast": BROADCAST in elements, "popped": POP in elements}
        main, second, probe = (replace(topic, **everywhere) for topic in (main, second, probe))  # type: ignore[arg-type]
    for mode in modes:
        if mode in (POP, BROADCAST):
            continue
        how: dict[str, Any] = {
            ORDERLY: {"orderly": True},
            KEYED: {"keyed": True},
            POLL: {"every": random.choice((0.5, 3.0)), "retries": -1},
            SINK: {"sink": True},
            BATCH: {"batch": random.choice((2, 5))},
        }[mode]
        if mode == modes[0] or modes[0] in (POP, BROADCAST):
            main = replace(main, **how)
        else:
            second = replace(second, **how)
    if BREAKER in elements:
        main = replace(main, breaker=Breaker(failures=5, within=30.0, pause=6.0))
    if RATE in elements:
        main = replace(main, rate=random.choice((5.0, 20.0)))
    may_block = not (main.sink or main.batch or main.every is not None or STOP in elements)
    # Rate and breaker of a handler are checked as those of its topic.
    by_tag = may_block and not {RATE, BREAKER, ADJUST} & set(elements) and Random(f"{seed}/handlers").random() < 0.4
    return replace(main, by_tag=by_tag, sync=is_sync and may_block and not by_tag), second, probe


class PairMember(Member):
    """A member that may want some tags of `orders` alone, and that notes down what it has in flight."""

    polls_of = (20,)  # what it takes once it has all been started: a pause lets a call go on

    def __init__(self, run: Pairs, name: str, tags: str, *, is_java: bool = False) -> None:
        super().__init__(run.world, name)
        self._run, self.tags, self.is_java = run, tags, is_java
        self.notes_in = None if is_java else run.directory

    def options(self) -> dict[str, Any]:
        # As Java's: it pulls what it subscribes, also while others wait for more.
        return {**super().options(), **({"subscription_check": "off"} if self.is_java else {})}

    def _subscribed(self) -> str:
        if self.is_java:
            return ""
        return digest({GROUP: self.topics()}, ConsumerConfig(**self.options()))

    def consumed(self, topic: Topic) -> ConsumedTopic:
        plain = super().consumed(replace(topic, tags=self.tags) if topic.name == MAIN else topic)
        if not topic.sink:
            return plain
        return replace(plain, sink=Sink(new_writer=lambda session: Table(self, session)))

    async def handle(self, item: Any) -> Any:
        try:
            return await super().handle(item)
        except DeadLetter:
            if isinstance(item, list):  # one for all of them
                self._run.refused |= {(number_of(one.body), one.attempt) for one in item}
            raise
        except Pause:
            self.world.history.append(facts.Paused(self.world.loop.time(), self.name, MAIN))
            self.process.start(self._resume_later())
            raise

    async def _resume_later(self) -> None:
        """An operator has seen to what stopped the topic."""
        await asyncio.sleep(self._run.stopped_for)
        if self.is_joined:
            self.resume(MAIN)

    async def behave(self, message: Message) -> Any:
        if self._run.ends_a_process(message):
            await asyncio.sleep(0.1)
            self._run.kill(self, by=message)
            await asyncio.sleep(1e9)  # it is dead
        return await super().behave(message)

    def pause(self, topic: str) -> None:
        self.consumer.pause(topic, "for a while")
        self.world.history.append(facts.Paused(self.world.loop.time(), self.name, topic))

    def resume(self, topic: str) -> None:
        self.world.history.append(facts.Resumed(self.world.loop.time(), self.name, topic))
        self.consumer.resume(topic)


class Table:
    """What a plugin makes of a queue: stores some messages at once, and acknowledges them then."""

    def __init__(self, member: PairMember, session: Any) -> None:
        self._member, self._session = member, session
        self._tasks: set[asyncio.Task[None]] = set()

    def take(self, messages: Sequence[Message]) -> None:
        task = asyncio.get_running_loop().create_task(self._store(list(messages)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _store(self, messages: list[Message]) -> None:
        with self._member.call(messages):
            await asyncio.sleep(0.4)
        self._session.done(messages)

    async def drain(self) -> None:
        while self._tasks:
            await asyncio.wait(self._tasks)

    def discard(self) -> None:
        for task in self._tasks:
            task.cancel()


class Pairs:
    """One simulation."""

    def __init__(self, seed: int, **consumer: Any) -> None:
        self.elements = elements = elements_of(seed)
        self._random = random = Random(f"{seed}/run")
        if POP in elements:
            consumer = {"pop_invisible_time": INVISIBLE, "subscription_check": "off", **consumer}
        self.world = world = World(
            seed=seed,
            topics=topics_of(seed, elements),
            behave=self._behave,
            block=self._block,
            latency=random.choice((0.0, 0.002, 0.02)),
            consumer=consumer,
        )
        self.main, *_ = world.topics
        self.directory: Path | None = None
        self.refused: set[tuple[int, int]] = set()
        self._cluster = Cluster(world, invisible=INVISIBLE if POP in elements else None)
        self._group = _Group(self)
        self._tasks: list[asyncio.Task[Any]] = []
        self._service_is_down = False
        self._hangs = {random.randint(20, 120)} if QUARANTINE in elements else set[int]()
        has_killers = QUARANTINE in elements and BROADCAST not in elements and not self.main.sync
        has_killers &= self.main.every is None
        self._killers = {random.randint(20, 150)} if has_killers and random.random() < 0.5 else set[int]()
        self._awaits_killer = bool(self._killers) and ROLL_OUT in elements
        """It shall be one that old members forward, if it is in a queue of theirs."""
        self._tags: dict[int, str] = {}
        """Of the messages of `orders`, by number."""
        self._kills: dict[int, int] = {}
        self._noted_kills: Counter[tuple[int, int]] = Counter()
        """Those of members that note down what they have in flight: of Java's nobody learns which message it was.

        By number, and how many dead letters there were of it: one that is not committed when its owner dies comes
        again, and nothing is known of it.
        """
        self._calls: dict[int, int] = {}
        self._stops = {random.randint(10, 120), random.randint(10, 120)} if STOP in elements else set[int]()
        self.stopped_for: float = random.choice((5.0, 90.0))
        """Seconds until a topic is resumed that its handler has stopped."""
        self._slow = random.choice((0.05, 0.2, 0.5))
        self._is_over = False

    # What handlers do.

    def ends_a_process(self, message: Message) -> bool:
        number = number_of(message.body)
        if self._awaits_killer and message.topic == MAIN and message.tag == "c" and number >= 20:
            self._awaits_killer = False
            self._killers = {number}
        is_one = message.topic == MAIN and number in self._killers and not self.main.sink
        return is_one and self._kills.get(number, 0) < MOST_KILLS

    def kill(self, member: PairMember, by: Message | None = None) -> None:
        """kill -9; it is started again soon."""
        if by is not None:
            number = number_of(by.body)
            self._kills[number] = self._kills.get(number, 0) + 1
            dead = [each for each in self.world.history if isinstance(each, facts.Stored) and each.number == number]
            dead = [each for each in dead if facts.is_dead_letter(each.queue)]
            self._noted_kills[number, len(dead)] += member.notes_in is not None
        self._group.kill(member)

    async def _behave(self, message: Message) -> Any:
        seconds, result = self._plan(message)
        if seconds:
            await asyncio.sleep(seconds)
        if isinstance(result, Exception):
            raise result
        return result

    def _block(self, message: Message) -> Any:
        seconds, result = self._plan(message)
        block(seconds)
        if isinstance(result, Exception):
            raise result
        return result

    def _plan(self, message: Message) -> tuple[float, Any]:
        """How long the call takes, and what it returns or raises."""
        number = number_of(message.body)
        if message.topic == PROBE:
            return 0.01, None
        if self._service_is_down and message.topic == MAIN:
            return 0.05, ConnectionError("the service is down")
        random, luck = Random(f"{self.world.seed}/{number}/{message.attempt}"), Random(f"{self.world.seed}/{number}")
        self._calls[number] = calls = self._calls.get(number, 0) + 1
        if number in self._hangs and message.topic == MAIN and calls < 3 and not self._is_over:
            return 200.0, None
        if number in self._stops and message.topic == MAIN and calls == 1 and self.main.every is None:
            return 0.5, Pause("the service is down")
        seconds = random.uniform(2.0, 10.0) if luck.random() < self._slow else random.uniform(0.0, 0.08)
        if self._is_over:
            seconds = min(seconds, 0.5)
        fate = luck.random()
        if any(topic.every is not None and topic.name == message.topic for topic in self.world.topics):
            # What fails makes all fail that were polled with it, and is polled until it is done.
            return seconds, ValueError("fails sometimes") if fate < 0.05 and message.attempt < 3 else None
        if fate < 0.01:
            return seconds, ValueError("fails always")
        if fate < 0.05 and random.random() < 0.5:
            outcome = random.choice((ValueError("fails sometimes"), Retry(), DeadLetter("unwanted")))
            if isinstance(outcome, DeadLetter):
                self.refused.add((number, message.attempt))
            return seconds, outcome
        return seconds, None

    # The run.

    async def run(self) -> list[str]:
        with tempfile.TemporaryDirectory(prefix="pairs") as directory:
            if QUARANTINE in self.elements:
                self.directory = Path(directory)
            return await self._run()

    async def _run(self) -> list[str]:
        await self._cluster.start()
        await self._begin_topic()
        for tags, is_java in self._first_members():
            self._group.add(tags, is_java=is_java)
            await asyncio.sleep(self._random.choice((0.1, 2.0)))
        self._start(self._group.keep_alive())
        await self._group.settled()
        await asyncio.sleep(1.0)
        watching = self._start(self._watch())
        sending = [self._start(self._send(topic, key)) for topic in self.world.topics for key in range(KEYS)]
        acting = [self._start(self._later(act)) for act in self._acts()]
        await asyncio.gather(*sending, *acting)
        self._is_over = True
        await self._group.all_alive()
        findings = await self._end_of_all()
        watching.cancel()
        return findings

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.append(task)
        return task

    async def _begin_topic(self) -> None:
        """All topics are there, so that each key has one queue."""
        for topic in self.world.topics:
            await self._cluster.sender.send(topic.name, f"{topic.name}-1", tag="b")

    def _first_members(self) -> list[tuple[str, bool]]:
        if ROLL_OUT not in self.elements:
            return [(ALL_TAGS, False)] * 2 + [(ALL_TAGS, True)] * (JAVA in self.elements)
        old = [("a || b", False)] * self._random.choice((1, 2, 3))
        return [*old, ("b || c", False), *([(ALL_TAGS, True)] if JAVA in self.elements else [])]

    async def _send(self, topic: Topic, key: int) -> None:
        random = Random(f"{self.world.seed}/{topic.name}/{key}")
        for _ in range(30 if topic.name == MAIN else 12):
            tag = random.choice(TAGS)
            sent = await self._cluster.sender.send(topic.name, f"{topic.name}-{key}", tag=tag)
            if topic.name == MAIN:
                self._tags[sent] = tag
            await asyncio.sleep(random.choice((0.0, 0.01, 0.5, 3.0)))

    # What happens meanwhile.

    def _acts(self) -> list[Callable[[], Coroutine[Any, Any, None]]]:
        acts = {
            QUARANTINE: self._kill_some,
            PAUSE: self._pause,
            BREAKER: self._lose_service,
            ADJUST: self._adjust,
            CUT: self._cut_drain,
            THIRD: self._third,
        }
        return [act for element, act in acts.items() if element in self.elements]

    async def _later(self, act: Callable[[], Coroutine[Any, Any, None]]) -> None:
        await asyncio.sleep(Random(f"{self.world.seed}/{act.__name__}").uniform(3.0, 20.0))
        await act()

    async def _kill_some(self) -> None:
        """kill -9 with much in flight, or with what hangs."""
        for _ in range(self._random.choice((1, 2))):
            member = await self._busy_one() if self._random.random() < 0.5 else None
            for _ in range(0 if member is not None else 200):
                member = max(self._group.able(), key=lambda each: (each.running, each.name), default=None)
                if member is not None and member.running >= 3:
                    break
                await asyncio.sleep(0.1)
            if member is not None and member.is_joined:
                self.kill(member)
            await asyncio.sleep(self._random.choice((5.0, 40.0)))

    async def _pause(self) -> None:
        """In one member; of a roll-out in the new one, which alone wants some messages."""
        able = self._group.able()
        newer = [each for each in able if "c" in each.tags]
        if not able:
            return
        member, seconds = self._random.choice(newer or able), self._random.choice((5.0, 90.0, 400.0))
        await self._in(member, lambda: member.pause(MAIN))
        await asyncio.sleep(seconds)
        if member.is_joined:
            await self._in(member, lambda: member.resume(MAIN))

    async def _in(self, member: PairMember, act: Callable[[], None]) -> None:
        async def acting() -> None:
            act()

        await member.process.start(acting())

    async def _lose_service(self) -> None:
        self._service_is_down = True
        self.world.fault(facts.SERVICE_DOWN)
        await asyncio.sleep(self._random.uniform(10.0, 40.0))
        self._service_is_down = False
        self.world.fault(facts.SERVICE_UP)

    async def _adjust(self) -> None:
        for changes in ({"concurrency": 2.0}, {"rate": 5.0}, {"concurrency": None, "rate": None}):
            for member in self._group.able():
                if not member.is_java:
                    await self._in(member, lambda one=member, values=changes: one.consumer.adjust({MAIN: values}))  # type: ignore[misc]
            await asyncio.sleep(self._random.choice((1.0, 10.0)))

    async def _cut_drain(self) -> None:
        """A second Ctrl-C: handlers may run no longer, and a new member comes in the place of the old one."""
        for _ in range(self._random.choice((1, 2))):
            if (member := await self._busy_one()) is not None:
                # A roll-out goes on: the new one wants what others have taken so far.
                is_newer = ROLL_OUT in self.elements and self._random.random() < 0.5
                tags = "a || b || c" if is_newer else member.tags
                await self._group.replace(member, tags, self._random.choice((0.0, 0.5, 3.0)))
            await asyncio.sleep(self._random.choice((2.0, 15.0)))

    async def _busy_one(self) -> PairMember | None:
        """A member that has calls in flight; in a roll-out one for which another member has."""
        for _ in range(50 if ROLL_OUT in self.elements else 0):
            if found := self._forwarding():
                return self._random.choice(found)
            await asyncio.sleep(0.2)
        able = [each for each in self._group.able() if not each.is_java]
        busy = [each for each in able if each.running] or able
        return self._random.choice(busy) if busy else None

    def _forwarding(self) -> list[PairMember]:
        """The owners of what other members have in flight for more than a moment."""
        owners = pair_checks.owners_of_forwarded(self.world.history, self.world.loop.time() - 1.0)
        return [each for each in self._group.able() if each.name in owners and not each.is_java]

    async def _third(self) -> None:
        tags = self._random.choice(("a || c", "b", "c")) if ROLL_OUT in self.elements else ALL_TAGS
        self._group.add(tags)

    # What is seen.

    async def _watch(self) -> None:
        """Whether every queue that does not move has its reason."""
        while True:
            await asyncio.sleep(pair_checks.LOOK)
            for member in self._group.able():
                for queue in member.consumer.snapshot().queues:
                    if queue.unfinished and not queue.blocked:
                        at, name = self.world.loop.time(), name_of(queue.queue)
                        self.world.history.append(facts.Unexplained(at, member.name, name))

    async def _end_of_all(self) -> list[str]:
        world, elements = self.world, self.elements
        orderly = {topic.name for topic in world.topics if topic.orderly}
        keyed = {topic.name for topic in world.topics if topic.keyed}
        if BROADCAST in elements:
            await everyone.all_idle(world, self._group.able(), CATCH_UP)
            present = [member.name for member in self._group.able()]
            await self._end()
            found = everyone.broken(world.history, orderly=orderly, present=present, within=CATCH_UP)
            return [*found, *pair_checks.calls_while_paused(world.history)]
        await catch_up(world, CATCH_UP)
        await self._end()
        kills = [
            f"message {number} has ended {kills} processes"
            for (number, _), kills in self._noted_kills.items()
            if kills > pair_checks.MOST_DEATHS
        ]
        if POP in elements:
            found = pop_checks.broken(
                world.history,
                retries=self.main.retries,
                refused=self.refused,
                within=CATCH_UP,
                are_cut=CUT in elements,
            )
            return [*found, *kills, *pair_checks.calls_while_paused(world.history)]
        slow = keyed & {SECOND} | {topic.name for topic in world.topics if topic.every is not None}
        if (
            {RATE, BREAKER, ADJUST, ROLL_OUT} & elements
            or self.main.concurrency < 20
            or self.main.sync
            or self.main.by_tag
        ):
            slow.add(MAIN)
        found = pair_checks.broken(
            world.history,
            orderly=orderly,
            keyed=keyed,
            prompt={PROBE, SECOND, MAIN} - slow,
            retries={topic.name: topic.retries for topic in world.topics},
            refused=self.refused,
            forwards=self._forwards,
            within=CATCH_UP,
        )
        if ADJUST not in elements and self.main.is_guarded and self.main.batch is None:
            found += guards.broken(world.history, self.main)
        return [*found, *kills, *self._held_threads()]

    def _forwards(self, owner: str, number: int) -> bool:
        """Whether a member does not want the tag of a message."""
        tags = self._group.tags_of(owner)
        return number in self._tags and tags != ALL_TAGS and self._tags[number] not in tags

    def _held_threads(self) -> list[str]:
        """No call among members of ours holds a thread of a broker for long; Java's answer when they have ended."""
        if JAVA in self.elements:
            return []
        found = []
        for broker in self._cluster.brokers:
            most = pair_checks.THREAD_HELD + 16 * self.world.latency  # there and back, in many chunks
            if broker.threads.longest > most:
                found.append(f"a request held a thread of {broker.name} for {broker.threads.longest:.2f} s")
            if broker.threads.waited > pair_checks.THREAD_AWAITED:
                found.append(f"a request waited for a thread of {broker.name} for {broker.threads.waited:.2f} s")
        return found

    async def _end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await self._group.end()
        await self._cluster.stop()


class _Group(Group):
    """Members that are started again when they died."""

    members: dict[str, PairMember]  # type: ignore[assignment]

    def __init__(self, run: Pairs) -> None:
        super().__init__(run.world)
        self._run = run
        self._wanted: list[tuple[str, bool]] = []
        self._all: list[PairMember] = []

    def add(self, tags: str, *, is_java: bool = False) -> PairMember:
        name = f"member-{len(self._all) + 1}"
        member = self.members[name] = PairMember(self._run, name, tags, is_java=is_java)
        self._all.append(member)
        self._start(self._joining(member))
        return member

    async def _joining(self, member: PairMember) -> None:
        # A process that dies as it joins never says so.
        joining = asyncio.ensure_future(member.join())
        while not joining.done() and not member.process.is_dead:
            await asyncio.wait([joining], timeout=0.5)

    def tags_of(self, name: str) -> str:
        """What this member has subscribed of `orders`, also when it is gone."""
        return next(each.tags for each in self._all if each.name == name)

    def able(self) -> list[PairMember]:  # type: ignore[override]
        return [each for each in self.members.values() if each.is_joined]

    def kill(self, member: PairMember) -> None:
        """It is started again by `keep_alive`: who is killed runs in its own context."""
        self.crash(member, silently=False)
        self._wanted.append((member.tags, member.is_java))

    async def keep_alive(self) -> None:
        while True:
            await asyncio.sleep(0.5)
            wanted, self._wanted = self._wanted, []
            for tags, is_java in wanted:
                self.add(tags, is_java=is_java)

    async def replace(self, member: PairMember, tags: str, drain_timeout: float) -> None:
        """It leaves within so many seconds; a new one comes at once."""
        self.add(tags)
        del self.members[member.name]
        member.is_joined = False
        await self._start(self._leaving_within(member, drain_timeout))

    async def _leaving_within(self, member: PairMember, drain_timeout: float) -> None:
        cut = self._world.loop.call_later(drain_timeout, self._world.fault, facts.DRAIN_CUT, member.name)
        is_clean = await self._left(member, drain_timeout)
        cut.cancel()
        if is_clean is not None:
            self._world.fault(facts.LEFT, member.name)

    async def all_alive(self) -> None:
        await asyncio.sleep(1.0)  # who has died is started again
        await self.settled()

    async def end(self) -> None:
        await super().end()
        for member in self._all:
            member.forget_notes()
