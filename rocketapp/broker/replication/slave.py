"""The slave's side of replication: it copies the log of its master, and takes over its tables.

The log comes as a stream of bytes (Java: DefaultHAClient). Whole records are appended at their positions, by the store
and with the dispatch that a master has; a begun one waits in memory. What follows from them is the same here as there.
Nothing of a log is cut to fit another one. The master sends our last record first. A master whose log ends before ours,
or has other bytes there, is left with a line, and asked again later.

The tables are those of the log that is copied, taken over while that is copied, from the same master (Java:
SlaveSynchronize): topics, groups, request modes, committed offsets, and the progress of delays and timers. Each
describes the log of the master at one moment: a delayed message counts as delivered because its copy is there. So a
round is taken over when the log here goes as far as the master's did behind the last answer, and otherwise not at all:
another one comes soon.

A topic that is stored here, is not in the master's table and not in its queues was deleted there, and goes: as far as
the log had come before that table was asked for. What came later may be of a new topic of that name. Of a topic that
has a first position, what lies before is of a deleted one. A topic whose first message comes before the table that has
it is made here with as many queues as have messages.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from rocketapp.broker.core import Core
from rocketapp.broker.pop_log import ReviveLog
from rocketapp.broker.pop_tables import RequestModes
from rocketapp.broker.store.config_files import decode
from rocketapp.broker.store.store import MessageStore
from rocketapp.broker.store.stored import Stored
from rocketapp.errors import BrokerError, ConnectError, ProtocolError, RocketAppError, StoreError
from rocketapp.model.event import FollowsMaster, LeftMaster, LoopFailed, Observe
from rocketapp.tasks import scope, until
from rocketapp.transport.pool import Pool
from rocketapp.transport.stream import split_address
from rocketapp.wire import fields as read
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import Command
from rocketapp.wire.replication import HEAD_BYTES, encode_report, read_head
from rocketapp.wire.requests.admin import TopicConfig
from rocketapp.wire.requests.offsets import OffsetResponse, QueueRequest
from rocketapp.wire.requests.replication import LOG_ADDRESS, decode_ha_status, decode_log_begin, decode_timer_checkpoint

AGAIN = 5.0
"""Seconds until a master that was left is connected again (Java: HAClient)."""
REPORT = 5.0
"""Seconds after which the end of the log is reported once more (Java: haSendHeartbeatInterval)."""
_IDLE = 20.0
"""Seconds of silence after which the master is given up (Java: haHousekeepingInterval)."""
_DIAL_TIMEOUT = 3.0
INTERVAL = 10.0
"""Seconds between two rounds."""
_TIMEOUT = 30.0
"""Seconds that an answer may take: a master holds it back until its slaves have the log that it describes."""
_PATIENCE = 5.0
"""Seconds within which the log has to arrive that a round describes."""


class MasterLog:
    """Follows one master, again and again, until cancelled."""

    def __init__(self, store: MessageStore, tables: MasterTables, observe: Observe, master: str) -> None:
        self._store, self._tables, self._observe = store, tables, observe
        self.master: str = master
        """Where the master is, host:port; empty while that is not known. Another one ends what is copied from this."""

    def __repr__(self) -> str:
        return f"<MasterLog of {self.master or 'nobody'} to {self._store.end_position}>"

    async def run(self) -> None:
        while True:
            try:
                reason = await self._follow()
            except (OSError, RocketAppError) as error:
                reason = str(error) or type(error).__name__
            self._observe(LeftMaster(self._tables.master, self._store.end_position, reason))
            await asyncio.sleep(AGAIN)

    async def _follow(self) -> str:
        """Copy the log until the connection ends, and say why."""
        self._tables.master = self.master
        store, end = self._store, await self._tables.log_end()
        if store.end_position > end:
            return f"our log ends at {store.end_position}, its log at {end}: it is of another history"
        position = await self._first_wanted(end)
        address = await self._tables.log_address()
        host, port = split_address(address)
        async with asyncio.timeout(_DIAL_TIMEOUT):
            reader, writer = await asyncio.open_connection(host, port)
        is_ours = asyncio.Event()
        try:
            copying = self._copy(reader, writer, position, is_ours)
            async with scope(copying, self._report(writer, is_ours), self._take_over(address, is_ours)) as parts:
                done, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
                return str(done.pop().result())
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _first_wanted(self, end: int) -> int:
        """The position that the master is to begin at: that of our last record, 0 for an empty log.

        `end`: of its log. To 0 a master of Apache's answers with its last file: of several ones it is asked for the
        first record, and goes on behind that.
        """
        store, last = self._store, self._store.last_position
        begin = await self._tables.log_begin()
        if 0 <= last < begin:
            raise ProtocolError(f"our last record is at {last}, its log begins at {begin}: that is deleted there")
        if last > 0 or end < store.log.segment_end(begin):
            return max(last, 0)
        first = await self._tables.record_at(begin)
        if first is None:  # its topic is deleted
            return store.end_position
        if last < 0:
            store.append_copied(begin, first)
        elif last == begin and first != store.log.read(begin, len(first)):
            raise ProtocolError("it has another record at 0: it is of another history")
        return store.end_position

    async def _take_over(self, address: str, is_ours: asyncio.Event) -> None:
        """Take over the tables as soon as the log is known to be ours."""
        await is_ours.wait()
        self._observe(FollowsMaster(self._tables.master, self._store.end_position))
        await self._tables.run(address)

    async def _copy(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, start: int, is_ours: asyncio.Event
    ) -> str:
        """`start`: where the master begins; between there and our end its bytes have to be those that are here."""
        store = self._store
        known = store.end_position - start
        position, begun = start, b""
        while True:
            if not known:
                is_ours.set()
            writer.write(encode_report(min(position, store.end_position)))
            try:
                async with asyncio.timeout(_IDLE):
                    at, size = read_head(await reader.readexactly(HEAD_BYTES))
                    block = await reader.readexactly(size)
            except TimeoutError:
                return f"it has said nothing for {_IDLE:g} s"
            except asyncio.IncompleteReadError:
                return "closed by the master"
            if at != position and (position > 0 or known):
                return f"it sends position {at}, and not {position}"
            begun, position = begun + block, at + size
            if known and len(begun) >= known:
                if begun[:known] != store.log.read(start, known):
                    return f"it has another record at {start}: it is of another history"
                begun, known = begun[known:], 0
            if not known:
                begun = begun[store.append_copied(position - len(begun), begun) :]

    async def _report(self, writer: asyncio.StreamWriter, is_ours: asyncio.Event) -> str:
        """Say once more where the log ends, as long as the master is the same."""
        while self.master == self._tables.master:
            await asyncio.sleep(REPORT)
            if is_ours.is_set():
                writer.write(encode_report(self._store.end_position))
        return f"the master is {self.master} now"


class MasterTables:
    """Takes over the tables of one master."""

    def __init__(
        self,
        core: Core,
        modes: RequestModes,
        revive_log: ReviveLog,
        delete_below: Callable[[Mapping[str, float]], None],
        *,
        pool: Pool,
        observe: Observe,
    ) -> None:
        """`delete_below`: deletes what is stored of topics below a position of the log."""
        self._core, self._modes, self._revive_log = core, modes, revive_log
        self._delete_below = delete_below
        self._pool, self._observe = pool, observe
        self.master: str = ""
        """Where it is, host:port; who follows it says so."""
        self._known: dict[int, bytes] = {}
        """The last answer that was taken over, by request code."""
        self._early: dict[str, int] = {}
        """Topics of messages that its table may lack, because they came since the round began; with their queues."""
        self._before = 0
        """Where the log of the master ended then: the table has the topics of what lies before, or they are deleted."""
        core.store.followers.append(self._stored)

    def __repr__(self) -> str:
        return f"<MasterTables of {self.master}>"

    # About the log.

    async def log_address(self) -> str:
        """Where it can be copied. Raises BrokerError, also when nobody may."""
        address = read.text((await self._ask(RequestCode.EXCHANGE_BROKER_HA_INFO)).fields, LOG_ADDRESS)
        if not address:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, "the master lets nobody copy its log", self.master)
        return address

    async def log_begin(self) -> int:
        """Where it begins, as far as the master says so."""
        return decode_log_begin((await self._ask(RequestCode.GET_BROKER_RUNTIME_INFO)).body)

    async def log_end(self) -> int:
        """Where it ends now."""
        return decode_ha_status((await self._ask(RequestCode.GET_BROKER_HA_STATUS)).body).end

    async def record_at(self, position: int) -> bytes | None:
        """The record at this position; None when the master does not find one."""
        try:
            return (await self._ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(position)})).body
        except BrokerError as error:
            if error.code != ResponseCode.SYSTEM_ERROR:
                raise
            return None

    # The tables.

    async def run(self, copies_from: str) -> None:
        """Take over round after round, until cancelled: while the log is copied from this address."""
        self._known.clear()
        self._before, self._core.copies_from = 0, copies_from
        try:
            while True:
                try:
                    await self.take_over()
                except RocketAppError as error:
                    self._observe(LoopFailed("tables of the master", str(error)))
                await asyncio.sleep(INTERVAL)
        finally:
            self._core.copies_from = ""

    async def take_over(self) -> None:
        """One round. Raises RocketAppError; then nothing was taken over of what could not be read."""
        core = self._core
        steps: dict[int, Callable[[bytes], None]] = {
            RequestCode.GET_ALL_TOPIC_CONFIG: self._topics,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: lambda body: core.groups.take_over(decode(body)),
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: lambda body: self._modes.take_over(decode(body)),
            RequestCode.GET_ALL_CONSUMER_OFFSET: self._offsets,
            RequestCode.GET_ALL_DELAY_OFFSET: lambda body: core.delays.take_over(decode(body)),
            RequestCode.GET_TIMER_CHECK_POINT: lambda body: core.timers.take_over(*decode_timer_checkpoint(body)),
        }
        if self._early:
            self._early.clear()
            self._known.pop(RequestCode.GET_ALL_TOPIC_CONFIG, None)
        problems, answers, self._before = list[str](), dict[int, bytes](), await self.log_end()
        for code in steps:
            try:
                answers[code] = (await self._ask(code)).body
            except BrokerError as error:  # each step fails on its own
                problems.append(f"{RequestCode(code).name}: {error}")
        await self._arrived(await self.log_end())
        for code, body in answers.items():
            if not body or self._known.get(code) == body:
                continue
            try:
                steps[code](body)
                self._known[code] = body
            except (ProtocolError, ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
                problems.append(f"{RequestCode(code).name}: {type(error).__name__}: {error}")
        core.save(self._saved)
        topics = RequestCode.GET_ALL_TOPIC_CONFIG
        if answers.get(topics) == self._known.get(topics) is not None:
            gone = [topic for topic in core.unused_topics() if await self._is_deleted(topic)]
            begun = {config.name: config.first_position for config in core.topics if config.first_position}
            self._delete_below({**begun, **dict.fromkeys(gone, self._before)})
        if problems:
            raise ProtocolError("; ".join(problems))

    async def _is_deleted(self, topic: str) -> bool:
        """Whether the master has less of it than is here. Only its table may lack it, which can be lost at Apache's."""
        store = self._core.store
        for queue_id in store.queue_ids(topic):
            end = store.max_offset(topic, queue_id)
            answer = await self._ask(RequestCode.GET_MAX_OFFSET, QueueRequest(topic, queue_id).to_fields())
            if OffsetResponse.from_fields(answer.fields).offset < end:
                return True
        return False

    async def _arrived(self, end: int) -> None:
        try:
            async with asyncio.timeout(_PATIENCE):
                await until(lambda: self._core.store.end_position >= end)
        except TimeoutError:
            problem = f"they describe a log up to {end}, and ours ends at {self._core.store.end_position}"
            raise ProtocolError(f"{problem}: not taken over yet") from None

    def _topics(self, body: bytes) -> None:
        self._core.topics.take_over(decode(body))
        for topic in self._early:
            self._make(topic)

    def _stored(self, records: Sequence[Stored]) -> None:
        """Make the topics that are younger than the table, so that a start in the master's place has them."""
        topics, early, before = self._core.topics, self._early, self._before
        for topic, queue_id in {(stored.topic, stored.queue_id) for stored in records if stored.physical >= before}:
            if topic in early or (topics.get(topic) is None and not topics.is_system(topic)):
                early[topic] = max(early.get(topic, 0), queue_id + 1)
                self._make(topic)

    def _make(self, topic: str) -> None:
        config, queues = self._core.topics.get(topic), self._early[topic]
        if config is None or config.read_queues < queues:
            self._core.topics.put(TopicConfig(topic, queues, queues))
            self._core.save(self._saved)

    def _saved(self, error: StoreError | None) -> None:
        if error is not None:  # then the tables are those of before
            self._known.clear()

    def _offsets(self, body: bytes) -> None:
        core = self._core
        core.offsets.load(decode(body) | {"logPosition": self._before})
        core.offsets.clamp(partial(core.store.offset_before, math.inf))
        core.offsets.dirty = True
        core.halves.forget_below(core.offsets.transactions_progress()[0])
        self._revive_log.forget_done()

    async def _ask(self, code: int, fields: dict[str, str] | None = None) -> Command:
        """The answer of the master. Raises RocketAppError."""
        if not self.master:
            raise ConnectError("the master", "no name server knows it yet")
        connection = await self._pool.get(self.master)
        answer = await connection.start_request(Command(code, fields or {}), timeout=_TIMEOUT)
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerError(answer.code, answer.remark or "", self.master)
        return answer
