"""Requests of Apache's admin tool about topics and groups.

Codes: UPDATE_AND_CREATE_TOPIC 17, GET_ALL_TOPIC_CONFIG 21, GET_TOPIC_CONFIG 351, DELETE_TOPIC_IN_BROKER 215,
GET_BROKER_CONFIG 26, GET_BROKER_RUNTIME_INFO 28, GET_ALL_SUBSCRIPTIONGROUP_CONFIG 201,
QUERY_TOPIC_CONSUME_BY_WHO 300, and the headers of the questions whose answers are in
`statistics`: GET_TOPIC_STATS_INFO 202,
GET_CONSUMER_CONNECTION_LIST 203, GET_PRODUCER_CONNECTION_LIST 204, GET_CONSUME_STATS
208, GET_CONSUMER_RUNNING_INFO 307. Java: TopicConfig, CreateTopicRequestHeader,
KVTable, GroupList, SubscriptionGroupWrapper.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from rocketapp.errors import ProtocolError
from rocketapp.model.names import DEFAULT_TOPIC
from rocketapp.model.route import PERM_READ, PERM_WRITE
from rocketapp.wire import fields as read
from rocketapp.wire import lenient_json
from rocketapp.wire.fields import Header, Int32, java_names
from rocketapp.wire.lenient_json import dump, text_of

SINGLE_TAG = "SINGLE_TAG"
_READ_WRITE = PERM_READ | PERM_WRITE


class TopicConfig(
    msgspec.Struct,
    frozen=True,
    rename=java_names(
        name="topicName",
        read_queues="readQueueNums",
        write_queues="writeQueueNums",
        filter_type="topicFilterType",
        sys_flag="topicSysFlag",
    ),
):
    """How a broker keeps one topic."""

    name: str
    read_queues: Int32 = 16
    write_queues: Int32 = 16
    perm: Int32 = _READ_WRITE
    filter_type: str = SINGLE_TAG
    sys_flag: Int32 = 0
    order: bool = False
    attributes: Mapping[str, str] = {}
    first_position: int = 0
    """Where the log ended when an embedded broker made it: no message of it lies before. 0: that is not known."""

    def to_json(self) -> dict[str, Any]:
        """The members that Java writes, on the wire and in topics.json, and one that it passes over."""
        members: dict[str, Any] = msgspec.to_builtins(self)
        if not self.first_position:
            del members["firstPosition"]
        return members

    @classmethod
    def from_json(cls, members: object) -> TopicConfig:
        """From decoded members; missing ones get Java's defaults. Raises ValueError for illegal members."""
        given = members.items() if isinstance(members, Mapping) else ()
        try:
            return msgspec.convert({name: value for name, value in given if value is not None}, cls)
        except msgspec.ValidationError as error:
            raise ValueError(f"configuration of a topic: {error}") from None


def encode_topic_config(config: TopicConfig) -> bytes:
    """The answer to 351."""
    return dump(config.to_json())


def decode_topic_config(body: bytes) -> TopicConfig:
    """Read the answer to 351; raises ProtocolError."""
    try:
        return TopicConfig.from_json(lenient_json.loads(body))
    except ValueError as error:
        raise ProtocolError(f"topic configuration: {error}") from None


def decode_topic_configs(body: bytes) -> dict[str, TopicConfig]:
    """Read the answer to 21 (Java: TopicConfigSerializeWrapper), by name; raises ProtocolError."""
    try:
        table = lenient_json.loads(body).get("topicConfigTable") or {}
        return {name: TopicConfig.from_json(members) for name, members in table.items()}
    except (AttributeError, ValueError) as error:
        raise ProtocolError(f"topic configurations: {error}") from None


