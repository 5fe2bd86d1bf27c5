"""The embedded brokers of a simulated cluster, and the name server of several of them.

Every broker is a process with a disk, which it finds again when it starts anew.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import Any

from rocketapp.broker.broker import Broker as Engine
from rocketapp.broker.request_dispatch import RequestDispatch
from rocketapp.broker.store.files import MemoryFiles
from rocketapp.broker.store.stored import Stored
from rocketapp.config.broker import BrokerConfig
from rocketapp.consumer.retry.attempts import SHIFT
from rocketapp.embedded.embedded import MAX_FRAME_BYTES, EmbeddedBroker
from rocketapp.model.names import dlq_topic, retry_topic
from rocketapp.namesrv.kv_config import KvConfig
from rocketapp.namesrv.name_server import NameServer, Shown
from rocketapp.testing.virtual_time import VirtualClock
from rocketapp.transport.answers import KEYS_ARE_ENOUGH, Served, table_of
from rocketapp.transport.answers import Process as Processor
from rocketapp.transport.connection import Connection, Listener
from rocketapp.transport.stream import split_address
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import Command
from rocketapp.wire.layout import Record
from tests.simulation import history as facts
from tests.simulation.processes import Process
from tests.simulation.world import GROUP, NAME_SERVER, World, number_of

QUEUES = 4
"""Queues of every topic on every broker."""
ADMIN_THREADS, ADMIN_PATIENCE = 16, 5.0
"""Threads of Apache's broker for what has no threads of its own, and seconds until it refuses what waits for one."""
_OTHER_THREADS = frozenset(
    {
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE_V2,
        RequestCode.CONSUMER_SEND_MSG_BACK,
        RequestCode.PULL_MESSAGE,
        RequestCode.LITE_PULL_MESSAGE,
        RequestCode.QUERY_MESSAGE,
        RequestCode.VIEW_MESSAGE_BY_ID,
        RequestCode.HEART_BEAT,
        RequestCode.UNREGISTER_CLIENT,
        RequestCode.CHECK_CLIENT_CONFIG,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.END_TRANSACTION,
    }
)
"""What Apache's broker serves in other threads (BrokerController.registerProcessor)."""


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
    def shown(self) -> Shown:
        """What the name server heard of it last."""

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


class AdminThreads:
    """The threads in which Apache's broker serves locks, maximum offsets and whatever administrators ask.

    A request that is forwarded to a member (307, 309) holds one of them until the member answers.
    """

    def __init__(self, fault: Callable[[str], None]) -> None:
        """`fault` is told when a request is refused because all threads were held for too long."""
        self._fault = fault
        self._held: dict[object, float] = {}
        self._waiting: deque[tuple[float, Processor, Connection, Command]] = deque()
        self.longest: float = 0.0
        """Seconds for which a request has held a thread, at most."""
        self.waited: float = 0.0
        """Seconds for which a request has waited for a thread, at most."""

    def __repr__(self) -> str:
        return f"<AdminThreads: {len(self._held)} held, {len(self._waiting)} requests wait>"

    def serve(self, process: Processor, connection: Connection, command: Command) -> Command | None:
        """The answer, if a thread is free and the answer is there at once; otherwise None, and a reply later."""
        if len(self._held) >= ADMIN_THREADS:
            now = asyncio.get_running_loop().time()
            self._waiting.append((now, process, connection, command))
            asyncio.get_running_loop().call_at(now + ADMIN_PATIENCE, self._refuse_late)
            return None
        held = _Held(connection, self._free)
        answer = process(held, command)  # type: ignore[arg-type]
        if answer is None:
            self._held[held] = asyncio.get_running_loop().time()
        return answer

    def _free(self, held: object) -> None:
        now = asyncio.get_running_loop().time()
        if (since := self._held.pop(held, None)) is not None:
            self.longest = max(self.longest, now - since)
        while self._waiting and len(self._held) < ADMIN_THREADS:
            asked, process, connection, command = self._waiting.popleft()
            self.waited = max(self.waited, now - asked)
            row = Served(partial(self.serve, process), KEYS_ARE_ENOUGH)
            if (
                response := RequestDispatch({command.code: row}, store_sends=None).serve(connection, command)
            ) is not None:
                connection.reply(response)

    def _refuse_late(self) -> None:
        now = asyncio.get_running_loop().time()
        while self._waiting and self._waiting[0][0] + ADMIN_PATIENCE <= now:
            _, _, connection, command = self._waiting.popleft()
            self._fault(f"request {command.code}")
            remark = "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while"
            connection.reply(Command.response(command, ResponseCode.SYSTEM_BUSY, fields={}, remark=remark))


class _Held:
    """The connection as a request knows it that is answered later: its thread is free when it has replied."""

    def __init__(self, connection: Connection, free: Callable[[object], None]) -> None:
        self._connection, self._free = connection, free

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def reply(self, response: Command) -> None:
        self._connection.reply(response)
        self._free(self)


