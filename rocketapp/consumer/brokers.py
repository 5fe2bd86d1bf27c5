"""The requests of one group to its brokers; each finds the right broker by itself.

All raise TransportError or BrokerError when a broker does not answer; a missing answer is never taken as an empty one.

Slaves replace a master that cannot be reached: messages, members and offsets are read from them. Nothing is written to
a slave: its master would overwrite the offset at the next synchronisation, and only masters keep locks. What a slave
does not know is never read as "none": it may be behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Protocol

from rocketapp.client.calls import clients, locks, offsets, pull
from rocketapp.client.calls.pull import PullResult
from rocketapp.client.calls.send import send_back
from rocketapp.client.instance import ClientInstance
from rocketapp.config.consumer import ConsumerConfig
from rocketapp.errors import BrokerError, ConnectionLostError, RequestTimeoutError, RocketAppError, TransportError
from rocketapp.model.event import ReadFromSlave
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.route import MASTER_ID
from rocketapp.model.subscription import ALL_TAGS, SubscriptionData
from rocketapp.state import replicas
from rocketapp.state.queue_identity import Identity, Landmark, recognise
from rocketapp.state.start_position import CLOCK_SKEW, Correction, begin_anew
from rocketapp.tasks import Tasks
from rocketapp.transport.connection import Connection
from rocketapp.wire.codes import ResponseCode
from rocketapp.wire.record import Message, decode_records
from rocketapp.wire.requests.pull import FLAG_SUBSCRIPTION, PullRequest
from rocketapp.wire.requests.running_info import RunningInfo
from rocketapp.wire.requests.send_back import SendBackRequest

_MEMBERS_TIMEOUT = 1.0
"""Seconds that a list of members may take: one that comes later is out of date."""

_SMALL = 4_096
"""Bytes of a message that is kept to know its queue again."""

# What a request for messages may be answered with.
LOST_DELAY = 0.1
"""Seconds until one whose connection was lost is sent again: dialling has waits of its own."""
LOST_PATIENCE = 1.0
"""Seconds that a queue may be without its broker before it is told."""
_SILENT_FOR = 30.0
"""Seconds for which a slave is read in place of a master that did not answer although it is connected."""
_BUSY_DELAY, _FULL_DELAY = 0.02, 1.0
"""Seconds to wait for a broker that is busy, and for one that holds too many requests (Java: the same)."""
_BUSY = frozenset({ResponseCode.SYSTEM_BUSY, ResponseCode.FLOW_CONTROL})
_UNKNOWN_TO_BROKER = frozenset(
    {
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        ResponseCode.SUBSCRIPTION_NOT_EXIST,
        ResponseCode.SUBSCRIPTION_NOT_LATEST,
        ResponseCode.FILTER_DATA_NOT_EXIST,
        ResponseCode.FILTER_DATA_NOT_LATEST,
    }
)
"""The broker does not know our group, our subscription or its SQL filter (yet): a heartbeat mends it."""
_WRONG_BROKER = frozenset({ResponseCode.TOPIC_NOT_EXIST, ResponseCode.INVALID_PARAMETER})
"""The topic or the queue is not there (any more): the route may have changed."""


class AnotherQueueError(RocketAppError):
    """A broker has other records than those that were pulled: the store was replaced, or lost its tail.

    Has the bounds of the queue there, and the offset from which records may differ.
    """

    def __init__(self, min_offset: int, max_offset: int, since: int | None = None) -> None:
        """`since` None: it is another queue of the same name."""
        super().__init__(min_offset, max_offset, since)
        self.min_offset: int = min_offset
        self.max_offset: int = max_offset
        self.since: int | None = since

    def __str__(self) -> str:
        return "its broker has other records than those that were pulled"

    def correction(self, offset: int) -> Correction:
        """Where the group goes on; it was at `offset` of the queue that it had pulled."""
        return begin_anew(offset, min_offset=self.min_offset, max_offset=self.max_offset, since=self.since)


class GroupOffsets(Protocol):
    """Stores the committed offsets of a group: at its brokers, in a plugin's store, or in a file of this member.

    Every method raises RocketAppError when there is no answer.
    """

    travels: bool = True
    """What a pull carries to its broker is a commit. Otherwise it carries what is committed already."""

    def open(self) -> None:
        """Called before any other method."""
        return

    def close(self) -> None:
        """Called last; also in a forked child, whose parent goes on."""
        return

    def is_connected(self, broker_name: str) -> bool:
        """Whether the offsets of this broker's queues can be reached without dialling."""
        return True

    def away_since(self, queue: MessageQueue) -> float | None:
        """When a queue that has appeared was last seen by this member, in seconds since 1970; None if never."""
        return None

    async def take(self, queue: MessageQueue) -> None:
        """A session of this queue begins: late commits of earlier sessions, in any process, may be refused from now on.

        Brokers know no sessions: there a late commit is detected by reading the offset before writing.
        """
        return

    async def committed(self, queue: MessageQueue, *, timeout: float | None = None) -> int | None:
        """The committed offset; None when nothing was committed. `timeout`: seconds. Does not dial."""
        ...

    async def committed_for_start(self, queue: MessageQueue) -> offsets.Committed:
        """The committed offset, and whether the answer is certain."""
        return offsets.Committed(await self.committed(queue), is_certain=True)

    async def commit(self, queue: MessageQueue, offset: int, *, timeout: float | None = None) -> None:
        """Commit: everything below `offset` is done. Returns when that is stored. Does not dial.

        Raises OvertakenError when another session has begun.
        """
        ...


