"""Prepares the promotion of a slave: which brokers run, what the slave lacks, and what to do next. Reads only.

The master is asked first and the slave after it, so a slave that has as much has all that the master had then. Offsets
have to be equal: a group that was set back at the master would skip messages at a slave with a higher offset. `missing`
decides by both answers.

A slave of Apache RocketMQ tells only where its log ends: `check_records` compares some of its records.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from rocketapp.admin.cluster import AdminCluster, AdminError, at_once, first_of
from rocketapp.admin.messages import read
from rocketapp.client.calls import admin, messages, replication
from rocketapp.errors import BrokerError, TransportError
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.names import DEFAULT_TOPIC
from rocketapp.model.route import MASTER_ID
from rocketapp.transport.connection import Connection
from rocketapp.wire.codes import ResponseCode
from rocketapp.wire.requests.statistics import TopicOffset

SENDS_GO_ON = 5
"""Looks in a row, a second apart, in which the log grows, until that is said to be no accident."""
WORK_GOES_ON = 5
"""Looks in which other offsets are committed, until that is said to be no accident: members commit every 5 s."""
MOST_QUEUES = 32
"""At most so many queues have records compared: those that were written last."""
_TIMERS_LATE_MS = 10_000
"""A slave asks for the progress of timers every 3 s, and answers when it has the log."""
_ANEW = "Empty its directory, and it begins anew"


@dataclass(frozen=True, slots=True)
class Copy:
    """A slave of the broker."""

    broker_id: int
    address: str
    end: int
    """Where its log ends."""
    copies_from: str
    """The master's address for slaves, as it knows it; empty for none."""
    name_server: str
    """What its option `namesrvAddr` says."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """A broker and its slaves."""

    broker: str
    address: str
    role: str
    """`ASYNC_MASTER` or `SYNC_MASTER`."""
    end: int
    """Where its log ends."""
    connected: int
    """Slaves that copy it now."""
    slaves: tuple[Copy, ...]
    """Those that the name server knows, by broker id."""

    @property
    def waits_for_slaves(self) -> bool:
        """Whether the master acknowledges a message only when a slave has it."""
        return self.role == "SYNC_MASTER"

    @property
    def successor(self) -> Copy | None:
        """The slave with the longest log; of several the one with the lowest id."""
        return max(self.slaves, key=lambda copy: (copy.end, -copy.broker_id), default=None)


@dataclass(frozen=True, slots=True)
class Held:
    """The state of a broker apart from its messages."""

    topics: frozenset[str]
    queues: Mapping[MessageQueue, TopicOffset]
    """Of these topics. A slave of Apache's that has the log may not have read it."""
    groups: frozenset[str]
    offsets: Mapping[tuple[str, int], int]
    """Committed, by `topic@group` and queue."""
    delays: Mapping[int, int]
    """Delivered messages of each delay level."""
    timers: tuple[int, int]
    """Up to when they were delivered, in milliseconds since 1970, and up to where their queue was read."""


async def survey(cluster: AdminCluster, broker: str | None) -> Fleet:
    """The brokers that run. Raises AdminError when the broker has no replication, or a slave is silent.

    `broker`: its name; None for the only one.
    """
    name = _chosen(cluster, broker)
    connection, timeout = await cluster.connection(name), cluster.timeout
    try:
        status = await replication.ha_status(connection, timeout)
    except BrokerError as error:
        if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise
        raise AdminError(f"{name} lets nobody copy its log: set broker.ha_port, and start a slave") from None
    options = await admin.broker_config(connection, timeout)
    (data,) = (one for one in await cluster.client.brokers() if one.broker_name == name)

    async def copy(place: tuple[int, str]) -> Copy:
        try:
            slave = await cluster.client.connection(place[1])
            theirs = await replication.ha_status(slave, timeout)
            known = (await admin.broker_config(slave, timeout)).get("namesrvAddr", "")
        except TransportError as error:
            raise AdminError(f"slave {place[0]} does not answer: {error}") from error
        return Copy(*place, theirs.end, theirs.copies_from, known)

    slaves = await at_once(copy, sorted(item for item in data.addresses.items() if item[0] != MASTER_ID))
    role = options.get("brokerRole", "ASYNC_MASTER")
    return Fleet(name, cluster.masters[name], role, status.end, status.slaves, tuple(slaves))


def _chosen(cluster: AdminCluster, broker: str | None) -> str:
    if broker is not None:
        if broker not in cluster.masters:
            raise AdminError(f"broker {broker} has no master: known are {', '.join(cluster.masters)}")
        return broker
    if len(cluster.masters) > 1:
        raise AdminError(f"say which one with --broker: {', '.join(cluster.masters)}")
    return next(iter(cluster.masters))


