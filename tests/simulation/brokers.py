"""The embedded brokers of a simulated cluster, and the name server of several of them.

Every broker is a process with a disk, which it finds again when it starts anew.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from rocketapp.broker.request_dispatch import RequestDispatch
from rocketapp.broker.store.files import MemoryFiles
from rocketapp.broker.store.store import Appended
from rocketapp.config.broker import BrokerConfig
from rocketapp.embedded.embedded import MAX_FRAME_BYTES, EmbeddedBroker
from rocketapp.model.names import dlq_topic, retry_topic
from rocketapp.model.route import BrokerData, TopicRoute
from rocketapp.namesrv.name_server import NameServer
from rocketapp.state.shared_attempts import SHIFT
from rocketapp.testing.virtual_time import VirtualClock
from rocketapp.transport.connection import Connection
from rocketapp.transport.listener import Listener
from rocketapp.transport.stream import split_address
from rocketapp.wire.command import Command
from rocketapp.wire.record import Record
from tests.simulation import history as facts
from tests.simulation.processes import Process
from tests.simulation.world import GROUP, NAME_SERVER, World, number_of

QUEUES = 4
"""Queues of every topic on every broker."""


class NamedBroker(ABC):
    """A broker of the simulated cluster, as its name server and its disturbers know it."""

    clock: VirtualClock
    process: Process

    def __init__(self, world: World) -> None:
        number = len(world.brokers)
        world.brokers.append(self)
        self._world = world
        self.name, self.address = f"broker-{'abc'[number]}", f"10.0.0.{number + 1}:9876"
        self.is_running = False
        self.listed_until = float("-inf")
        """While it is down: until when the name server still names it."""
        self.is_hidden = False
        """The name server does not name it although it runs."""
        self._is_told = True
        """Whether the history says that the name server names it."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    @abstractmethod
    async def start(self) -> None:
        """Begin, or come again."""

    @abstractmethod
    async def stop(self, *, listed: float = 0.0) -> None:
        """A clean end; the name server goes on naming it for `listed` seconds."""

    @abstractmethod
    def crash(self, *, listed: float = 0.0) -> None:
        """kill -9."""

    @abstractmethod
    def bury(self) -> None:
        """Leave nothing behind."""

    @abstractmethod
    def route(self, topic: str) -> TopicRoute | None:
        """What the name server heard of it last."""

    @abstractmethod
    def data(self) -> tuple[BrokerData, ...]:
        """Where it is."""

    @abstractmethod
    def topic_names(self) -> list[str]:
        """The topics that it has."""

    @abstractmethod
    def lag(self) -> dict[str, int]:
        """What the group has left to do, by queue."""

    def _ends(self, listed: float) -> None:
        self.is_running = False
        now = self._world.loop.time()
        self.listed_until = now + listed
        if self._is_told:
            self._world.loop.call_at(self.listed_until, self._tell_routes)
            self._tell_routes()

    def hide(self, is_hidden: bool) -> None:
        """Whether the name server has not heard of it yet, although it runs."""
        self.is_hidden = is_hidden
        self._tell_routes()

    def _tell_routes(self) -> None:
        """Write down when the name server begins, or ceases, to name it."""
        if len(self._world.brokers) > 1 and self._is_told != self.is_listed:
            self._is_told = self.is_listed
            self._world.fault(facts.SHOW if self._is_told else facts.HIDE, self.name)

    @property
    def is_listed(self) -> bool:
        """Whether the name server names it."""
        if self.is_running:
            return not self.is_hidden
        return self._world.loop.time() < self.listed_until

    def freeze(self) -> None:
        """SIGSTOP: it hears and says nothing, and its connections stay."""
        self._world.fault(facts.FREEZE, self.name)
        self.process.freeze()

    def thaw(self) -> None:
        self._world.fault(facts.THAW, self.name)
        self.process.thaw()


