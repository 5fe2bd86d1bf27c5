"""Where topics live."""

from __future__ import annotations

import json

import pytest

from rocketapp.errors import ProtocolError
from rocketapp.model.route import BrokerData, QueueData, TopicRoute
from rocketapp.wire.requests.routes import (
    RouteRequest,
    decode_cluster_info,
    decode_route,
    decode_topic_list,
    encode_cluster_info,
    encode_route,
    encode_topic_list,
)
from tests.cases import cases

BROKER_A = BrokerData("DefaultCluster", "broker-a", {0: "10.0.0.1:10911", 1: "10.0.0.2:10911"})
ROUTE = TopicRoute((QueueData("broker-a", 4, 3, 6, 1),), (BROKER_A,), "broker-a:4")


def test_a_route_is_written_in_java_members() -> None:
    assert json.loads(encode_route(ROUTE)) == {
        "orderTopicConf": "broker-a:4",
        "queueDatas": [
            {"brokerName": "broker-a", "readQueueNums": 4, "writeQueueNums": 3, "perm": 6, "topicSysFlag": 1}
        ],
        "brokerDatas": [
            {
                "cluster": "DefaultCluster",
                "brokerName": "broker-a",
                "brokerAddrs": {"0": "10.0.0.1:10911", "1": "10.0.0.2:10911"},
                "enableActingMaster": False,
            }
        ],
        "filterServerTable": {},
    }


def test_a_route_is_read_back() -> None:
    assert decode_route(encode_route(ROUTE)) == ROUTE


def test_a_route_with_bare_broker_ids_is_read() -> None:
    body = (
        b'{"brokerDatas":[{"brokerAddrs":{0:"a:1",2:"b:2"},"brokerName":"b","cluster":"c"}],"filterServerTable":{},'
        b'"queueDatas":[{"brokerName":"b","perm":6,"readQueueNums":2,"writeQueueNums":2}]}'
    )
    route = decode_route(body)
    assert route.brokers[0].addresses == {0: "a:1", 2: "b:2"}
    assert route.queues == (QueueData("b", 2, 2, 6),)


def test_an_empty_route_is_a_route() -> None:
    assert decode_route(b"{}") == TopicRoute((), ())


def test_cluster_info_lists_brokers_by_name_and_names_by_cluster() -> None:
    other = BrokerData("Other", "broker-b", {0: "x:1"})
    data = json.loads(encode_cluster_info([BROKER_A, other]))
    assert data["clusterAddrTable"] == {"DefaultCluster": ["broker-a"], "Other": ["broker-b"]}
    assert data["brokerAddrTable"]["broker-b"]["brokerAddrs"] == {"0": "x:1"}
    assert decode_cluster_info(encode_cluster_info([BROKER_A, other])) == (BROKER_A, other)


def test_a_topic_list_is_read_back() -> None:
    assert decode_topic_list(encode_topic_list(["a", "%RETRY%b"])) == ["a", "%RETRY%b"]
    assert decode_topic_list(b'{"topicList":null}') == []


def test_a_route_request_asks_for_standard_json() -> None:
    assert RouteRequest("T").to_fields() == {"topic": "T", "acceptStandardJsonOnly": "true"}
    assert RouteRequest.from_fields({"topic": "T"}) == RouteRequest("T", standard_json=False)
    with pytest.raises(ProtocolError, match="topic"):
        RouteRequest.from_fields(None)


@cases(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b'{"queueDatas":[7]}',
        b'{"queueDatas":7}',
        b'{"queueDatas":[{}]}',
        b'{"queueDatas":[{"brokerName":"b","perm":6,"readQueueNums":-1,"writeQueueNums":1}]}',
        b'{"queueDatas":[{"brokerName":"b","perm":6,"readQueueNums":1000000000,"writeQueueNums":1}]}',
        b'{"queueDatas":[{"brokerName":[],"perm":6,"readQueueNums":1,"writeQueueNums":1}]}',
        b'{"brokerDatas":[{"brokerName":"b","brokerAddrs":{"x":"y"}}]}',
        b'{"brokerDatas":[{"brokerName":"b","brokerAddrs":[]}, 1]}',
    ],
)
def test_what_is_no_route_raises_a_protocol_error(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_route(body)


@pytest.mark.parametrize("body", [b"", b"[]", b'{"brokerAddrTable":[1]}', b'{"brokerAddrTable":{"a":1}}'])
def test_what_is_no_cluster_info_raises_a_protocol_error(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_cluster_info(body)


@pytest.mark.parametrize("body", [b"", b"7", b'{"topicList":[[1]]}', b'{"topicList":7}'])
def test_what_is_no_topic_list_raises_a_protocol_error(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_topic_list(body)