@dataclass(slots=True)
class Instead:
    """A slave that replaces its master."""

    broker_id: int
    master_from: float
    """When the master may be asked again."""
    is_told: bool = False


class Slaves:
    """Which slaves one group reads, and when."""

    def __init__(self, group: str, client: ClientInstance) -> None:
        self._group, self._client = group, client
        self.instead: dict[str, Instead] = {}
        """By broker which slave is read in place of its master, for all queues."""
        self._stand_ins: dict[str, Connection] = {}
        """By broker what stood in for its master at the last look."""

    def __repr__(self) -> str:
        return f"<Slaves {self._group}: {', '.join(sorted(self.instead)) or 'not read'}>"

    def reader(self, broker_name: str, suggested: int) -> int:
        """The replica to pull from: a slave in place of the master, otherwise the one suggested last."""
        if (instead := self.instead.get(broker_name)) is not None:
            return instead.broker_id
        return suggested and replicas.reader(self._client.copies(broker_name).keys(), suggested)

    def stand_in(self, broker_name: str, error: TransportError) -> bool:
        """This master failed to answer: read a slave instead. False when no route has one."""
        if broker_name not in self.instead:
            if not (slaves := self._ids(broker_name)):
                return False
            silent = _SILENT_FOR if isinstance(error, RequestTimeoutError) else 0.0
            self.instead[broker_name] = Instead(slaves[0], asyncio.get_running_loop().time() + silent)
        return True

    def answered(self, broker_name: str) -> None:
        """The slave was read; reported once. The master is read again as soon as it is connected."""
        if not self.are_over(broker_name) and not (instead := self.instead[broker_name]).is_told:
            instead.is_told = True
            self._client.observe(ReadFromSlave(self._group, broker_name, instead.broker_id))

    def are_over(self, broker_name: str, error: RocketAppError | None = None) -> bool:
        """Whether to read the master again: it is connected, or the slave cannot be reached either."""
        instead = self.instead[broker_name]
        is_time = asyncio.get_running_loop().time() >= instead.master_from
        if not isinstance(error, TransportError) and not (is_time and self.master(broker_name)):
            return False
        del self.instead[broker_name]
        if instead.is_told:
            self._client.observe(ReadFromSlave(self._group, broker_name, MASTER_ID))
        return True

    def connection(self, broker_name: str) -> Connection | None:
        """The connection to a slave, if the master is not connected and a slave is."""
        if self.master(broker_name) is not None:
            return None
        copies = self._client.copies(broker_name)
        living = (self._client.living_connection(copies[one]) for one in self._ids(broker_name))
        return next((connection for connection in living if connection is not None), None)

    def master(self, broker_name: str) -> Connection | None:
        """The open connection to the master, or None. Does not dial."""
        address = self._client.broker_address(broker_name)
        return None if address is None else self._client.living_connection(address)

    def is_new_stand_in(self, broker_name: str) -> bool:
        """Whether a slave replaces the master since the last call: it may not know all members yet."""
        connection, before = self.connection(broker_name), self._stand_ins.pop(broker_name, None)
        if connection is None:
            return False
        self._stand_ins[broker_name] = connection
        return connection is not before

    def of_lost_master(self, queue: MessageQueue) -> Connection | None:
        """The connection to a slave if the name server has dropped the master too: it will be away for longer."""
        route = self._client.routes.get(queue.topic)
        broker = None if route is None else route.broker(queue.broker_name)
        return None if broker is None or broker.master is not None else self.connection(queue.broker_name)

    def _ids(self, broker_name: str) -> list[int]:
        copies = self._client.copies(broker_name)
        connected = [one for one, address in copies.items() if self._client.living_connection(address) is not None]
        return replicas.slaves(copies.keys(), connected)


