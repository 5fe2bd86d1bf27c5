"""Requests by which a broker tells a name server that it is there.

Codes: REGISTER_BROKER 103, UNREGISTER_BROKER 104, QUERY_DATA_VERSION 322. Java: RegisterBrokerRequestHeader,
RegisterBrokerBody, RegisterBrokerResponseHeader, UnRegisterBrokerRequestHeader, QueryDataVersionRequestHeader.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from rocketapp.errors import ProtocolError
from rocketapp.model.route import PERM_READ, PERM_WRITE
from rocketapp.wire.fields import Header, Int32, java_names

HA_ADDRESS = "haServerAddr"
_JAVA_NAMES = java_names(
    broker_name="brokerName", address="brokerAddr", ha_address=HA_ADDRESS, master_address="masterAddr"
)
MOST_BODY_BYTES = 4_194_304
"""Most bytes of topics that are read: some 20,000 topics."""


class BrokerRequest(Header, frozen=True, rename=_JAVA_NAMES):
    """Which broker speaks: all three requests begin with it."""

    cluster_name: str
    broker_name: str
    broker_id: int
    address: str


class Registration(BrokerRequest, frozen=True, rename=_JAVA_NAMES):
    """Code 103: where a broker is. The body says which topics it has."""

    ha_address: str
    compressed: bool
    body_crc32: Int32


class TopicQueues(
    msgspec.Struct,
    frozen=True,
    gc=False,
    rename=java_names(read_queues="readQueueNums", write_queues="writeQueueNums", sys_flag="topicSysFlag"),
):
    """What routes say of a topic; a member that is missing has Java's default."""

    read_queues: Int32 = 16
    write_queues: Int32 = 16
    perm: Int32 = PERM_READ | PERM_WRITE
    sys_flag: Int32 = 0


class _Wrapper(msgspec.Struct, rename="camel"):
    topic_config_table: dict[str, TopicQueues]


class _Body(msgspec.Struct, rename="camel"):
    topic_config_serialize_wrapper: _Wrapper


_decode = msgspec.json.Decoder(_Body).decode


def decode_topics(body: bytes) -> Mapping[str, TopicQueues]:
    """The topics in the body of code 103. Raises ProtocolError, also for a body that is too large or compressed."""
    if len(body) > MOST_BODY_BYTES:
        raise ProtocolError(f"the topics have {len(body)} bytes, limit {MOST_BODY_BYTES}")
    try:
        return _decode(body).topic_config_serialize_wrapper.topic_config_table
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"topics of a broker: {type(error).__name__} {error}") from None


def encode_topics(table: Mapping[str, Any]) -> bytes:
    """The body of code 103. `table`: topics in the form of topics.json, with their version."""
    return msgspec.json.encode({"filterServerList": [], "topicConfigSerializeWrapper": table})


class Registered(Header, frozen=True, rename=_JAVA_NAMES):
    """Tells a slave where its master is: for the log, and for questions."""

    ha_address: str = ""
    master_address: str = ""
