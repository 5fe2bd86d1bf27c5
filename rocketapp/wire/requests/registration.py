"""Requests by which a broker tells a name server that it is there.

Codes: REGISTER_BROKER 103, UNREGISTER_BROKER 104, QUERY_DATA_VERSION 322. Java: RegisterBrokerRequestHeader,
RegisterBrokerBody, RegisterBrokerResponseHeader, UnRegisterBrokerRequestHeader, QueryDataVersionRequestHeader.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

import msgspec

from rocketapp.wire.fields import Header, Int32, java_names


class BrokerRequest(Header, frozen=True, rename=java_names(broker_name="brokerName", address="brokerAddr")):
    """Which broker speaks: all three requests begin with it."""

    cluster_name: str
    broker_name: str
    broker_id: int
    address: str


class Registration(
    Header,
    frozen=True,
    rename=java_names(broker_name="brokerName", address="brokerAddr", ha_address="haServerAddr"),
):
    """Code 103: where a broker is. The body says which topics it has."""

    cluster_name: str
    broker_name: str
    broker_id: int
    address: str
    ha_address: str
    compressed: bool
    body_crc32: Int32

    @classmethod
    def of(cls, broker: BrokerRequest, *, ha_address: str, body: bytes) -> Registration:
        us = broker.cluster_name, broker.broker_name, broker.broker_id, broker.address
        return cls(*us, ha_address, False, zlib.crc32(body) & 0x7FFFFFFF)


def encode_topics(table: Mapping[str, Any]) -> bytes:
    """The body of code 103. `table`: topics in the form of topics.json, with their version."""
    return msgspec.json.encode({"filterServerList": [], "topicConfigSerializeWrapper": table})


class Registered(Header, frozen=True, rename=java_names(ha_address="haServerAddr", master_address="masterAddr")):
    """Tells a slave where its master is: for the log, and for questions."""

    ha_address: str = ""
    master_address: str = ""