class Brokers(GroupOffsets):
    """The brokers of a cluster, as one group uses them."""

    def __init__(
        self, group: str, client: ClientInstance, config: ConsumerConfig, random: Random, tasks: Tasks
    ) -> None:
        """`tasks`: owns requests that run beside the caller."""
        self.slaves: Slaves = Slaves(group, client)
        """They stand in for masters that are away."""
        self._group, self._client, self._config, self._random, self._tasks = group, client, config, random, tasks
        self._beating: asyncio.Task[Any] | None = None
        self.carried: Mapping[str, SubscriptionData] = {}
        """By topic what its pulls say that they ask for, whatever the broker has heard of the group.

        Other pulls go by what it has heard. The subscription check of the group decides it.
        """
        self.ends: dict[MessageQueue, int] = {}
        """Queues of which nothing behind this offset is wanted: who asks whether all is done need not wait for it."""
        self.landmarks: dict[MessageQueue, Landmark] = {}
        """By queue the first record that was pulled, by this process or one whose offset it goes on with: what a broker
        loses first is what came last.
        """
        self._newest: dict[MessageQueue, Landmark | Message] = {}
        """By queue the last record that its present session has pulled; a message, while that is small."""
        self._recognised: dict[MessageQueue, Connection] = {}
        """By queue the connection to its master on which it was known to be the one that was pulled."""

    def is_connected(self, broker_name: str) -> bool:
        """Whether there is an open connection to the master."""
        return self.slaves.master(broker_name) is not None

    async def connection(self, broker_name: str, broker_id: int = MASTER_ID) -> Connection:
        """A connection to the master or another replica, dialled if necessary."""
        address = self._client.broker_address(broker_name, broker_id)
        if address is None:
            who = "its master" if broker_id == MASTER_ID else "it"
            raise TransportError(broker_name, f"no address of {who} is known")
        return await self._client.connection(address)

    def _connected(self, broker_name: str) -> Connection:
        """The open connection to the master. Raises TransportError without one."""
        if (connection := self.slaves.master(broker_name)) is None:
            raise TransportError(broker_name, "its master is not connected")
        return connection

    # Offsets.

    async def committed(self, queue: MessageQueue, *, timeout: float | None = None) -> int | None:
        timeout = self._config.commit_timeout if timeout is None else timeout
        return (await offsets.query(self._connected(queue.broker_name), self._group, queue, timeout)).offset

    async def told_to_new_group(self, queue: MessageQueue) -> int | None:
        """The committed offset of a group that may be new: brokers answer 0 for a young queue without one."""
        connection = await self.connection(queue.broker_name)
        timeout = self._config.commit_timeout
        return (await offsets.query(connection, self._group, queue, timeout, set_zero_if_not_found=None)).offset

    async def committed_for_start(self, queue: MessageQueue) -> offsets.Committed:
        """The committed offset, and whether the answer is certain: see `client.calls.offsets.Committed`.

        If the name server has dropped the master, a slave's answer counts when it has an offset.
        """
        try:
            connection = await self.connection(queue.broker_name)
        except TransportError:
            slave = self.slaves.of_lost_master(queue)
            if slave is None:
                raise
            known = await offsets.query(slave, self._group, queue, self._config.commit_timeout)
            if known.offset is None or not known.is_certain:
                # It may be behind its master: an offset that it lacks may still be at the master.
                raise
            return known
        return await offsets.query(connection, self._group, queue, self._config.commit_timeout)

    async def commit(self, queue: MessageQueue, offset: int, *, timeout: float | None = None) -> None:
        timeout = self._config.commit_timeout if timeout is None else timeout
        await offsets.commit(self._connected(queue.broker_name), self._group, queue, offset, timeout)

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next stored message gets."""
        return await offsets.max_offset(await self.connection(queue.broker_name), queue, self._config.commit_timeout)

    async def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the oldest message that is still there."""
        return await offsets.min_offset(await self.connection(queue.broker_name), queue, self._config.commit_timeout)

    async def offset_at(self, queue: MessageQueue, timestamp: float) -> int:
        """The offset of the first message stored at `timestamp` (seconds since 1970) or later."""
        connection = await self.connection(queue.broker_name)
        return await offsets.search(connection, queue, timestamp, self._config.commit_timeout)

    # Pulls.

    def has_read(self, queue: MessageQueue, result: PullResult, messages: Sequence[object], *, is_master: bool) -> None:
        """Remember the first record that the master sent, and the last of the session: they identify the queue later.

        `messages`: those of this answer, or the record blocks of a sink.
        """
        first, last = messages[0], messages[-1]
        if queue not in self.landmarks:
            known = _landmark(first) if isinstance(first, Message) else _first_record(result, queue)
            if not is_master or known is None:
                return
            self.landmarks[queue] = known
        if isinstance(last, Message):
            # To read its id costs more than to keep it; what is or gets large would not count in `cache_max_bytes`.
            is_small = type(last) is Message and last.size <= _SMALL
            self._newest[queue] = last if is_small else _landmark(last)

    def goes_on_from(self, queue: MessageQueue, text: str) -> None:
        """Remember the landmark that was stored beside a committed offset."""
        self.landmarks.pop(queue, None)
        self._recognised.pop(queue, None)
        if (landmark := Landmark.of_text(text)) is not None:
            self.landmarks[queue] = landmark

    async def recognise(self, queue: MessageQueue, connection: Connection) -> bool:
        """Whether the queue is known from earlier pulls. Raises AnotherQueueError if it has other records now.

        Called once per connection, and whenever the master calls an offset illegal: behind a new connection there may
        be an empty broker, or one that lost its tail and has perhaps received more messages than were handled before.
        """
        first, newest = self.landmarks.get(queue), self._newest.get(queue)
        newest = _landmark(newest) if isinstance(newest, Message) else newest
        if (known := newest or first) is not None and (other := await self._other(queue, known, connection)):
            if first is None or newest is None or await self._other(queue, first, connection):
                raise AnotherQueueError(max(0, other.min_offset), other.max_offset)
            # The tail was lost. If messages came since, those behind this time are not the ones that were read.
            end = other.max_offset - 1
            last = _first_record(await self._pull_one(queue, end, connection), queue, end)
            if last is not None and last.stored_ms > newest.stored_ms:
                timestamp = newest.stored_ms / 1000 - CLOCK_SKEW
                since = await offsets.search(connection, queue, timestamp, self._config.commit_timeout)
                raise AnotherQueueError(max(0, other.min_offset), other.max_offset, since)
        self._recognised[queue] = connection
        return known is not None

    async def _other(self, queue: MessageQueue, known: Landmark, connection: Connection) -> PullResult | None:
        """What is stored in place of this record; None: the record is there, or was deleted by its age."""
        result = await self._pull_one(queue, known.offset, connection)
        is_other = recognise(known, _first_record(result, queue, known.offset), end=result.max_offset) is Identity.OTHER
        return result if is_other else None

    async def known_again(self, queue: MessageQueue) -> None:
        """Check a queue before its session commits: raises AnotherQueueError when its offset is void.

        Asks nothing without a connection to the master.
        """
        connection = self.slaves.master(queue.broker_name)
        if connection is not None and self._recognised.get(queue) is not connection:
            await self.recognise(queue, connection)

    async def record_at(self, queue: MessageQueue, offset: int) -> Landmark | None:
        """The master's record at this offset, or the next one; None for none. Ignores the group's filter."""
        result = await self._pull_one(queue, offset, await self.connection(queue.broker_name))
        return _first_record(result, queue, offset)

    async def _pull_one(self, queue: MessageQueue, offset: int, connection: Connection) -> PullResult:
        """Pull without the group's filter, which might hide the record."""
        request = PullRequest(
            group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            offset=offset,
            max_messages=1,
            sys_flag=FLAG_SUBSCRIPTION,
            commit_offset=-1,
            expression=ALL_TAGS,
            broker_name=queue.broker_name,
        )
        return pull.read(await pull.start(connection, request, self._config.commit_timeout))

    def begins_session(self, queue: MessageQueue) -> None:
        """Forget the last pulled record: other members may have read on, also after a loss."""
        self._newest.pop(queue, None)

    def begins_anew(self, queue: MessageQueue) -> None:
        """Forget all records of a queue: its new position is committed."""
        self.landmarks.pop(queue, None)
        self._newest.pop(queue, None)

    def recognised_at(self, queue: MessageQueue) -> Connection | None:
        """The open connection to the master on which this queue was recognised, or None."""
        connection = self._recognised.get(queue)
        return connection if connection is self.slaves.master(queue.broker_name) else None

    async def to_pull(self, queue: MessageQueue, broker_id: int) -> Connection:
        """The connection to this replica, dialled if necessary. Raises AnotherQueueError for a master."""
        connection = await self.connection(queue.broker_name, broker_id)
        if broker_id == MASTER_ID and self._recognised.get(queue) is not connection:
            await self.recognise(queue, connection)
        return connection

    # The group.

    async def everyone(self) -> set[str]:
        """The client ids of the group's members, as far as any broker answers."""
        lists = await asyncio.gather(*map(self._known_to, self._client.routes.broker_names()))
        return {client_id for found in lists for client_id in found}

    async def _known_to(self, broker_name: str) -> list[str]:
        try:
            return await self.members(broker_name)
        except RocketAppError:
            return []  # a group without members is an error as well

    async def subscribed(self, client_id: str, timeout: float) -> RunningInfo:
        """The subscriptions and pulls of a member, asked through any broker of its topics."""
        from rocketapp.client.calls import admin  # needed once there are other members

        problem: RocketAppError = TransportError(client_id, "no broker is known")
        for name in sorted(self._client.routes.broker_names()):
            try:
                connection = await self.connection(name)
                return await admin.running_info(connection, self._group, client_id, timeout, brief=True)
            except RocketAppError as error:
                problem = error
        raise problem

    def wait_after(self, error: RocketAppError, topic: str) -> float:
        """Seconds to wait before a failed pull or pop is repeated. Starts what may help, such as a new route."""
        delay = self._config.pull_retry_delay
        if isinstance(error, ConnectionLostError):
            return min(LOST_DELAY, delay)
        if is_busy(error):
            return min(_BUSY_DELAY, delay)
        code = error.code if isinstance(error, BrokerError) else None
        if code == ResponseCode.POLLING_FULL:
            return _FULL_DELAY
        if code in _UNKNOWN_TO_BROKER:
            self.heartbeat_soon()
        if code in _WRONG_BROKER:
            self._client.routes.refresh_soon(topic)
        return delay

    def brokers_of(self, topic: str) -> list[str]:
        """The names of the topic's brokers, in random order."""
        route = self._client.routes.get(topic)
        names = [data.broker_name for data in route.brokers] if route is not None else []
        self._random.shuffle(names)
        return names

    def heartbeat_soon(self) -> None:
        """Send heartbeats to all brokers, unless some are under way."""
        if self._beating is None or self._beating.done():
            self._beating = self._tasks.start(self._client.heartbeat(), f"heartbeat {self._group}")

    async def members(self, broker_name: str) -> list[str]:
        """The client ids of the group's members according to this broker; empty when it knows none.

        A slave is asked while the master is not connected: members send heartbeats to slaves too.
        """
        if (slave := self.slaves.connection(broker_name)) is not None:
            return await clients.member_list(slave, self._group, _MEMBERS_TIMEOUT)
        try:
            async with asyncio.timeout(_MEMBERS_TIMEOUT):
                connection = await self.connection(broker_name)
        except TimeoutError:
            raise TransportError(broker_name, f"not reached within {_MEMBERS_TIMEOUT:g} s") from None
        return await clients.member_list(connection, self._group, _MEMBERS_TIMEOUT)

    async def lock(
        self, broker_name: str, queues: Iterable[MessageQueue], *, owner: str | None = None
    ) -> set[MessageQueue]:
        """Lock queues, or renew their locks, in one request to a connected broker. Returns those that we hold.

        `owner`: the client id of another member to lock them for.
        """
        connection, who = self._connected(broker_name), owner or self._client.client_id
        return await locks.lock(connection, self._group, who, queues, self._config.lock_timeout)

    async def unlock(self, broker_name: str, queues: Iterable[MessageQueue]) -> None:
        """Unlock queues in one request to a connected broker."""
        connection = self._connected(broker_name)
        await locks.unlock(connection, self._group, self._client.client_id, queues, self._config.lock_timeout)

    async def holding(self, message: Message, queue: MessageQueue) -> Connection:
        """A connection to the master, dialled if necessary. Raises AnotherQueueError if it lost the message.

        On a connection on which the queue was not recognised yet, the broker is asked for this message first.
        """
        connection = await self.connection(queue.broker_name)
        if queue in self.landmarks and self._recognised.get(queue) is not connection:
            try:
                other = await self._other(queue, _landmark(message), connection)
            except BrokerError as error:  # that says nothing about what is asked of it next
                raise TransportError(queue.broker_name, f"it does not tell which records it has: {error}") from error
            if other is not None:
                raise AnotherQueueError(max(0, other.min_offset), other.max_offset)
        return connection

    async def send_back(
        self, message: Message, queue: MessageQueue, *, delay_level: int, max_retries: int, timeout: float
    ) -> None:
        """Send a failed message back; returns when the broker has stored it for later.

        The broker finds it by its position in the log. Raises AnotherQueueError when another message may be there.
        """
        connection = await self.holding(message, queue)
        request = SendBackRequest(
            message.physical_offset,
            self._group,
            delay_level,
            message.message_id,
            message.topic,
            max_retries,
            queue.broker_name,
        )
        await send_back(connection, request, timeout)


def is_busy(error: RocketAppError) -> bool:
    """Whether a broker did not process the request: it has too much to do, or may not be read."""
    return isinstance(error, BrokerError) and error.code in _BUSY


def _first_record(result: PullResult, queue: MessageQueue, offset: int = 0) -> Landmark | None:
    """The record of the message at this offset or behind it. A record with several messages is sent whole."""
    found = (one for one in decode_records(result.body, queue) if one.offset >= offset)
    first = next(found, None)
    return None if first is None else _landmark(first)


def _landmark(message: Message) -> Landmark:
    return Landmark(message.offset, message.stored_ms, message.message_id)
