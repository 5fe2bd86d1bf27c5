"""The name server of an embedded cluster: it answers which broker holds a topic.

Codes GET_ROUTEINFO_BY_TOPIC 105, GET_BROKER_CLUSTER_INFO 106, GET_ALL_TOPIC_LIST_FROM_NAMESERVER 206,
DELETE_TOPIC_IN_NAMESRV 216, GET_TOPICS_BY_CLUSTER 224, GET_SYSTEM_TOPIC_LIST_FROM_NS 304, GET_NAMESRV_CONFIG 319,
WIPE_WRITE_PERM_OF_BROKER 205, ADD_WRITE_PERM_OF_BROKER 327 (Java: namesrv's ClientRequestProcessor,
DefaultRequestProcessor).

It has no table of topics: it asks the broker in the same process each time, so a route is always current. Other brokers
register: see `brokers`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from rocketapp.errors import BrokerError
from rocketapp.model.route import PERM_WRITE, BrokerData, QueueData, TopicRoute
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
from rocketapp.wire import fields as read
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import Command
from rocketapp.wire.requests.admin import TopicConfig
from rocketapp.wire.requests.registration import TopicQueues
from rocketapp.wire.requests.routes import RouteRequest, encode_cluster_info, encode_route, encode_topic_list

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