class Broker(NamedBroker):
    """An embedded broker, which can be stopped, killed, frozen and started again on what it left."""

    def __init__(self, world: World, **options: Any) -> None:
        super().__init__(world)
        self._options = options
        self._files, self._starts = MemoryFiles(), 0
        self._dead: list[Process] = []
        self._embedded: EmbeddedBroker
        self._engine: Any = None

    async def start(self) -> None:
        self._starts += 1
        process = Process(f"{self.name}.{self._starts}")
        self.process, self.clock = process, VirtualClock(self._world.loop)
        await self.process.start(self._serve(process.name))
        if self._starts > 1:
            self._world.fault(facts.BROKER_START, self.name)
        self.is_running = True
        self._tell_routes()

    async def _serve(self, name: str) -> None:
        world = self._world
        self._embedded = EmbeddedBroker(
            config=BrokerConfig(listen=self.address, name=self.name, segment_bytes=1 << 20, **self._options),
            clock=self.clock,
            random=world.random(name),
            observe=lambda event: world.observed.append((world.loop.time(), name, event)),
            files=self._files,
        )
        await self._embedded.start(world.network)
        self._engine = self._embedded._broker
        if len(world.brokers) > 1:
            # A topic that one broker has and another lacks would let keys wander from queue to queue.
            for topic in world.topics:
                self.core.ensure_topic(topic.name, QUEUES)
        self._listen_in()

    def _listen_in(self) -> None:
        """Write down what this broker stores and which offsets it takes: no request shows all of them."""
        core, world, name = self.core, self._world, self.name
        append: Callable[[Record], Appended] = core.store.append
        append_batch: Callable[[Any], list[Appended]] = core.store.append_batch
        commit: Callable[[str, str, int, int], None] = core.offsets.commit

        def told(record: Record, appended: Appended) -> None:
            queue = f"{record.topic}@{name}:{record.queue_id}"
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
            if queue_id < SHIFT:  # others hold attempts
                world.history.append(facts.Committed(world.loop.time(), f"{topic}@{name}:{queue_id}", offset))
            commit(group, topic, queue_id, offset)

        core.store.append = append_and_tell
        core.store.append_batch = append_batch_and_tell
        core.offsets.commit = commit_and_tell

    @property
    def core(self) -> Any:
        """Its tables; tests look into them, the simulated clients never do."""
        return self._engine._core

    def overhear(self, hear: Callable[[Command], Command | None]) -> None:
        """Let `hear` see every request first; what it returns is the answer instead of the broker's own."""
        listener = self._embedded._listener
        assert listener is not None
        serve = listener._serve

        def serve_or_not(connection: Connection, command: Command) -> Command | None:
            return hear(command) or serve(connection, command)

        # For connections to come, and for those that are there.
        listener._serve = serve_or_not
        for connection in listener.connections:
            connection._serve = serve_or_not

    async def stop(self, *, listed: float = 0.0) -> None:
        """A clean end; the name server goes on naming it for `listed` seconds."""
        self._world.fault(facts.BROKER_STOP, self.name)
        self._ends(listed)
        await self.process.start(self._embedded.stop())

    def crash(self, *, listed: float = 0.0) -> None:
        """kill -9: what was written survives, what was only in its memory does not."""
        world = self._world
        world.fault(facts.BROKER_CRASH, self.name)
        self._ends(listed)
        self._files = self._files.clone()
        self.process.kill()
        self._dead.append(self.process)
        world.network.unlisten(self.address)
        world.network.cut(self.address)

    def bury(self) -> None:
        for process in self._dead:
            process.bury()

    def route(self, topic: str) -> TopicRoute | None:
        """What the name server heard of it last."""
        return self._engine.route(topic, self.address)  # type: ignore[no-any-return]

    def data(self) -> tuple[BrokerData, ...]:
        return self._engine.brokers(self.address)  # type: ignore[no-any-return]

    def topic_names(self) -> list[str]:
        return [config.name for config in self.core.topics]

    def lag(self) -> dict[str, int]:
        """Queues of the group that are not committed to their end, and of delayed messages that wait."""
        core, group = self.core, GROUP
        lag = {}
        for name in (*(topic.name for topic in self._world.topics), retry_topic(group)):
            config = core.topics.get(name)
            for queue_id in range(config.read_queues if config is not None else 0):
                end = core.store.max_offset(name, queue_id)
                if behind := end - (core.offsets.committed(group, name, queue_id) or 0):
                    lag[f"{name}@{self.name}:{queue_id}"] = behind
        if core.delays.next_due_ms() is not None:
            lag[f"delayed@{self.name}"] = 1
        return lag

    def dead_letters(self) -> int:
        return int(self.core.store.max_offset(dlq_topic(GROUP), 0))


class RouteServer:
    """The name server of several brokers: a process of its own that never fails."""

    def __init__(self, world: World) -> None:
        self._world, self._process = world, Process("name server")
        world.name_server = NAME_SERVER

    async def start(self) -> None:
        await self._process.start(self._serve())

    async def _serve(self) -> None:
        listener = Listener(serve=RequestDispatch(NameServer(self).table()).serve, max_frame_bytes=MAX_FRAME_BYTES)
        await self._world.network.listen(*split_address(NAME_SERVER), listener.accept)

    def bury(self) -> None:
        self._process.kill()
        self._process.bury()

    # What NameServer asks.

    def _listed(self) -> list[NamedBroker]:
        return [broker for broker in self._world.brokers if broker.is_listed]

    def route(self, topic: str, local: str) -> TopicRoute | None:
        routes = [route for broker in self._listed() if (route := broker.route(topic)) is not None]
        if not routes:
            return None
        return TopicRoute(
            tuple(queues for route in routes for queues in route.queues),
            tuple(data for route in routes for data in route.brokers),
        )

    def brokers(self, local: str) -> tuple[BrokerData, ...]:
        return tuple(data for broker in self._listed() for data in broker.data())

    def topics(self) -> list[str]:
        return sorted({name for broker in self._listed() for name in broker.topic_names()})
