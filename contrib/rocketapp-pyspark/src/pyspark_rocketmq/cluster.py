"""A cluster as a read or write sees it: routes, places in queues, and connections that are used again.

Every call blocks, is tried again as the options say, and raises TransportError, BrokerError or NoRouteError.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from pyspark_rocketmq.options import Access, Reach
from pyspark_rocketmq.remoting import Connection
from rocketapp import BrokerError, MessageQueue, NoRouteError, RocketAppError, TransportError
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import Command
from rocketapp.wire.requests.offsets import CommitRequest, OffsetResponse, QueueRequest, SearchOffsetRequest
from rocketapp.wire.requests.routes import RouteRequest, decode_cluster_info, decode_route, decode_topic_list

T = TypeVar("T")

MASTER = 0
"""The broker id of the member that is written to."""
_AT_ONCE = 64
"""Most questions about queues in flight on one connection."""
_DEFAULT_TOPIC = "TBW102"
"""Brokers that create topics by themselves have it: a new topic gets queues where it has some."""
_NEW_QUEUES = 4
"""Most queues of a topic that a send creates."""
_SUCCESS = frozenset({ResponseCode.SUCCESS})
TRANSIENT = frozenset(
    {
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.FLOW_CONTROL,
        ResponseCode.GO_AWAY,
    }
)
"""Answers after which the same question may succeed."""


class Connections:
    """Idle connections of this process. A forked process begins with none: sockets are not shared."""

    def __init__(self) -> None:
        self._idle: dict[tuple[int, str, Access], list[Connection]] = {}
        """By process, address and access."""

    def take(self, address: str, access: Access, *, timeout: float) -> Connection:
        """An idle connection that its server has not closed, or a new one."""
        kept = self._idle.get((os.getpid(), address, access), [])
        while kept:
            connection = kept.pop()
            if connection.is_idle:
                return connection
            connection.close()
        return Connection(address, access, timeout=timeout)

    def give_back(self, connection: Connection) -> None:
        """Keep it for the next user, if it is idle."""
        if connection.is_idle:
            place = os.getpid(), connection.address, connection.access
            self._idle.setdefault(place, []).append(connection)
        else:
            connection.close()

    @contextmanager
    def lent(self, connection: Connection) -> Iterator[Connection]:
        """Until the block ends; it is closed when that raises."""
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        self.give_back(connection)

    def close(self) -> None:
        """Close what is idle."""
        for kept in self._idle.values():
            while kept:
                kept.pop().close()


CONNECTIONS = Connections()


class Cluster:
    """The cluster behind a list of name servers."""

    def __init__(self, reach: Reach) -> None:
        self.reach = reach
        self._addresses: dict[str, dict[int, str]] = {}
        """Addresses by broker name and broker id, as routes told them."""
        self._next_name_server = 0

    def topics(self) -> list[str]:
        """Every topic of the cluster that is in this namespace, retry, dead-letter and system topics left out."""
        reply = self._ask_name_server(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, None)
        own = f"{self.reach.namespace}%" if self.reach.namespace else ""
        return sorted(
            topic.removeprefix(own)
            for topic in decode_topic_list(reply.body)
            if topic.startswith(own) and not topic.removeprefix(own).startswith("%") and (own or "%" not in topic)
        )

    def readable(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic that may be read. Raises NoRouteError when the cluster does not know the topic."""
        return self._ask_route(topic)[0]

    def writable(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic that may be written; of a new one, those that its first message creates.

        Raises NoRouteError when the cluster does not know the topic, and none of its brokers creates topics by itself.
        """
        try:
            return self._ask_route(topic)[1]
        except NoRouteError:
            default = self._ask_route(topic, as_of=_DEFAULT_TOPIC)[1]
        return [queue for queue in default if queue.queue_id < _NEW_QUEUES]

    def max_offsets(self, queues: Iterable[MessageQueue], away: set[str] | None = None) -> dict[MessageQueue, int]:
        """By queue the offset that its next message will get."""
        return self._edges(RequestCode.GET_MAX_OFFSET, queues, away)

    def min_offsets(self, queues: Iterable[MessageQueue], away: set[str] | None = None) -> dict[MessageQueue, int]:
        """By queue the offset of its first message."""
        return self._edges(RequestCode.GET_MIN_OFFSET, queues, away)

    def _edges(
        self, code: RequestCode, queues: Iterable[MessageQueue], away: set[str] | None
    ) -> dict[MessageQueue, int]:
        fields = {queue: QueueRequest(self.wire_name(queue.topic), queue.queue_id).to_fields() for queue in queues}
        return _offsets(self.ask_brokers(code, fields, away))

    def offsets_at(self, times: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        """By queue the offset of the first message stored at that time (ms since 1970) or later, or the end."""
        fields = {
            queue: SearchOffsetRequest(self.wire_name(queue.topic), queue.queue_id, ms).to_fields()
            for queue, ms in times.items()
        }
        return _offsets(self.ask_brokers(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, fields))

    def commit(self, group: str, offsets: Mapping[MessageQueue, int], away: set[str]) -> None:
        """Move the offsets of a group. `away`: brokers that do not answer, whose offsets stay."""
        fields = {
            queue: CommitRequest(self.wire_name(group), self.wire_name(queue.topic), queue.queue_id, offset).to_fields()
            for queue, offset in offsets.items()
        }
        self.ask_brokers(RequestCode.UPDATE_CONSUMER_OFFSET, fields, away)

    def wire_name(self, name: str) -> str:
        """Topic or group as brokers know it."""
        return f"{self.reach.namespace}%{name}" if self.reach.namespace else name

    def connect(self, topic: str, broker: str, broker_id: int = MASTER) -> Connection:
        """A connection to that member of a broker. Give it back after use."""
        address = self._members(topic, broker).get(broker_id)
        if address is None:
            raise NoRouteError(
                topic, f"broker {broker} has no {'master' if broker_id == MASTER else 'such replica'} now"
            )
        return CONNECTIONS.take(address, self.reach.access, timeout=self.reach.timeout)

    def member(self, topic: str, broker: str, wanted: int, *, or_replica: bool) -> int:
        """The id of the member to read from: the one that is wanted, or the master, or a replica if that may be."""
        members = self._members(topic, broker)
        if wanted in members:
            return wanted
        return min(members) if or_replica and members else MASTER

    def _members(self, topic: str, broker: str) -> dict[int, str]:
        if broker not in self._addresses:
            self._ask_route(topic)
        return self._addresses.get(broker, {})

    def forget_routes(self) -> None:
        """Ask the name server again: brokers move."""
        self._addresses.clear()

    def has_replica(self, broker: str, broker_id: int) -> bool:
        return broker_id in self._addresses.get(broker, {})

    def masters(self) -> dict[str, str]:
        """The address of each broker's master, as a name server knows it; nothing when none answers."""
        try:
            reply = self._ask_some_name_server(RequestCode.GET_BROKER_CLUSTER_INFO, None)
        except (TransportError, BrokerError):
            return {}
        brokers = decode_cluster_info(reply.body)
        return {broker.broker_name: broker.addresses[MASTER] for broker in brokers if MASTER in broker.addresses}

    def retrying(self, attempt: Callable[[], T], *, retries: int | None = None) -> T:
        """Call until it succeeds or the attempts are used up; routes are asked again before each."""
        for left in range(self.reach.retries if retries is None else retries, -1, -1):
            try:
                return attempt()
            except (TransportError, BrokerError, NoRouteError) as error:
                hopeless = isinstance(error, BrokerError) and error.code not in TRANSIENT
                if left == 0 or hopeless:
                    raise
                self.pause()
                self.forget_routes()
        raise AssertionError("the last attempt returns or raises")

    def pause(self) -> None:
        """Wait before the next attempt."""
        threading.Event().wait(self.reach.retry_interval)

    def _ask_route(self, topic: str, *, as_of: str | None = None) -> tuple[list[MessageQueue], list[MessageQueue]]:
        """The queues that may be read, and those that may be written. Keeps the addresses of the brokers.

        `as_of`: another topic, whose queues are meant.
        """
        try:
            fields = RouteRequest(as_of or self.wire_name(topic)).to_fields()
            reply = self._ask_name_server(RequestCode.GET_ROUTEINFO_BY_TOPIC, fields)
        except BrokerError as error:
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                raise NoRouteError(topic, "the name server does not know it") from None
            raise
        route = decode_route(reply.body)
        self._addresses.update((broker.broker_name, dict(broker.addresses)) for broker in route.brokers)
        return route.readable_queues(topic), route.writable_queues(topic)

    def _ask_name_server(self, code: RequestCode, fields: Mapping[str, str] | None) -> Command:
        return self.retrying(lambda: self._ask_some_name_server(code, fields))

    def _ask_some_name_server(self, code: RequestCode, fields: Mapping[str, str] | None) -> Command:
        servers = self.reach.name_servers
        problem: RocketAppError | None = None
        for _ in servers:
            try:
                return self.ask(servers[self._next_name_server % len(servers)], code, fields)
            except TransportError as error:
                problem = error
                self._next_name_server += 1
        assert problem is not None
        raise problem

    def ask(self, address: str, code: RequestCode, fields: Mapping[str, str] | None) -> Command:
        """The answer of one server. Raises BrokerError when it is not one of success."""
        connection = CONNECTIONS.take(address, self.reach.access, timeout=self.reach.timeout)
        with CONNECTIONS.lent(connection):
            reply = connection.call(code, fields, timeout=self.reach.timeout)
        return checked(reply, address)

    def ask_brokers(
        self,
        code: RequestCode,
        fields: Mapping[MessageQueue, Mapping[str, str]],
        away: set[str] | None = None,
        good: Collection[int] = _SUCCESS,
    ) -> dict[MessageQueue, Command]:
        """Ask about each queue at its broker, many questions at once. `good`: the codes of answers.

        `away`: brokers that did not answer last time, kept up to date here. Their queues are left out, and they are
        tried once. Without it, a broker that does not answer is an error.
        """
        found: dict[MessageQueue, Command] = {}
        by_broker: dict[str, list[MessageQueue]] = {}
        for queue in fields:
            by_broker.setdefault(queue.broker_name, []).append(queue)
        for broker, queues in by_broker.items():
            retries = 0 if away and broker in away else None
            try:
                for first in range(0, len(queues), _AT_ONCE):
                    some = {queue: fields[queue] for queue in queues[first : first + _AT_ONCE]}
                    found |= self.retrying(partial(self._ask_one, broker, code, some, good), retries=retries)
            except (TransportError, NoRouteError, BrokerError) as error:
                if away is None or (isinstance(error, BrokerError) and error.code not in TRANSIENT):
                    raise
                away.add(broker)
                self.forget_routes()
            else:
                if away:
                    away.discard(broker)
        return found

    def _ask_one(
        self, broker: str, code: RequestCode, some: Mapping[MessageQueue, Mapping[str, str]], good: Collection[int]
    ) -> dict[MessageQueue, Command]:
        found = {}
        with CONNECTIONS.lent(self.connect(next(iter(some)).topic, broker)) as connection:
            opaques = connection.send_all((code, fields, b"") for fields in some.values())
            asked = dict(zip(opaques, some, strict=True))
            while connection.in_flight:
                reply = connection.receive(self.reach.timeout)
                found[asked[reply.opaque]] = checked(reply, connection.address, good)
        return found


def _offsets(replies: Mapping[MessageQueue, Command]) -> dict[MessageQueue, int]:
    return {queue: OffsetResponse.from_fields(reply.fields).offset for queue, reply in replies.items()}


def checked(reply: Command, address: str, good: Collection[int] = _SUCCESS) -> Command:
    """The reply, if its code is a good one. Raises BrokerError."""
    if reply.code not in good:
        raise BrokerError(reply.code, reply.remark or "", address)
    return reply
