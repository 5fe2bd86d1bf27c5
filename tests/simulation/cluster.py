"""A simulated cluster: one broker in memory, a producer, the members of one group, and whoever disturbs them.

Everything follows from the seed. The broker, the producer and every member are processes of their own, with
clocks of their own; what they do to each other goes over a network whose latency and chunks the seed draws.
What happens is written into one history.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from rocketapp.broker.store.files import MemoryFiles
from rocketapp.broker.store.store import Appended
from rocketapp.client.instance import ClientInstance
from rocketapp.config.broker import BrokerConfig
from rocketapp.config.client import ClientConfig
from rocketapp.config.consumer import ConsumerConfig
from rocketapp.config.producer import ProducerConfig
from rocketapp.consumer.handler import ConsumedTopic, Handler
from rocketapp.consumer.parts import ConsumerParts
from rocketapp.consumer.push_consumer import PushConsumer
from rocketapp.embedded.embedded import EmbeddedBroker
from rocketapp.errors import SendRefused, SendUnknown, TransportError
from rocketapp.model import event as events
from rocketapp.model.names import dlq_topic, retry_topic
from rocketapp.model.outgoing import Outgoing
from rocketapp.model.subscription import Start, Subscription, SubscriptionData
from rocketapp.producer.producer import Producer
from rocketapp.state.cache_budget import CacheBudget
from rocketapp.transport.connection import Connection
from rocketapp.transport.memory import MemoryNetwork
from rocketapp.wire.command import Command
from rocketapp.wire.record import Message, Record
from tests.simulation import history as facts
from tests.simulation.history import Event, Fault
from tests.simulation.processes import Process
from tests.simulation.virtual_time import VirtualClock

ADDRESS, GROUP = "10.0.0.1:9876", "group"
Behave = Callable[[Message], Any]
"""What the handler of a message does: returns an awaitable."""


@dataclass(frozen=True, kw_only=True)
class Topic:
    """What the group subscribes to."""

    name: str
    orderly: bool = False
    retries: int = 2
    start: Start = "first"
    concurrency: int = 64


@dataclass(kw_only=True)
class World:
    """What all parts of a simulation share."""

    seed: int
    topics: tuple[Topic, ...]
    behave: Behave
    latency: float = 0.01
    consumer: Mapping[str, Any] = field(default_factory=dict)
    """Options of ConsumerConfig that are not the defaults."""
    history: list[Event] = field(default_factory=list)
    observed: list[tuple[float, str, events.Event]] = field(default_factory=list)
    """What the engine told, with the time and the name of the process."""

    def __post_init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.network = MemoryNetwork(self.random("network"), latency=self.latency)

    def random(self, name: str) -> Random:
        """A source of chance of its own for everybody, so that one who draws more does not shift the others."""
        return Random(f"{self.seed}/{name}")

    def fault(self, kind: str, who: str = "") -> None:
        self.history.append(Fault(self.loop.time(), kind, who))


def number_of(body: bytes) -> int:
    """Bodies are decimal numbers."""
    return int(body)


class Broker:
    """The embedded broker, which can be stopped, killed and started again on what it left."""

    def __init__(self, world: World, **options: Any) -> None:
        self._world, self._options = world, options
        self._files, self._starts = MemoryFiles(), 0
        self._dead: list[Process] = []
        self.process: Process
        self.clock: VirtualClock
        self._broker: EmbeddedBroker
        self.is_running = False

    async def start(self) -> None:
        self._starts += 1
        name = f"broker-{self._starts}"
        self.process, self.clock = Process(name), VirtualClock(self._world.loop)
        await self.process.start(self._serve(name))
        self.is_running = True

    async def _serve(self, name: str) -> None:
        world = self._world
        self._broker = EmbeddedBroker(
            config=BrokerConfig(listen=ADDRESS, segment_bytes=1 << 20, **self._options),
            clock=self.clock,
            random=world.random(name),
            observe=lambda event: world.observed.append((world.loop.time(), name, event)),
            files=self._files,
        )
        await self._broker.start(world.network)
        self._listen_in()

    def _listen_in(self) -> None:
        """Write down what this broker stores and which offsets it takes: no request shows all of them."""
        core, world = self.core, self._world
        append: Callable[[Record], Appended] = core.store.append
        append_batch: Callable[[Any], list[Appended]] = core.store.append_batch
        commit: Callable[[str, str, int, int], None] = core.offsets.commit

        def told(record: Record, appended: Appended) -> None:
            queue = f"{record.topic}:{record.queue_id}"
            stored = facts.Stored(world.loop.time(), queue, appended.queue_offset, number_of(record.body))
            world.history.append(stored)

        def append_and_tell(record: Record) -> Appended:
            appended = append(record)
            told(record, appended)
            return appended

        def append_batch_and_tell(records: Any) -> list[Appended]:
            stored = append_batch(records)
            for record, appended in zip(records, stored, strict=True):
                told(record, appended)
            return stored

        def commit_and_tell(group: str, topic: str, queue_id: int, offset: int) -> None:
            world.history.append(facts.Committed(world.loop.time(), f"{topic}:{queue_id}", offset))
            commit(group, topic, queue_id, offset)

        core.store.append = append_and_tell
        core.store.append_batch = append_batch_and_tell
        core.offsets.commit = commit_and_tell

    @property
    def core(self) -> Any:
        """Its tables; tests look into them, nobody in the simulation does."""
        return self._broker._broker._core  # type: ignore[union-attr]

    def overhear(self, hear: Callable[[Command], Command | None]) -> None:
        """Let `hear` see every request first; what it returns is the answer instead of the broker's own."""
        listener = self._broker._listener
        assert listener is not None
        serve = listener._serve

        def serve_or_not(connection: Connection, command: Command) -> Command | None:
            return hear(command) or serve(connection, command)

        # For connections to come, and for those that are there.
        listener._serve = serve_or_not
        for connection in listener.connections:
            connection._serve = serve_or_not

    async def stop(self) -> None:
        """A clean end."""
        self._world.fault(facts.BROKER_STOP)
        self.is_running = False
        await self.process.start(self._broker.stop())

    def crash(self) -> None:
        """kill -9: what was written survives, what was only in its memory does not."""
        world = self._world
        world.fault(facts.BROKER_CRASH)
        self.is_running = False
        self._files = self._files.clone()
        self.process.kill()
        self._dead.append(self.process)
        world.network.unlisten(ADDRESS)
        world.network.cut(ADDRESS)

    def bury(self) -> None:
        for process in self._dead:
            process.bury()

    def lag(self) -> dict[str, int]:
        """Queues of the group that are not committed to their end, and of delayed messages that wait."""
        core, group = self.core, GROUP
        lag = {}
        for name in (*(topic.name for topic in self._world.topics), retry_topic(group)):
            config = core.topics.get(name)
            for queue_id in range(config.read_queues if config is not None else 0):
                end = core.store.max_offset(name, queue_id)
                if behind := end - (core.offsets.committed(group, name, queue_id) or 0):
                    lag[f"{name}:{queue_id}"] = behind
        if core.delays.next_due_ms() is not None:
            lag["delayed"] = 1
        return lag

    def dead_letters(self) -> int:
        return int(self.core.store.max_offset(dlq_topic(GROUP), 0))