async def check_records(cluster: AdminCluster, fleet: Fleet, slave: Copy) -> None:
    """Raise AdminError for a position at which the slave has another record than its master.

    Compared are the first record that both logs may have and, of the queues that were written last, the oldest message
    that both have, the newest one, and those 1, 3, 7, 15... before that.
    """
    timeout = cluster.timeout
    ours, theirs = await cluster.connection(fleet.broker), await cluster.client.connection(slave.address)
    begin = max([await replication.log_begin(one, timeout) for one in (ours, theirs)])
    topics = await replication.topics_kept(ours, timeout)
    held, copied = await _queues(ours, topics, timeout), await _queues(theirs, topics, timeout)
    last = sorted(held.keys() & copied.keys(), key=lambda queue: -held[queue].updated_ms)[:MOST_QUEUES]
    places = [(queue, offset) for queue in last for offset in spread(held[queue], copied[queue])]

    async def position(place: tuple[MessageQueue, int]) -> int:
        queue, offset = place
        with contextlib.suppress(BrokerError):  # this queue may not be read
            async for (message,) in read(cluster, queue, offset, offset + 1):
                return message.physical_offset
        return begin  # it is deleted by now

    async def differs(position: int) -> bool:
        record = await messages.view(ours, position, timeout)
        if record is None or position + len(record) > slave.end:
            return False
        is_other = record != await messages.view(theirs, position, timeout)
        return is_other and position >= await replication.log_begin(theirs, timeout)  # it has not deleted it

    positions = sorted({begin, *await at_once(position, places)})
    for at, is_other in zip(positions, await at_once(differs, positions), strict=True):
        if is_other:
            raise AdminError(
                f"slave {slave.broker_id} is of another history: it has another record at {at} than {fleet.broker}. "
                f"{_ANEW}"
            )


def spread(ours: TopicOffset, theirs: TopicOffset) -> set[int]:
    """Offsets that both queues have: the first one, the last one, and those 1, 3, 7, 15... before that."""
    begin, end = max(ours.min_offset, theirs.min_offset), min(ours.max_offset, theirs.max_offset)
    return {begin, *(end - (1 << step) for step in range((end - begin).bit_length()))} if begin < end else set()


async def _queues(connection: Connection, topics: Collection[str], timeout: float) -> dict[MessageQueue, TopicOffset]:
    """The queues that this broker has of these topics."""

    async def of(topic: str) -> dict[MessageQueue, TopicOffset]:
        try:
            return await admin.topic_stats(connection, topic, timeout)
        except BrokerError as error:
            if error.code != ResponseCode.TOPIC_NOT_EXIST:
                raise
            return {}

    return {queue: offsets for some in await at_once(of, topics) for queue, offsets in some.items()}


class Watch:
    """Checks repeatedly what the slave lacks."""

    def __init__(self, cluster: AdminCluster, fleet: Fleet, successor: Copy) -> None:
        self._cluster, self._fleet, self._successor = cluster, fleet, successor
        self._end = fleet.end
        self._grown = 0
        self._offsets: Mapping[tuple[str, int], int] = {}
        self._moved = 0
        self.position: int = successor.end
        """Where the slave's log ends."""

    def __repr__(self) -> str:
        return f"<Watch of slave {self._successor.broker_id} of {self._fleet.broker}: {self.position}>"

    async def look(self) -> list[str]:
        """What the slave lacks now. Raises AdminError when waiting will not help."""
        fleet, timeout = self._fleet, self._cluster.timeout
        master = await self._cluster.connection(fleet.broker)
        slave = await self._cluster.client.connection(self._successor.address)
        status = await replication.ha_status(master, timeout)
        before, self.position = self.position, (await replication.ha_status(slave, timeout)).end
        self._grown = self._grown + 1 if status.end > self._end else 0
        goal, self._end = self._end if fleet.waits_for_slaves else status.end, status.end
        problem = hopeless(
            fleet,
            self._successor.broker_id,
            position=before,
            end=status.end,
            connected=status.slaves,
            grown=self._grown,
            moved=self._moved,
        )
        if problem:
            raise AdminError(problem)
        if not status.slaves:
            return [f"a connection: it tries every 5 s, and the log of {fleet.broker} says why it gets none"]
        if self.position < goal:
            return [f"the log up to {goal}, it ends at {self.position}"]
        try:
            ours = await _held(master, timeout)
        except BrokerError as error:
            if error.code != ResponseCode.SYSTEM_BUSY:
                raise
            return ["the log: a slave of its host is behind"]
        self._moved, self._offsets = self._moved + (ours.offsets != self._offsets), ours.offsets
        lacking = list(missing(ours, await _held(slave, timeout)))
        if self._grown and not fleet.waits_for_slaves:
            lacking.append("the end of the log, which still grows")
        return lacking


