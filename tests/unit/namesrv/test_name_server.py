"""Where topics live."""

from __future__ import annotations

from rocketapp.broker.request_dispatch import RequestDispatch
from rocketapp.model.route import BrokerData, QueueData
from rocketapp.namesrv.name_server import NameServer, Shown
from rocketapp.transport.answers import table_of
from rocketapp.transport.connection import Connection
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import Command
from rocketapp.wire.requests.admin import TopicConfig
from rocketapp.wire.requests.routes import decode_cluster_info, decode_route, decode_topic_list
from tests.unit.scripted import in_virtual_time

ORDERS = {"orders": TopicConfig("orders", 4, 4)}


def shown() -> list[Shown]:
    """One broker with one topic."""
    return [(BrokerData("DefaultCluster", "broker-a", {0: "10.0.0.1:9876"}), ORDERS)]


def ask(code: int, **fields: str) -> Command:
    connection = Connection(serve=None, max_frame_bytes=1024)
    answer = RequestDispatch(table_of(NameServer(shown)), store_sends=None).serve(connection, Command(code, fields))
    assert answer is not None
    return answer


@in_virtual_time
async def test_a_route_names_the_address_of_the_broker() -> None:
    route = decode_route(ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="orders").body)
    assert route.queues == (QueueData("broker-a", 4, 4, 6),)
    assert route.brokers[0].master == "10.0.0.1:9876"


@in_virtual_time
async def test_an_unknown_topic_is_answered_as_apache_does() -> None:
    answer = ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="none")
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST
    assert (answer.remark or "").startswith("No topic route info in name server for the topic: none\nSee https://")


@in_virtual_time
async def test_the_cluster_its_topics_and_its_names() -> None:
    (broker,) = decode_cluster_info(ask(RequestCode.GET_BROKER_CLUSTER_INFO).body)
    assert (broker.cluster, broker.broker_name) == ("DefaultCluster", "broker-a")
    assert decode_topic_list(ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER).body) == ["orders"]
    assert decode_topic_list(ask(RequestCode.GET_TOPICS_BY_CLUSTER, cluster="DefaultCluster").body) == ["orders"]
    assert decode_topic_list(ask(RequestCode.GET_TOPICS_BY_CLUSTER, cluster="other").body) == []
    names = decode_topic_list(ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS).body)
    assert names == ["DefaultCluster", "broker-a"]


@in_virtual_time
async def test_a_topic_is_forgotten_with_its_broker_so_there_is_nothing_to_delete() -> None:
    assert ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, topic="orders").code == ResponseCode.SUCCESS
    assert ask(RequestCode.DELETE_TOPIC_IN_NAMESRV).code == ResponseCode.SYSTEM_ERROR


@in_virtual_time
async def test_no_broker_registers_here() -> None:
    answer = ask(RequestCode.REGISTER_BROKER)
    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert answer.remark == " request type 103 not supported"


@in_virtual_time
async def test_what_nobody_may_write_says_so_in_its_route_until_they_may_again() -> None:
    connection = Connection(serve=None, max_frame_bytes=1024)
    dispatch = RequestDispatch(table_of(NameServer(shown)), store_sends=None)

    def told(code: int, **fields: str) -> Command:
        answer = dispatch.serve(connection, Command(code, fields))
        assert answer is not None
        return answer

    def perm() -> int:
        return decode_route(told(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="orders").body).queues[0].perm

    assert told(RequestCode.WIPE_WRITE_PERM_OF_BROKER, brokerName="broker-b").fields == {"wipeTopicCount": "0"}
    assert perm() == 6
    assert told(RequestCode.WIPE_WRITE_PERM_OF_BROKER, brokerName="broker-a").fields == {"wipeTopicCount": "1"}
    assert perm() == 4
    assert told(RequestCode.ADD_WRITE_PERM_OF_BROKER, brokerName="broker-a").fields == {"addTopicCount": "1"}
    assert perm() == 6