class _Client:
    """A process with a client of the cluster."""

    def __init__(self, world: World, name: str, pid: int) -> None:
        self.world, self.name, self._pid = world, name, pid
        self.process, self.clock = Process(name), VirtualClock(world.loop)
        self.client: ClientInstance

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    def _observe(self, event: events.Event) -> None:
        self.world.observed.append((self.world.loop.time(), self.name, event))

    async def _connect(self) -> None:
        world = self.world
        self.client = ClientInstance(
            config=ClientConfig(name_server=ADDRESS),
            dial=world.network.dialer(self.name),
            clock=self.clock,
            random=world.random(f"{self.name} client"),
            observe=self._observe,
            client_ip="10.0.1.1",
            pid=self._pid,
        )
        while True:
            try:
                return await self.client.start()
            except TransportError:
                await asyncio.sleep(1)

    def _producer(self) -> Producer:
        return Producer(
            client=self.client,
            config=ProducerConfig(),
            group=f"producer-{self.name}",
            clock=self.clock,
            random=self.world.random(f"{self.name} producer"),
            observe=self._observe,
        )


class Sender(_Client):
    """A process that only publishes; its numbers count up from 1."""

    def __init__(self, world: World, name: str = "sender") -> None:
        super().__init__(world, name, 1)
        self.producer: Producer
        self._number = 0

    async def start(self) -> None:
        await self.process.start(self._start())

    async def _start(self) -> None:
        await self._connect()
        self.producer = self._producer()
        await self.producer.start()

    def send_all(self, topic: str, key: str, count: int, pause: Callable[[], float]) -> asyncio.Task[None]:
        """Send so many messages of one key, one after the other."""
        return self.process.start(self._send_all(topic, key, count, pause))

    async def _send_all(self, topic: str, key: str, count: int, pause: Callable[[], float]) -> None:
        for _ in range(count):
            await self._send(topic, key)
            await asyncio.sleep(pause())

    async def send(self, topic: str, key: str = "", **more: Any) -> int:
        """Send one message; its number."""
        return await self.process.start(self._send(topic, key, **more))

    async def _send(self, topic: str, key: str, **more: Any) -> int:
        self._number += 1
        number, outcome = self._number, "ok"
        try:
            await self.producer.send(Outgoing(topic=topic, body=b"%d" % number, order_key=key or None, **more))
        except SendRefused:
            outcome = "refused"
        except SendUnknown:
            outcome = "unknown"
        self.world.history.append(facts.Sent(self.world.loop.time(), number, key, outcome))
        return number

    async def stop(self) -> None:
        await self.process.start(self._stop())

    async def _stop(self) -> None:
        await self.producer.stop()
        await self.client.stop()


