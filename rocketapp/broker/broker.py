"""The broker: its tables, its processors and its background loops.

To make one recovers everything; nothing is served yet. `start` starts the loops. `stop` ends them, saves the tables
and closes the store. Each loop has one task. A failed round is reported, and the next round comes.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable, Generator, Mapping
from dataclasses import dataclass
from random import Random

from rocketapp.broker.broker_state import BrokerFacts
from rocketapp.broker.core import Core, ended
from rocketapp.broker.delays import DelayedMessages
from rocketapp.broker.flushing import Flusher
from rocketapp.broker.half_messages import HalfMessages
from rocketapp.broker.indexing import Indexing
from rocketapp.broker.lock_file import LockFile
from rocketapp.broker.locks import LockTable
from rocketapp.broker.pop import Pops
from rocketapp.broker.pop_log import ReviveLog
from rocketapp.broker.processors.assignment import AssignmentProcessor
from rocketapp.broker.processors.clients import ClientProcessor
from rocketapp.broker.processors.groups import GroupProcessor
from rocketapp.broker.processors.locks import LockProcessor
from rocketapp.broker.processors.offsets import OffsetProcessor
from rocketapp.broker.processors.pop import PopProcessor
from rocketapp.broker.processors.pull import PullProcessor
from rocketapp.broker.processors.queries import QueryProcessor
from rocketapp.broker.processors.recall import RecallProcessor
from rocketapp.broker.processors.replication import ReplicationProcessor
from rocketapp.broker.processors.replies import ReplyProcessor
from rocketapp.broker.processors.runtime import RuntimeProcessor
from rocketapp.broker.processors.send import SendProcessor
from rocketapp.broker.processors.send_back import SendBackProcessor
from rocketapp.broker.processors.topics import TopicProcessor
from rocketapp.broker.processors.transactions import TransactionProcessor
from rocketapp.broker.replication.master import Master
from rocketapp.broker.replication.slave import MasterLog, MasterTables
from rocketapp.broker.request_dispatch import of_slave
from rocketapp.broker.retention import Retention
from rocketapp.broker.saving import Saving
from rocketapp.broker.scrub import Scrub
from rocketapp.broker.steady_clock import SteadyClock
from rocketapp.broker.store.files import Files
from rocketapp.broker.store.key_index import KeyIndex
from rocketapp.broker.store.store import MessageStore
from rocketapp.broker.timers import TimedMessages
from rocketapp.broker.topics import TopicTable
from rocketapp.clock import Clock
from rocketapp.config.broker import BrokerConfig
from rocketapp.errors import BrokerError, StoreError
from rocketapp.model.event import LoopFailed, Observe
from rocketapp.model.route import BrokerData
from rocketapp.tasks import Tasks, is_set_by
from rocketapp.transport.answers import Served, table_of
from rocketapp.transport.connection import Connection
from rocketapp.transport.pool import Pool
from rocketapp.transport.stream import join_address, split_address
from rocketapp.wire.message_id import UniqueIds
from rocketapp.wire.requests.admin import TopicConfig

RESTART_DELAY = 1.0
"""Seconds until delivery of delayed messages is tried again after an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Seconds between the rounds of those loops that have no option. A test in virtual time takes fewer rounds."""

    expiry: float = 10.0
    """Scans for silent clients and expired locks (Java: scanNotActiveChannel)."""
    traffic: float = 1.0
    """Samples of the traffic."""
    delays: float = 0.5
    """Scans of the delayed messages that wait, at most, so that a jump of the wall clock is noticed."""
    delivered: float = 2.0
    """Writes of how far delayed messages and timers are delivered: a crash repeats what was delivered since."""
    index: float = 5.0
    """Writes of the key index: after a crash it reads again what was stored since."""


USUAL_PACE = Pace()


class Broker:
    """One broker of one cluster: a master, or a slave, which delivers, checks and stores nothing by itself."""

    def __init__(
        self,
        *,
        files: Files,
        config: BrokerConfig,
        clock: Clock,
        random: Random,
        observe: Observe,
        in_thread: bool = False,
        pace: Pace = USUAL_PACE,
    ) -> None:
        """Recover the store, then the tables. Raises ConfigError when a file cannot be used.

        `in_thread`: flushes and saves run in a thread, because disks can be slow.
        """
        self._observe, self._pace = observe, pace
        loop = self._loop = asyncio.get_running_loop()
        steady = SteadyClock(clock, loop.time)
        store = MessageStore(files, config, steady, observe)
        steady.begin_at(store.last_ms / 1000)
        try:
            core = self._recover(store, config, steady, random, in_thread=in_thread)
            index = self._index = KeyIndex(files, clock.now, slots=config.index_slots, items=config.index_items)
        except BaseException:
            store.close()
            raise
        self.topic_table: TopicTable = core.topics
        """The configurations of its topics."""
        self.halves: HalfMessages = core.halves
        """The transactions that are open."""
        run = self._flusher.run
        self._indexing = Indexing(core.store, index, self._flusher, observe)
        self._retention = Retention(store, index, config, clock=clock, observe=observe, run=run)
        self._pulls = PullProcessor(core, loop)
        self._held_pops = PopProcessor(core, self._pops, loop)
        self._clients = ClientProcessor(core, observe)
        self._transactions = TransactionProcessor(core)
        self._sends = SendProcessor(core, self._flusher)
        self._tasks = Tasks(observe)
        has_slaves = core.config.ha_port > 0 and not core.store.is_copy
        self.master: Master | None = Master(core.store, observe, core.config.slave_timeout) if has_slaves else None
        """The slaves that copy the log; None where the option says that there are none."""
        self._following: MasterLog | None = None
        self._master_pool: Pool | None = None
        if self.master is not None:
            self._flusher.on_flushed = self.master.flushed
            if core.config.role == "sync_master":
                self._flusher.answered = self.master.hold
        self._scrub = Scrub(core.store, core.config, observe=observe, run=run)
        self.facts: BrokerFacts = BrokerFacts(core, loop.time(), self.master, self._scrub)
        """What it knows of itself, for whoever shows it."""
        core.store.followers += [self._pulls.follow, self._held_pops.follow]
        core.on_topic_created = self._clients.topic_created
        core.delays.on_scheduled = core.timers.on_scheduled = self._pops.log.on_scheduled = self._scan_in
        self._scan_at = 0.0
        """The loop's time of the next scan of the delayed messages."""
        self._scan_sooner = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Broker {self._core.config.name} at {self._core.address or 'no address yet'}>"

    def _recover(
        self, store: MessageStore, config: BrokerConfig, clock: SteadyClock, random: Random, *, in_thread: bool
    ) -> Core:
        """The tables of an open store, loaded from their files."""
        files, observe, monotonic = store.files, self._observe, asyncio.get_running_loop().time
        saving = self._saving = Saving(files, store, config, clock=clock, observe=observe)
        is_sync = config.flush == "sync" or config.role == "sync_master"
        self._flusher = Flusher(store, saving, observe=observe, is_sync=is_sync, in_thread=in_thread)
        store.placed = saving.topics.placed
        locks = LockTable(config.lock_expiry)
        lock_file = LockFile(files, locks, clock=clock, monotonic=monotonic, observe=observe, in_thread=in_thread)
        self._lock_file = lock_file
        lock_file.load(store)
        progress = saving.offsets.transactions_progress()
        core = self._core = Core(
            config=config,
            clock=clock,
            random=random,
            monotonic=monotonic,
            store=store,
            delays=DelayedMessages(store, files, clock, observe),
            timers=TimedMessages(store, files, clock, observe),
            halves=HalfMessages(store, observe, timeout=config.transaction_timeout, progress=progress),
            topics=saving.topics,
            groups=saving.groups,
            offsets=saving.offsets,
            locks=locks,
            save_locks=lock_file.save,
            save=self._flusher.save_names,
            unique_ids=UniqueIds(b"\x7f\x00\x00\x01", random.getrandbits(16), random.getrandbits(32)),
            copies_from="" if store.is_copy else None,
        )
        self._pops = Pops(core, ReviveLog(core, observe), saving.order, observe)
        saving.save_all()  # a full disk is reported, and does not keep a broker from serving what it has
        lock_file.save_now()
        return core

    # Serving.

    def table(self) -> dict[int, Served]:
        """What it answers, by request code."""
        core, sends = self._core, self._sends
        table = self.table_of(
            SendBackProcessor(core),
            self._held_pops,
            AssignmentProcessor(core, self._saving.modes),
            OffsetProcessor(core, self._answer_held),
            QueryProcessor(core, self._index, self._indexing),
            self._clients,
            self._transactions,
            RecallProcessor(core),
            ReplyProcessor(core, sends),
            LockProcessor(core),
            TopicProcessor(core, self.facts, self._topic_gone, self._delete),
            GroupProcessor(core),
            RuntimeProcessor(core, self._loop.time()),
        )
        if self.master is not None or core.store.is_copy:
            replication = ReplicationProcessor(core, self.master, self._flusher)
            table |= self.table_of(replication)
        # A pull appends and creates nothing that its answer counts on, and sends wait for the disk many at once.
        table = self._flusher.holding(table) | self.table_of(self._pulls, sends)
        return of_slave(table) if core.store.is_copy else table

    def table_of(self, *processors: object) -> dict[int, Served]:
        """What these processors answer, some of it later."""
        return table_of(*processors, tasks=self._tasks)

    def store_sends(self) -> None:
        """Store and answer what was sent since the last call."""
        self._sends.store_sends()

    async def run(self, work: Callable[[], object]) -> None:
        """Run disk work where the event loop does not wait for it."""
        await self._flusher.run(work)

    def connection_lost(self, connection: Connection) -> None:
        self._pulls.held.forget(connection)
        self._held_pops.held.forget(connection)
        self._clients.connection_lost(connection)

    def shown(self) -> tuple[BrokerData, Mapping[str, TopicConfig]]:
        """What name servers know of it: where it is, and its topics."""
        core = self._core
        return BrokerData(core.config.cluster, core.config.name, {core.broker_id: core.address}), core.topics.by_name

    @property
    def ha_address(self) -> str:
        """Where slaves copy the log; empty where nobody does."""
        return self._core.ha_address

    def create_topic(self, topic: str) -> None:
        """Create a topic with `broker.topic_queues` queues, unless it exists."""
        self._core.ensure_topic(topic, self._core.config.topic_queues)

    def next_delayed(self) -> float | None:
        """When the next of the delayed or popped messages is due, in seconds since 1970; None when no message waits."""
        due = (self._core.delays.next_due_ms(), self._pops.next_due_ms, self._core.timers.next_due_ms())
        return min((due_ms / 1000 for due_ms in due if due_ms is not None), default=None)

    # Starting and stopping.

    async def start(self, address: str) -> None:
        """Start the loops. `address` is the `host:port` at which clients reach the broker."""
        self._core.address = address
        if self.master is not None:  # by the name that clients are told, which slaves are too
            self._core.ha_address = join_address(split_address(address)[0], self.master.port)
        self._core.store.repair.later = lambda steps: self._tasks.start(_in_turns(steps), "broker mends a queue")
        config = self._core.config
        self._every(config.flush_interval, "flush", self._flusher.flush)
        self._every(config.offsets_flush_interval, "offsets", self._save_offsets)
        self._every(config.clean_interval, "retention", lambda: self._retention.clean(self._core.first_waiting))
        self._every(self._pace.index, "index", self._indexing.save)
        self._every(self._pace.expiry, "expiry", self._expire)
        self._every(self._pace.traffic, "traffic", lambda: self._core.traffic.sample(self._loop.time()))
        self._every(self._pace.delivered, "what is delivered", self._save_delivered)
        self._tasks.start(self._scrub.run(), "broker scrub")
        self._tasks.start(self._flusher.answer(), "broker replies")
        self._tasks.start(self._lock_file.run(), "broker locks")
        if not self._core.store.is_copy:
            self._every(config.transaction_check_interval, "transactions", self._transactions.check)
            self._tasks.start(self._deliver_delayed(), "broker delays")

    def follow(self, pool: Pool) -> None:
        """Begin to follow the master, as a slave does after its start. `pool`: connections to it, closed by `stop`."""
        core = self._core
        modes, log = self._saving.modes, self._pops.log
        tables = MasterTables(core, modes, log, self._delete_below, pool=pool, observe=self._observe)
        self._following = MasterLog(core.store, tables, self._observe, core.config.master)
        self._master_pool = pool
        self._tasks.start(self._following.run(), "broker follows the master")

    def master_is(self, address: str) -> None:
        """A name server says where the master is; an option that says it wins."""
        if self._following is not None and not self._core.config.master and address:
            self._following.master = address

    def drop_held_pulls(self) -> None:
        """Drop the held pulls and pops without an answer: the server stops."""
        self._pulls.held.stop()
        self._held_pops.held.stop()

    async def stop(self) -> None:
        """End the loops, save the tables, close the store."""
        self.drop_held_pulls()
        await self._tasks.close()
        if self._master_pool is not None:
            await self._master_pool.close()
        self._core.store.repair.later = None
        self._lock_file.close()
        self._flusher.close()
        popped = self._write_popped()
        self._core.store.flush()
        if self.master is not None:
            await self.master.finish()
        self._indexing.close()
        if not self._core.store.is_copy and self._core.store.problem is None:  # a slave's progress is its master's
            self._core.offsets.transactions_done(*self._core.halves.progress())
            self._pops.log.note_progress(popped)
        self._core.offsets.dirty = self._core.offsets.dirty and self._pops.log.is_durable
        self._saving.save_all()
        if self._core.store.problem is None:
            self._core.delays.close()
            await _in_turns(self._core.timers.close())
        self._core.store.close()

    def _write_popped(self) -> dict[tuple[str, int], int]:
        """Write what is popped for the next start; return how far that need not read."""
        if not self._core.store.is_copy:
            try:
                return self._pops.log.write_open(self._core.now_ms())
            except (BrokerError, StoreError) as error:  # also when the timers are full
                self._observe(LoopFailed("pops", str(error)))
        return self._pops.log.progress()

    # The loops.

    def _every(self, interval: float, name: str, work: Callable[[], Awaitable[None] | None]) -> None:
        self._tasks.start(self._repeat(interval, name, work), f"broker {name}")

    async def _repeat(self, interval: float, name: str, work: Callable[[], Awaitable[None] | None]) -> None:
        while True:
            await asyncio.sleep(interval)
            try:
                done = work()
                if done is not None:
                    await done
            except Exception as error:
                # The next round tries again.
                self._observe(LoopFailed(name, f"{type(error).__name__}: {error}"))

    def _expire(self) -> None:
        self._clients.expire()
        self._core.locks.sweep(self._loop.time())

    async def _save_offsets(self) -> None:
        self._flusher.save_names_again()
        if self._core.locks.dirty:
            self._lock_file.save()
        if not self._core.store.is_copy:
            progress, popped = self._core.halves.progress(), self._pops.log.progress()
            if await self._flusher.log_first():
                self._core.offsets.transactions_done(*progress)
                self._pops.log.note_progress(popped)
        saves = self._saving.offsets_to_save()
        if not saves:
            return
        with contextlib.ExitStack() as undo:
            undo.callback(self._saving.offsets_not_saved)  # also when the broker stops meanwhile
            # What was handed out counts as done: without its checkpoint it would be lost.
            if await self._flusher.log_first() or self._pops.log.is_durable:
                await self._flusher.run(lambda: [save() for save in saves])
                undo.pop_all()

    async def _save_delivered(self) -> None:
        core = self._core
        await _in_turns(core.timers.read())
        saves = [save for waiting in (core.delays, core.timers) if (save := waiting.to_save()) is not None]
        if saves and await self._flusher.log_first():
            for save in saves:
                await self._flusher.run(save)

    async def _deliver_delayed(self) -> None:
        """Deliver what is due: delayed messages, popped ones that come again, those of timers; until cancelled."""
        while True:
            try:
                due = self.next_delayed()
                wait = math.inf if due is None else max(due - self._core.clock.now(), 0.0)
                await self._until_scan(min(wait, self._pace.delays))
                try:
                    self._core.delays.deliver_due(self._core.now_ms())
                finally:  # what keeps one of the three keeps none of the others
                    try:
                        for group, retry_topic in self._pops.revive_due(self._core.now_ms()):
                            self._held_pops.come_again(group, retry_topic)
                    finally:
                        self._core.timers.deliver_due(self._core.now_ms())
            except Exception as error:
                # The disk may be full, or a message unreadable. No message is lost; they are only late.
                self._observe(LoopFailed("delays", f"{type(error).__name__}: {error}"))
                await asyncio.sleep(RESTART_DELAY)

    async def _until_scan(self, seconds: float) -> None:
        """Wait so long, or until a message is scheduled that is due before."""
        self._scan_at = self._loop.time() + seconds
        await is_set_by(self._scan_sooner, self._scan_at)
        self._scan_sooner.clear()

    def _scan_in(self, seconds: float) -> None:
        """Something is due then."""
        if self._loop.time() + seconds < self._scan_at:
            self._scan_sooner.set()

    # What happens to topics.

    def _delete_below(self, below: Mapping[str, float]) -> None:
        """Delete what was stored of these topics before a position of the log. What fails is tried again."""

        async def delete(end: Awaitable[None]) -> None:
            await end

        self._tasks.start(delete(self._delete(below)), "broker deletes topics")

    def _delete(self, below: Mapping[str, float]) -> Awaitable[None]:
        """From now on nothing of these topics is stored; what is returned ends when it is gone."""
        doomed = self._core.store.begin_delete(below)
        return self._flusher.end_delete(doomed) if doomed else ended(self._core.save)

    def _answer_held(self, topic: str) -> None:
        """A group was moved in this topic, or it was deleted: what is held looks again."""
        self._pulls.held.wake_all(topic)
        self._held_pops.held.wake_all(topic)

    def _topic_gone(self, topic: str) -> None:
        self._pops.drop(topic)
        self._answer_held(topic)


async def _in_turns(steps: Generator[None]) -> None:
    for _ in steps:
        await asyncio.sleep(0)
