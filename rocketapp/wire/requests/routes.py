"""Requests to name servers: which brokers hold a topic.

Codes: GET_ROUTEINFO_BY_TOPIC 105, GET_BROKER_CLUSTER_INFO 106,
GET_ALL_TOPIC_LIST_FROM_NAMESERVER 206. Java: GetRouteInfoRequestHeader,
TopicRouteData, QueueData, BrokerData, ClusterInfo, TopicList.

Broker ids are written as quoted keys, which fastjson reads as well; both forms are read.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rocketapp.model.route import BrokerData, QueueData, TopicRoute
from rocketapp.wire import lenient_json
from rocketapp.wire.fields import Header, java_names
from rocketapp.wire.lenient_json import dump, int32_of, int64_of, text_of

MOST_QUEUES = 65535
"""Most queues of one topic on one broker. A client makes an object per queue, so it refuses larger numbers."""


class RouteRequest(Header, frozen=True, rename=java_names(standard_json="acceptStandardJsonOnly")):
    """Asks for the route of a topic."""

    topic: str
    standard_json: bool = True
    """Asks for quoted keys, which a server otherwise chooses by the client's version."""


def encode_route(route: TopicRoute) -> bytes:
    """TopicRouteData as standard JSON."""
    data: dict[str, Any] = {
        "brokerDatas": [_broker_members(broker) for broker in route.brokers],
        "filterServerTable": {},
        "queueDatas": [
            {
                "brokerName": queue.broker_name,
                "perm": queue.perm,
                "readQueueNums": queue.read_queues,
                "topicSysFlag": queue.sys_flag,
                "writeQueueNums": queue.write_queues,
            }
            for queue in route.queues
        ],
    }
    if route.order_conf:
        data["orderTopicConf"] = route.order_conf
    return dump(data)


def decode_route(body: bytes) -> TopicRoute:
    """Read TopicRouteData; raises ProtocolError."""
    with lenient_json.reading("route of a topic", body) as data:
        queues = tuple(
            QueueData(
                text_of(queue["brokerName"]),
                _queue_count(queue["readQueueNums"]),
                _queue_count(queue["writeQueueNums"]),
                int32_of(queue["perm"]),
                int32_of(queue.get("topicSysFlag") or 0),
            )
            for queue in data.get("queueDatas") or ()
        )
        brokers = tuple(map(_broker_of, data.get("brokerDatas") or ()))
        return TopicRoute(queues, brokers, text_of(data.get("orderTopicConf") or ""))


def encode_cluster_info(brokers: Iterable[BrokerData]) -> bytes:
    """ClusterInfo: every broker by name, and the names by cluster."""
    table = {broker.broker_name: _broker_members(broker) for broker in brokers}
    clusters: dict[str, list[str]] = {}
    for name, members in table.items():
        clusters.setdefault(members["cluster"], []).append(name)
    return dump({"brokerAddrTable": table, "clusterAddrTable": clusters})


def decode_cluster_info(body: bytes) -> tuple[BrokerData, ...]:
    """The brokers of a ClusterInfo; raises ProtocolError."""
    with lenient_json.reading("cluster info", body) as data:
        return tuple(map(_broker_of, (data.get("brokerAddrTable") or {}).values()))


def encode_topic_list(topics: Iterable[str]) -> bytes:
    return dump({"topicList": list(topics)})


def decode_topic_list(body: bytes) -> list[str]:
    """The topics of a TopicList; raises ProtocolError."""
    with lenient_json.reading("topic list", body) as data:
        return [text_of(topic) for topic in data.get("topicList") or ()]


def _broker_members(broker: BrokerData) -> dict[str, Any]:
    return {
        "brokerAddrs": {str(broker_id): address for broker_id, address in broker.addresses.items()},
        "brokerName": broker.broker_name,
        "cluster": broker.cluster,
        "enableActingMaster": False,
    }


def _queue_count(value: Any) -> int:
    count = int32_of(value)
    if not 0 <= count <= MOST_QUEUES:
        raise ValueError(f"{count} queues: 0 to {MOST_QUEUES} are legal")
    return count


def _broker_of(members: Any) -> BrokerData:
    addresses = {
        int64_of(broker_id): text_of(address) for broker_id, address in (members.get("brokerAddrs") or {}).items()
    }
    return BrokerData(text_of(members.get("cluster") or ""), text_of(members["brokerName"]), addresses)