class Member(_Client):
    """A process with one consumer of the group."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name, 100 + sum(map(ord, name)))
        self.consumer: PushConsumer
        self.producer: Producer
        self.is_joined = False
        self.running = 0
        """Handlers that run now."""

    async def join(self) -> None:
        self.world.fault(facts.JOIN, self.name)
        await self.process.start(self._join())

    async def _join(self) -> None:
        await self._connect()
        self.producer = self._producer()
        await self.producer.start()
        world = self.world
        parts = ConsumerParts(
            client=self.client,
            producer=self.producer,
            config=ConsumerConfig(**world.consumer),
            clock=self.clock,
            random=world.random(f"{self.name} consumer"),
            observe=self._observe,
            flow_control=CacheBudget(1 << 27),
        )
        topics = [self._consumed(topic) for topic in world.topics]
        self.consumer = PushConsumer(group=GROUP, topics=topics, parts=parts)
        await self.consumer.join()
        self.consumer.begin()
        self.is_joined = True

    async def leave(self, *, drain_timeout: float = 60.0) -> bool:
        """A clean end; whether everything that was started has been finished and committed."""
        self.world.fault(facts.LEAVE, self.name)
        return await self.process.start(self._leave(drain_timeout))

    async def _leave(self, drain_timeout: float) -> bool:
        self.is_joined = False
        is_clean = await self.consumer.stop(drain_timeout=drain_timeout, cut=asyncio.Event())
        await self.producer.stop()
        await self.client.stop()
        return is_clean

    def crash(self, *, silently: bool = False) -> None:
        """kill -9; `silently`: the machine is gone too, so nobody hears its connections end."""
        self.is_joined = False
        self.process.kill()
        if silently:
            self.world.network.hold(self.name)
        else:
            self.world.network.cut(self.name)
        self.world.fault(facts.CRASH, self.name)

    def freeze(self) -> None:
        self.process.freeze()
        self.world.fault(facts.FREEZE, self.name)

    def thaw(self) -> None:
        self.world.fault(facts.THAW, self.name)
        self.process.thaw()

    def _observe(self, event: events.Event) -> None:
        super()._observe(event)
        now, history = self.world.loop.time(), self.world.history
        if isinstance(event, events.Assigned):
            history.append(facts.Assigned(now, self.name, _queue(event.queue)))
        elif isinstance(event, events.Released):
            history.append(facts.Released(now, self.name, _queue(event.queue)))

    def _consumed(self, topic: Topic) -> ConsumedTopic:
        subscription = Subscription(
            topic=topic.name,
            group=GROUP,
            tags=frozenset(),
            expression="*",
            orderly=topic.orderly,
            batch=None,
            batch_wait=0.1,
            concurrency=topic.concurrency,
            retries=topic.retries,
            start=topic.start,
            timeout=None,
            cluster="",
            is_async=True,
            handler_name=f"simulated:{topic.name}",
            place="",
        )
        handler = Handler(subscription, self._handle)
        return ConsumedTopic(
            topic.name, topic.orderly, topic.start, topic.retries, (handler,), SubscriptionData(topic.name)
        )

    async def _handle(self, message: Message) -> Any:
        loop, history = self.world.loop, self.world.history
        about = self.name, _queue(message.queue), message.offset, number_of(message.body), message.attempt
        history.append(facts.Started(loop.time(), *about))
        self.running += 1
        try:
            result = await self.world.behave(message)
        except asyncio.CancelledError:
            raise  # neither done nor failed
        except Exception:
            history.append(facts.Finished(loop.time(), *about, False))
            raise
        finally:
            self.running -= 1
        history.append(facts.Finished(loop.time(), *about, True))
        return result


def _queue(queue: Any) -> str:
    return f"{queue.topic}:{queue.queue_id}"


async def catch_up(world: World, broker: Broker, within: float, *, look: float = 0.25) -> bool:
    """Wait until nothing is left to do; whether that was so in time."""
    world.history.append(facts.Calm(world.loop.time()))
    until = world.loop.time() + within
    while broker.lag():
        if world.loop.time() >= until:
            return False
        await asyncio.sleep(look)
    world.history.append(facts.Idle(world.loop.time()))
    return True
