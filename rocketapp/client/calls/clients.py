"""Heartbeats, leaving a group, and the members of a group."""

from __future__ import annotations

from rocketapp.client.calls.ask import answer_to, ask
from rocketapp.model.subscription import SubscriptionData
from rocketapp.transport.connection import Connection
from rocketapp.wire.codes import RequestCode
from rocketapp.wire.requests.clients import (
    Heartbeat,
    OfGroup,
    UnregisterRequest,
    decode_members,
    encode_check,
)


async def heartbeat(connection: Connection, beat: Heartbeat, timeout: float) -> int:
    """The version of the broker: its number in Java's MQVersion."""
    return (await ask(connection, RequestCode.HEART_BEAT, timeout, body=beat.encode())).version


async def unregister(
    connection: Connection,
    client_id: str,
    timeout: float,
    *,
    producer_group: str | None = None,
    consumer_group: str | None = None,
) -> None:
    """Leave a group now, instead of by the expiry of heartbeats."""
    request = UnregisterRequest(client_id, producer_group, consumer_group)
    await ask(connection, RequestCode.UNREGISTER_CLIENT, timeout, request)


async def member_list(connection: Connection, group: str, timeout: float) -> list[str]:
    """The client ids of a group, in no order. A group without members is a BrokerError with code 1."""
    request = OfGroup(group)
    return decode_members(await answer_to(connection, RequestCode.GET_CONSUMER_LIST_BY_GROUP, timeout, request))


async def check_subscription(
    connection: Connection, client_id: str, group: str, data: SubscriptionData, timeout: float
) -> None:
    """Ask whether the broker filters by this expression; BrokerError says that it does not."""
    await ask(connection, RequestCode.CHECK_CLIENT_CONFIG, timeout, body=encode_check(client_id, group, data))