class UpdateTopicRequest(NamedTuple):
    """Create or change a topic (17). Attributes are sent as changes, everything else as the new value."""

    config: TopicConfig
    """The new configuration. Its attributes are empty: see `attribute_changes`."""
    default_topic: str = DEFAULT_TOPIC
    attribute_changes: Mapping[str, str | None] = {}
    """New values by name; None removes an attribute."""

    def to_fields(self) -> dict[str, str]:
        config = self.config
        fields = {
            "topic": config.name,
            "defaultTopic": self.default_topic,
            "readQueueNums": str(config.read_queues),
            "writeQueueNums": str(config.write_queues),
            "perm": str(config.perm),
            "topicFilterType": config.filter_type,
            "topicSysFlag": str(config.sys_flag),
            "order": read.boolean_text(config.order),
        }
        if self.attribute_changes:
            fields["attributes"] = ",".join(
                f"-{name}" if value is None else f"+{name}={value}" for name, value in self.attribute_changes.items()
            )
        return fields

    @classmethod
    def from_fields(cls, fields: Mapping[str, str] | None) -> UpdateTopicRequest:
        config = TopicConfig(
            read.text(fields, "topic"),
            read.int32(fields, "readQueueNums"),
            read.int32(fields, "writeQueueNums"),
            read.int32(fields, "perm"),
            read.text(fields, "topicFilterType", SINGLE_TAG),
            read.int32(fields, "topicSysFlag", 0),
            read.boolean(fields, "order"),
        )
        changes = _attribute_changes(read.text(fields, "attributes", ""))
        return cls(config, read.text(fields, "defaultTopic", DEFAULT_TOPIC), changes)

    def applied_to(self, existing: TopicConfig | None) -> TopicConfig:
        """The configuration of the topic after this request."""
        attributes = {**(existing.attributes if existing is not None else {}), **self.attribute_changes}
        kept = {name: value for name, value in attributes.items() if value is not None}
        return msgspec.structs.replace(self.config, attributes=kept)


def _attribute_changes(text: str) -> dict[str, str | None]:
    """Read `+key=value,-key`: values to set, and None for keys to remove."""
    changes: dict[str, str | None] = {}
    for change in filter(None, text.split(",")):
        name, equals, value = change[1:].partition("=")
        if change[0] == "+" and name and equals:
            changes[name] = value
        elif change[0] == "-" and name:
            changes[name] = None
        else:
            raise ProtocolError(f"field attributes: {change[:60]!r} is neither +key=value nor -key")
    return changes


class TopicRequest(Header, frozen=True):
    """Asks for a topic's statistics (202), groups (300) or configuration (351), or deletes the topic (215)."""

    topic: str


class ConsumerGroupRequest(Header, frozen=True):
    """Asks for a consumer group's members (203) or its offsets (208), optionally in one topic only."""

    group: str
    topic: str | None = None

    @classmethod
    def from_fields(cls, fields: Mapping[str, str] | None) -> ConsumerGroupRequest:
        return cls(read.text(fields, "consumerGroup"), read.optional_text(fields, "topic") or None)


class ProducerGroupRequest(Header, frozen=True, rename=java_names(group="producerGroup")):
    """Asks for a producer group's members (204)."""

    group: str


class RunningInfoRequest(Header, frozen=True, rename=java_names(with_stacks="jstackEnable")):
    """Asks a member what it is doing (307, from tool to broker and from broker to client)."""

    group: str
    client_id: str
    with_stacks: bool = False
    brief: bool = False
    """Ours: tell only what is subscribed and pulled. Brokers hand on fields that they do not know."""


def encode_kv_table(table: Mapping[str, str]) -> bytes:
    """KVTable: the state of a broker (28)."""
    return dump({"table": dict(table)})


def encode_group_list(groups: Iterable[str]) -> bytes:
    """GroupList: the groups that consume a topic (300)."""
    return dump({"groupList": list(groups)})


def decode_group_list(body: bytes) -> list[str]:
    """Read a GroupList; raises ProtocolError."""
    with lenient_json.reading("group list", body) as data:
        return [text_of(group) for group in data.get("groupList") or ()]


def encode_group(group: str) -> bytes:
    """A SubscriptionGroupConfig: what is left out is as the broker has it by default."""
    return msgspec.json.encode({"groupName": group})


def decode_groups(body: bytes) -> list[str]:
    """The names of a broker's consumer groups, its own included: the answer to 201. Raises ProtocolError."""
    with lenient_json.reading("group configurations", body) as data:
        return [text_of(group) for group in data.get("subscriptionGroupTable") or {}]


def decode_broker_config(body: bytes) -> dict[str, str]:
    """A broker's options by name: the answer to 26, which is a Java properties file."""
    lines = (line.partition("=") for line in body.decode("utf-8", "replace").splitlines())
    return {name.strip(): value.strip() for name, equals, value in lines if equals}