async def _held(connection: Connection, timeout: float) -> Held:
    topics = await replication.topics_kept(connection, timeout)
    return Held(
        topics=topics,
        queues=await _queues(connection, topics, timeout),
        groups=frozenset(await admin.groups(connection, timeout)),
        offsets=await replication.all_offsets(connection, timeout),
        delays=await replication.delay_offsets(connection, timeout),
        timers=await replication.timer_progress(connection, timeout),
    )


def hopeless(fleet: Fleet, broker_id: int, *, position: int, end: int, connected: int, grown: int, moved: int) -> str:
    """Why the slave will not get everything by waiting; empty while it may.

    `position`: where its log ended at the look before. `end`: where the master's ends now. `connected`: slaves that
    copy it. `grown`: looks in a row in which it has grown. `moved`: those in which other offsets were committed.
    """
    if not connected and position > end:
        return (
            f"slave {broker_id} is of another history: its log ends at {position}, that of {fleet.broker} at {end}. "
            f"{_ANEW}"
        )
    if grown >= SENDS_GO_ON and not fleet.waits_for_slaves:
        return (
            f"sends go on, and {fleet.broker} does not wait for its slaves: stop the apps that publish, "
            f'or set broker.role to "sync_master", then begin again'
        )
    if moved > WORK_GOES_ON:
        return "apps go on consuming, and the slave asks for offsets only now and then: stop the apps, then begin again"
    return ""


def missing(master: Held, slave: Held) -> Iterator[str]:
    """What the slave does not know yet, in words; nothing when it has as much as the master."""
    topics = master.topics - slave.topics - {DEFAULT_TOPIC}  # of which each broker has its own, or none
    for what, absent in (("topic", topics), ("group", master.groups - slave.groups)):
        if absent:
            yield f"{what} {first_of(sorted(absent))}"
    copied, empty = slave.queues, TopicOffset(0, 0)
    others = {queue.topic for queue, held in master.queues.items() if _has_others(held, copied.get(queue, empty))}
    if others:
        yield f"messages of {first_of(sorted(others))}"
    begins = {
        (queue.topic, queue.queue_id): held.min_offset
        for queue, held in copied.items()
        if queue in master.queues and held.min_offset > master.queues[queue].min_offset
    }
    unread = {
        key for (key, queue), offset in master.offsets.items() if offset < begins.get((key.partition("@")[0], queue), 0)
    }
    if unread:
        yield f"unread messages of {first_of(sorted(unread))}"
    late = sorted(
        {key for (key, queue), offset in master.offsets.items() if slave.offsets.get((key, queue), 0) != offset}
    )
    if late:
        yield f"committed offsets of {first_of(late)}"
    levels = sorted(level for level, offset in master.delays.items() if slave.delays.get(level, 0) < offset)
    if levels:
        yield f"progress of delay level {first_of(levels)}"
    (done_ms, read), (slave_done_ms, slave_read) = master.timers, slave.timers
    if slave_read < read or slave_done_ms < done_ms - _TIMERS_LATE_MS:
        yield "progress of timers"


def _has_others(ours: TopicOffset, theirs: TopicOffset) -> bool:
    """Whether a queue of the slave has fewer messages than its master's, or more and none that is newer.

    A slave has more when it kept the messages of a deleted topic: Apache's appends those of a new topic of that name
    behind the old ones, and leaves some out.
    """
    is_longer = theirs.max_offset > ours.max_offset and not theirs.updated_ms > ours.updated_ms > 0
    return is_longer or max(ours.min_offset, theirs.max_offset) < ours.max_offset


def steps(fleet: Fleet, successor: Copy) -> list[str]:
    """What to do when the slave has everything, in this order."""
    others = [one for one in successor.name_server.replace(",", ";").split(";") if one and one != fleet.address]
    known = ";".join(others) or "HOST:9876"
    begin = (
        "Start it again"
        if others
        else "Start a name server of Apache's at HOST:9876 (an embedded broker is its own), and then that broker"
    )
    return [
        "Stop the apps.",
        f"Stop {fleet.broker} at {fleet.address} with Ctrl-C or SIGTERM: it gives slaves the rest of its log.",
        f"Stop slave {successor.broker_id} at {successor.address}, and write these lines to its broker.conf: "
        f"brokerRole=ASYNC_MASTER, brokerId=0, namesrvAddr={known} (the settings role, id and name_server of an "
        f"embedded one)",
        f"{begin}.",
        *(
            f"Start slave {other.broker_id} at {other.address} again, with namesrvAddr={known} in its broker.conf "
            f"(name_server, or the new master, of an embedded one)."
            for other in fleet.slaves
            if other.broker_id != successor.broker_id
        ),
        f"Start the apps with --name-server {known}",
        f"Never start {fleet.broker} on its old directory again.",
    ]
