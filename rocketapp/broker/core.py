"""The state that the processors of one broker share: its tables, its store, its address.

It contains values and tables only; the timers are in `broker`.
"""

from __future__ import annotations

import asyncio
import ipaddress
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from msgspec.structs import replace

from rocketapp.broker.delays import DelayedMessages
from rocketapp.broker.groups import GroupConfig, GroupTable
from rocketapp.broker.half_messages import HalfMessages
from rocketapp.broker.locks import LockTable
from rocketapp.broker.members import Groups
from rocketapp.broker.offsets import OffsetTable
from rocketapp.broker.steady_clock import SteadyClock
from rocketapp.broker.store.store import MessageStore
from rocketapp.broker.timers import TimedMessages
from rocketapp.broker.topics import TopicTable
from rocketapp.config.broker import BrokerConfig
from rocketapp.errors import BrokerError, StoreError
from rocketapp.model.names import group_problem, retry_topic, topic_problem
from rocketapp.model.route import MASTER_ID, PERM_READ
from rocketapp.transport.connection import Connection
from rocketapp.transport.stream import split_address
from rocketapp.wire.codes import ResponseCode
from rocketapp.wire.layout import BORN_IPV6, STORE_IPV6
from rocketapp.wire.message_id import UniqueIds
from rocketapp.wire.requests.admin import TopicConfig

_WINDOWS = (10.0, 60.0, 600.0)
"""Seconds over which rates of messages are shown."""


class Traffic:
    """Counters since the start, and samples of them."""

    def __init__(self) -> None:
        self.put = self.got = 0
        self._samples: deque[tuple[float, int, int]] = deque()

    def __repr__(self) -> str:
        return f"<Traffic {self.put} in, {self.got} out>"

    def sample(self, now: float) -> None:
        """Store the present counters, and drop samples older than the longest window."""
        self._samples.append((now, self.put, self.got))
        while len(self._samples) > 1 and self._samples[1][0] <= now - _WINDOWS[-1]:
            self._samples.popleft()

    def put_rates(self, now: float) -> list[float]:
        """Messages stored per second over the last 10, 60 and 600 seconds, as far as samples reach back."""
        return [self._rate(now, window, 1, self.put) for window in _WINDOWS]

    def got_rates(self, now: float) -> list[float]:
        """Messages served per second over the same windows."""
        return [self._rate(now, window, 2, self.got) for window in _WINDOWS]

    def _rate(self, now: float, window: float, column: int, count: int) -> float:
        then = next((sample for sample in self._samples if sample[0] >= now - window), None)
        if then is None or now <= then[0]:
            return 0.0
        return (count - then[column]) / (now - then[0])


