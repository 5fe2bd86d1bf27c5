"""Questions to a name server: routes, topics and brokers."""

from __future__ import annotations

from rocketapp.client.calls.ask import ask, ask_unless
from rocketapp.model.route import BrokerData, TopicRoute
from rocketapp.transport.connection import Connection
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import Command
from rocketapp.wire.requests.routes import RouteRequest, decode_cluster_info, decode_route, decode_topic_list


async def get_route(connection: Connection, topic: str, timeout: float) -> TopicRoute | None:
    """The route of a topic; None when this name server knows no broker that holds it."""
    command = Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, RouteRequest(topic).to_fields())
    response = await ask_unless(ResponseCode.TOPIC_NOT_EXIST, connection, command, timeout)
    return None if response is None else decode_route(response.body)


async def topic_list(connection: Connection, timeout: float) -> list[str]:
    """Every topic that this name server knows, system topics included."""
    response = await ask(connection, Command(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER), timeout)
    return list(decode_topic_list(response.body))


async def cluster_info(connection: Connection, timeout: float) -> tuple[BrokerData, ...]:
    """Every broker that this name server knows."""
    return decode_cluster_info((await ask(connection, Command(RequestCode.GET_BROKER_CLUSTER_INFO), timeout)).body)