class _Watched(EmbeddedBroker):
    """An embedded broker with Apache's threads, whose requests others may hear, and whose tables tests may see."""

    engine: Engine
    core: Any
    """Its tables; tests look into them, the simulated clients never do."""

    def __init__(self, threads: AdminThreads, **options: Any) -> None:
        super().__init__(**options)
        self._threads = threads
        self.hearers: list[Callable[[Command], Command | None]] = []

    def _new_listener(self, broker: Engine, texts: KvConfig, *_: object) -> Listener:  # type: ignore[override]
        self.engine, self.core = broker, broker._core
        table = {code: self._in_thread(code, row) for code, row in broker.table().items()}
        dispatch = RequestDispatch(
            table, table_of(NameServer(lambda: [broker.shown()]), texts), store_sends=broker.store_sends
        )

        def serve(connection: Connection, command: Command) -> Command | None:
            for hear in self.hearers:
                if (answer := hear(command)) is not None:
                    return answer
            return dispatch.serve(connection, command)

        return Listener(
            serve=serve,
            max_frame_bytes=MAX_FRAME_BYTES,
            on_lost=lambda connection, _: broker.connection_lost(connection),
            on_served=broker.store_sends,
        )

    def _in_thread(self, code: int, row: Served) -> Served:
        return row if code in _OTHER_THREADS else row._replace(process=partial(self._threads.serve, row.process))


class Broker(NamedBroker):
    """An embedded broker, which can be stopped, killed, frozen and started again on what it left."""

    def __init__(self, world: World, **options: Any) -> None:
        super().__init__(world)
        self.options = options
        self.pace = world.pace
        self._files, self._starts = MemoryFiles(), 0
        self._dead: list[Process] = []
        self._embedded: _Watched
        self.threads: AdminThreads

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
        self.threads = AdminThreads(lambda request: world.fault(facts.REFUSED, f"{self.name}: {request}"))
        self._embedded = _Watched(
            self.threads,
            config=BrokerConfig(listen=self.address, name=self.name, segment_bytes=1 << 20, **self.options),
            clock=self.clock,
            random=world.random(name),
            observe=lambda event: world.observed.append((world.loop.time(), name, event)),
            files=self._files,
            pace=self.pace,
        )
        await self._embedded.start(world.network)
        if len(world.brokers) > 1:
            # A topic that one broker has and another lacks would let keys wander from queue to queue.
            for topic in world.topics:
                self.core.ensure_topic(topic.name, QUEUES)
        self._listen_in()

    def _listen_in(self) -> None:
        """Write down what this broker stores and which offsets it takes: no request shows all of them."""
        core, world, name = self.core, self._world, self.name
        append_batch: Callable[..., list[Stored]] = core.store.append_batch
        commit: Callable[[str, str, int, int], None] = core.offsets.commit

        def told(record: Record, appended: Stored) -> None:
            if record.topic.startswith("rmq_sys_REVIVE_LOG"):
                return  # what is hidden of popped topics
            queue = f"{record.topic}@{name}:{record.queue_id}"
            stored = facts.Stored(world.loop.time(), queue, appended.queue_offset, number_of(record.body))
            world.history.append(stored)

        def append_batch_and_tell(records: Any, *, ignores_refusal: bool = False) -> list[Stored]:
            stored = append_batch(records, ignores_refusal=ignores_refusal)
            for record, appended in zip(records, stored, strict=True):
                told(record, appended)
            return stored

        def commit_and_tell(group: str, topic: str, queue_id: int, offset: int) -> None:
            if queue_id < SHIFT:  # others hold attempts
                world.history.append(facts.Committed(world.loop.time(), f"{topic}@{name}:{queue_id}", offset))
            commit(group, topic, queue_id, offset)

        core.store.append_batch = append_batch_and_tell
        core.offsets.commit = commit_and_tell

    @property
    def core(self) -> Any:
        """Its tables."""
        return self._embedded.core

    def overhear(self, hear: Callable[[Command], Command | None]) -> None:
        """Let `hear` see every request first; what it returns is the answer instead of the broker's own."""
        self._embedded.hearers.append(hear)

    async def stop(self, *, listed: float = 0.0) -> None:
        """A clean end; the name server goes on naming it for `listed` seconds."""
        self._world.fault(facts.BROKER_STOP, self.name)
        self._ends(listed)
        await self.process.start(self._embedded.stop())

    def crash(self, *, listed: float = 0.0, is_lost: bool = False) -> None:
        """kill -9: what was written survives, what was only in its memory does not. `is_lost`: its disk is lost too."""
        world = self._world
        world.fault(facts.BROKER_CRASH, self.name)
        self._ends(listed)
        self._files = MemoryFiles() if is_lost else deepcopy(self._files)
        self.process.kill()
        self._dead.append(self.process)
        world.network.unlisten(self.address)
        world.network.cut(self.address)

    def bury(self) -> None:
        for process in self._dead:
            process.bury()

    def shown(self) -> Shown:
        return self._embedded.engine.shown()

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
        listener = Listener(
            serve=RequestDispatch(table_of(NameServer(self._shown)), store_sends=None).serve,
            max_frame_bytes=MAX_FRAME_BYTES,
        )
        await self._world.network.listen(*split_address(NAME_SERVER), listener.accept)

    def bury(self) -> None:
        self._process.kill()
        self._process.bury()

    def _shown(self) -> list[Shown]:
        return [broker.shown() for broker in self._world.brokers if broker.is_listed]