def ip_of(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """An IP address as a number, of version 4 where it is mapped into one of 6. Raises ValueError for a name."""
    ip = ipaddress.ip_address(host.partition("%")[0])
    return getattr(ip, "ipv4_mapped", None) or ip


@dataclass(frozen=True, slots=True)
class Host:
    """An address as records store it: 4 or 16 bytes, and a port."""

    raw: bytes
    port: int

    @property
    def is_ipv6(self) -> bool:
        return len(self.raw) == 16

    @classmethod
    def of(cls, address: str) -> Host:
        """The host of `ip:port`. A name instead of an IP address counts as loopback."""
        try:
            name, port = split_address(address)
            return cls(ip_of(name).packed, port)
        except ValueError:
            return cls(b"\x7f\x00\x00\x01", 0)


class Hosts(NamedTuple):
    """The two addresses of a client's connection, as they are stored in the messages that it sends."""

    born: Host
    store: Host
    flags: int
    """What `sys_flag` says of their kinds."""


Tell = Callable[[StoreError | None], object]
"""Called when something is on disk, or with the error."""


def ended(begin: Callable[[Tell], None]) -> asyncio.Future[None]:
    """A future for an operation that reports its end to a callback: done, or failed with StoreError."""
    end: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def told(error: StoreError | None) -> None:
        if not end.done():
            end.set_result(None) if error is None else end.set_exception(error)

    begin(told)
    return end


def check_name(problem: str | None) -> None:
    """Raises BrokerError 29 where there is a problem with a name."""
    if problem is not None:
        raise BrokerError(ResponseCode.INVALID_PARAMETER, problem)


@dataclass(slots=True)
class Core:
    """The tables that the processors of one broker share."""

    config: BrokerConfig
    clock: SteadyClock
    random: Random
    monotonic: Callable[[], float]
    store: MessageStore
    delays: DelayedMessages
    timers: TimedMessages
    halves: HalfMessages
    topics: TopicTable
    groups: GroupTable
    offsets: OffsetTable
    locks: LockTable
    save_locks: Callable[[Tell | None], None]
    """Writes the queue locks soon, once for many changes. The argument is called when they are on disk, or with the
    error. A restart before that only keeps a free lock for its last owner until it expires."""
    unique_ids: UniqueIds
    save: Callable[[Tell | None], None]
    """Writes changed topics and groups soon, once for many changes; all replies wait for it, but those to pulls. The
    argument is called when they are on disk, or with the error: then all changes that were not written are taken back.
    """
    on_topic_created: Callable[[str], None] = lambda topic: None
    """Called with the name of every new topic."""
    consumers: Groups = field(default_factory=Groups)
    producers: Groups = field(default_factory=Groups)
    traffic: Traffic = field(default_factory=Traffic)
    address: str = ""
    """Where clients reach this broker: `host:port`."""
    ha_address: str = ""
    """Where slaves copy the log; empty where nobody does."""
    copies_from: str | None = None
    """Where a slave copies the log; empty while it does not, None at a master."""

    def now_ms(self) -> int:
        """The time of day, in milliseconds since 1970."""
        return int(self.clock.now() * 1000)

    def hosts(self, connection: Connection) -> Hosts:
        """The addresses of a connection, computed once and kept in its `state`."""
        known: Hosts | None = connection.state
        if known is None:
            born, here = Host.of(connection.peer), Host.of(self.address)
            known = Hosts(born, here, BORN_IPV6 * born.is_ipv6 | STORE_IPV6 * here.is_ipv6)
            connection.state = known
        return known

    @property
    def broker_id(self) -> int:
        """The number of this broker among those of its name: 0 for the master."""
        return self.config.id if self.config.role == "slave" else MASTER_ID

    def first_waiting(self) -> float:
        """The position in the log of the first delayed or half message; infinite without any."""
        firsts = (waiting.first_position() for waiting in (self.delays, self.timers, self.halves))
        return min((first for first in firsts if first is not None), default=math.inf)

    def done_to(self, group: str, topic: str, queue_id: int) -> int:
        """The group's committed offset; the queue's first offset if it has committed nothing."""
        done = self.offsets.committed(group, topic, queue_id)
        return self.store.min_offset(topic, queue_id) if done is None else done

    def unused_topics(self) -> list[str]:
        """Stored topics that have no configuration any more."""
        topics = self.topics
        return sorted(name for name in self.store.topics() if topics.get(name) is None and not topics.is_system(name))

    def known_topic(self, topic: str) -> TopicConfig:
        """The topic's configuration. Raises BrokerError 17 when the topic does not exist."""
        config = self.topics.get(topic)
        if config is None:
            raise BrokerError(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{topic}] not exist, apply first please! See https://rocketmq.apache.org/docs/bestPractice/06FAQ",
            )
        return config

    def check_readable(self, name: str, queue_id: int, doing: str, *, least: float = -math.inf) -> None:
        """Raises BrokerError unless consumers may read this queue, which has at least this id."""
        topic = self.known_topic(name)
        if not topic.perm & PERM_READ:
            raise BrokerError(ResponseCode.NO_PERMISSION, f"the topic[{name}] {doing} message is forbidden")
        if not least <= queue_id < topic.read_queues:
            problem = f"queueId[{queue_id}] is illegal, topic:[{name}] topicConfig.readQueueNums:[{topic.read_queues}]"
            raise BrokerError(ResponseCode.INVALID_PARAMETER, problem)

    def group(self, name: str) -> GroupConfig:
        """The group's configuration; a new group gets the defaults. Raises BrokerError 29 for an illegal name."""
        config = self.groups.get(name)
        if config is not None:
            return config
        check_name(group_problem(name))
        config = GroupConfig.from_json({"groupName": name})
        self.groups.put(config)
        self.save(None)
        return config

    def ensure_topic(self, topic: str, queues: int) -> TopicConfig:
        """The retry or dead-letter topic of a group: the existing one, or a new one."""
        config = self.topics.get(topic)
        if config is not None:
            return config
        check_name(topic_problem(topic))
        return self.put_topic(TopicConfig(topic, queues, queues))

    def put_topic(self, config: TopicConfig) -> TopicConfig:
        """Create or change a topic. Raises BrokerError 29 for a new one that the disk cannot tell from another."""
        known, store = self.topics.get(config.name), self.store
        if known is None and store.ignores_case:
            other = next((one.name for one in self.topics if one.name.lower() == config.name.lower()), None)
            if other is not None:
                problem = f"there is a topic {other}, and this broker's disk does not tell capital letters from small"
                raise BrokerError(ResponseCode.INVALID_PARAMETER, f"{config.name}: {problem}")
        first = store.end_position if known is None else known.first_position
        if known is None and any(store.max_offset(config.name, queue_id) for queue_id in range(config.write_queues)):
            first = 0  # what is stored although no topic has it is not given up
        config = replace(config, first_position=first)
        self.topics.put(config)
        self.save(None)
        if known is None:
            self.on_topic_created(config.name)
        return config

    def ensure_retry_topic(self, config: GroupConfig) -> TopicConfig:
        """The retry topic of a group. It grows with the group's retry queues, so that routes lead to all of them."""
        queues = max(config.retry_queues, 1)
        topic = self.ensure_topic(retry_topic(config.name), queues)
        if min(topic.read_queues, topic.write_queues) >= queues:
            return topic
        read_queues, write_queues = max(topic.read_queues, queues), max(topic.write_queues, queues)
        return self.put_topic(replace(topic, read_queues=read_queues, write_queues=write_queues))
