"""The name server of an embedded cluster: it answers which broker holds a topic.

Codes GET_ROUTEINFO_BY_TOPIC 105, GET_BROKER_CLUSTER_INFO 106, GET_ALL_TOPIC_LIST_FROM_NAMESERVER 206,
DELETE_TOPIC_IN_NAMESRV 216, GET_TOPICS_BY_CLUSTER 224, GET_SYSTEM_TOPIC_LIST_FROM_NS 304, GET_NAMESRV_CONFIG 319,
WIPE_WRITE_PERM_OF_BROKER 205, ADD_WRITE_PERM_OF_BROKER 327; and of brokers REGISTER_BROKER 103, UNREGISTER_BROKER 104,
QUERY_DATA_VERSION 322 (Java: namesrv's ClientRequestProcessor, DefaultRequestProcessor, RouteInfoManager).

It has no table of topics of the broker in the same process, which is asked each time, so that a route is always
current. Others register: slaves of that broker are taken when it lets its log be copied, brokers of other names when an
option says so. They say again every 30 s that they are there; one that is silent for long, or whose connection ends, is
forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from rocketapp.errors import BrokerError
from rocketapp.model.route import MASTER_ID, PERM_WRITE, BrokerData, QueueData, TopicRoute
from rocketapp.transport.answers import (
    CHANGE_CLUSTER,
    DONE,
    FOR_EVERYBODY,
    KEYS_ARE_ENOUGH,
    SEE_CLUSTER,
    Answer,
    answers,
    on_topic,
)
from rocketapp.transport.connection import Connection
from rocketapp.transport.stream import split_address
from rocketapp.wire import fields as read
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import Command
from rocketapp.wire.requests.admin import TopicConfig
from rocketapp.wire.requests.registration import HA_ADDRESS, BrokerRequest, Registered, TopicQueues, decode_topics
from rocketapp.wire.requests.routes import RouteRequest, encode_cluster_info, encode_route, encode_topic_list

EXPIRY = 120.0
"""Seconds without a registration after which a broker is forgotten (Java: heartbeatTimeoutMillis)."""
MOST_BROKERS = 64
"""Slaves and other brokers."""

Shown = tuple[BrokerData, Mapping[str, TopicConfig | TopicQueues]]
"""A broker and its topics."""


class NameServer:
    """Answers clients that look for topics."""

    def __init__(self, shown: Callable[[], Iterable[Shown]]) -> None:
        """`shown`: the brokers, each with its topics."""
        self._shown = shown
        self._wiped: set[str] = set()
        """Brokers to which nothing may be written, say routes, as an administrator wants it before a broker stops."""

    def __repr__(self) -> str:
        return f"<NameServer of {len(self._topics())} topics>"

    def _brokers(self) -> list[BrokerData]:
        return [broker for broker, _ in self._shown()]

    def _topics(self, cluster: str | None = None) -> list[str]:
        """The topics of all brokers, or of those of this cluster."""
        return sorted({topic for of, topics in self._shown() if cluster in (None, of.cluster) for topic in topics})

    @answers(RequestCode.GET_ROUTEINFO_BY_TOPIC, needs=FOR_EVERYBODY, reads=RouteRequest)
    def route(self, request: RouteRequest) -> Answer:
        topic = request.topic
        found = [(broker, topics[topic]) for broker, topics in self._shown() if topic in topics]
        if not found:
            raise BrokerError(
                ResponseCode.TOPIC_NOT_EXIST,
                f"No topic route info in name server for the topic: {topic}\n"
                "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details.",
            )
        queues = []
        for broker, of in found:
            perm = of.perm & ~PERM_WRITE if broker.broker_name in self._wiped else of.perm
            queues.append(QueueData(broker.broker_name, of.read_queues, of.write_queues, perm, of.sys_flag))
        return encode_route(TopicRoute(tuple(queues), tuple(broker for broker, _ in found)))

    @answers(RequestCode.GET_BROKER_CLUSTER_INFO, needs=FOR_EVERYBODY)
    def cluster_info(self, connection: Connection, command: Command) -> Answer:
        return encode_cluster_info(self._brokers())

    @answers(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, needs=KEYS_ARE_ENOUGH)
    def topic_list(self, connection: Connection, command: Command) -> Answer:
        return encode_topic_list(self._topics())

    @answers(RequestCode.DELETE_TOPIC_IN_NAMESRV, needs=(on_topic("Delete"),))
    def delete_topic(self, connection: Connection, command: Command) -> Answer:
        """Do nothing: routes come from the broker, and a topic disappears when the broker deletes it."""
        read.text(command.fields, "topic")
        return DONE

    @answers(RequestCode.GET_TOPICS_BY_CLUSTER, needs=KEYS_ARE_ENOUGH)
    def topics_by_cluster(self, connection: Connection, command: Command) -> Answer:
        return encode_topic_list(self._topics(read.text(command.fields, "cluster")))

    @answers(RequestCode.GET_NAMESRV_CONFIG, needs=SEE_CLUSTER)
    def config(self, connection: Connection, command: Command) -> Answer:
        """What Apache's admin tool shows; there is nothing to set."""
        host, _, port = connection.local.rpartition(":")
        return f"bindAddress={host.strip('[]')}\nlistenPort={port}\norderMessageEnable=false\n".encode()

    @answers(RequestCode.WIPE_WRITE_PERM_OF_BROKER, needs=CHANGE_CLUSTER)
    def wipe_write_perm(self, connection: Connection, command: Command) -> Answer:
        """From now on routes say that nothing may be written, until `add_write_perm` or a restart."""
        return self._set_wiped(command, True, "wipeTopicCount")

    @answers(RequestCode.ADD_WRITE_PERM_OF_BROKER, needs=CHANGE_CLUSTER)
    def add_write_perm(self, connection: Connection, command: Command) -> Answer:
        return self._set_wiped(command, False, "addTopicCount")

    def _set_wiped(self, command: Command, is_wiped: bool, count: str) -> dict[str, str]:
        name = read.text(command.fields, "brokerName")
        is_known = any(broker.broker_name == name for broker in self._brokers())
        if is_known:
            (self._wiped.add if is_wiped else self._wiped.discard)(name)
        topics = len(self._topics()) if is_known else 0
        return {count: str(topics)}

    @answers(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS, needs=KEYS_ARE_ENOUGH)
    def system_topics(self, connection: Connection, command: Command) -> Answer:
        """The names of clusters and brokers, which are system topics."""
        names = sorted({name for broker in self._brokers() for name in (broker.cluster, broker.broker_name)})
        return encode_topic_list(names)


class _Known(NamedTuple):
    request: BrokerRequest
    ha_address: str
    connection: Connection
    seen: float
    body: bytes
    topics: Mapping[str, TopicQueues]
    """The topics of a broker of another name; a slave has its master's."""


class BrokerTable:
    """Answers brokers that register, and joins the broker of this process with those that have registered."""

    def __init__(
        self,
        own: Callable[[], Shown],
        now: Callable[[], float],
        *,
        ha_address: Callable[[], str],
        takes_others: bool = False,
    ) -> None:
        """`now` in seconds, by a clock that never goes back.

        `ha_address`: where slaves of `own` copy the log; empty where none may.
        """
        self._own, self._now, self._ha_address = own, now, ha_address
        self._takes_others = takes_others
        self._known: dict[tuple[str, int], _Known] = {}
        """By name and id."""

    def __repr__(self) -> str:
        return f"<BrokerTable: {len(self._known)} have registered>"

    def shown(self) -> Iterator[Shown]:
        """The broker of this process, and those of other names: each with its slaves, and the topics of its master.

        Or of a slave while there is no master.
        """
        own, topics = self._own()
        yield BrokerData(own.cluster, own.broker_name, {**own.addresses, **self._addresses(own.broker_name)}), topics
        alive = self._alive()
        for name in sorted({name for name, _ in alive if not self._is_ours(name)}):
            addresses = self._addresses(name)
            first = alive[name, min(addresses)]
            yield BrokerData(first.request.cluster_name, name, addresses), first.topics

    def is_known(self, host: str) -> bool:
        """Whether a slave of the broker of this process has registered from this host."""
        return any(
            self._is_ours(name) and split_address(known.connection.peer)[0] == host
            for (name, _), known in self._alive().items()
        )

    # What brokers say.

    @answers(RequestCode.REGISTER_BROKER, needs=CHANGE_CLUSTER)
    def register(self, connection: Connection, command: Command) -> Answer:
        """Note a broker; tell it where its master is."""
        request, body = BrokerRequest.from_fields(command.fields), command.body
        key = request.broker_name, request.broker_id
        problem = self._problem(request)
        if problem is None and key not in self._alive() and len(self._known) >= MOST_BROKERS:
            problem = f"{MOST_BROKERS} brokers are known already"
        if problem is not None:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, f"register broker failed: {problem}")
        before = self._known.get(key)
        topics: Mapping[str, TopicQueues] = {}
        if not self._is_ours(request.broker_name):
            topics = before.topics if before is not None and before.body == body else decode_topics(body)
        for other, known in list(self._known.items()):  # a slave that has become the master
            if other[0] == key[0] and known.request.address == request.address:
                del self._known[other]
        ha_address, kept = (command.fields or {}).get(HA_ADDRESS, ""), body if topics else b""
        self._known[key] = _Known(request, ha_address, connection, self._now(), kept, topics)
        fields = self._master_of(request.broker_name).to_fields()
        return Command.response(command, ResponseCode.SUCCESS, fields=fields, body=b'{"table":{}}')

    @answers(RequestCode.UNREGISTER_BROKER, needs=CHANGE_CLUSTER, reads=BrokerRequest)
    def unregister(self, request: BrokerRequest) -> Answer:
        key = request.broker_name, request.broker_id
        known = self._known.get(key)
        if known is not None and known.request.address == request.address:
            del self._known[key]
        return DONE

    @answers(RequestCode.QUERY_DATA_VERSION, needs=CHANGE_CLUSTER)
    def version(self, connection: Connection, command: Command) -> Answer:
        """Whatever version its topics have, it may register: an equal table costs nothing here."""
        return Command.response(command, ResponseCode.SUCCESS, fields={"changed": "true"}, body=b"{}")

    def connection_lost(self, connection: Connection) -> None:
        self._known = {key: known for key, known in self._known.items() if known.connection is not connection}

    def _problem(self, request: BrokerRequest) -> str | None:
        own, _ = self._own()
        is_ours = request.broker_name == own.broker_name
        if (is_ours and request.cluster_name != own.cluster) or not (self._takes_others or is_ours):
            return f"only slaves of {own.broker_name} in {own.cluster} are taken"
        if is_ours and not self._ha_address():
            return f"{own.broker_name} lets nobody copy its log"
        if is_ours and request.broker_id <= MASTER_ID:
            return f"{own.broker_name} has a master, at {own.master}: a slave's brokerId is above 0"
        try:
            split_address(request.address)
        except ValueError as error:
            return str(error)
        return None

    def _master_of(self, name: str) -> Registered:
        if self._is_ours(name):
            return Registered(self._ha_address(), self._own()[0].master or "")
        master = self._known.get((name, MASTER_ID))
        return Registered() if master is None else Registered(master.ha_address, master.request.address)

    def _is_ours(self, name: str) -> bool:
        return self._own()[0].broker_name == name

    def _addresses(self, name: str) -> dict[int, str]:
        alive = sorted(self._alive().items())
        return {broker_id: known.request.address for (of, broker_id), known in alive if of == name}

    def _alive(self) -> Mapping[tuple[str, int], _Known]:
        now = self._now()
        for key in [key for key, known in self._known.items() if now - known.seen > EXPIRY]:
            del self._known[key]
        return self._known
