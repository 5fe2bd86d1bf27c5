"""Topics and groups as the admin tool sees them."""

from __future__ import annotations

from typing import Any

import pytest

from rocketapp.errors import ProtocolError
from rocketapp.wire.requests.admin import (
    ConsumerGroupRequest,
    ProducerGroupRequest,
    RunningInfoRequest,
    TopicConfig,
    TopicRequest,
    UpdateTopicRequest,
    decode_broker_config,
    decode_group_list,
    decode_groups,
    decode_topic_config,
    encode_group_list,
    encode_kv_table,
    encode_topic_config,
)
from tests.cases import cases
from tests.unit.wire.other_half import decode_kv_table

CONFIG = TopicConfig("T", 4, 3, 6, order=True)


def test_a_topics_configuration_has_the_members_of_topics_json() -> None:
    assert TopicConfig("T").to_json() == {
        "topicName": "T",
        "readQueueNums": 16,
        "writeQueueNums": 16,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "order": False,
        "attributes": {},
    }


def test_a_topics_configuration_is_read_back() -> None:
    config = TopicConfig("T", 1, 2, 7, "MULTI_TAG", 3, True, {"a": "b"})
    assert TopicConfig.from_json(config.to_json()) == config
    assert TopicConfig.from_json({"topicName": "T"}) == TopicConfig("T")
    assert decode_topic_config(encode_topic_config(config)) == config


@cases(
    "members",
    [
        None,
        [],
        {},
        {"topicName": 7},
        {"topicName": "T", "perm": "6"},
        {"topicName": "T", "perm": True},
        {"topicName": "T", "perm": 2**31},
        {"topicName": "T", "attributes": [1]},
        {"topicName": "T", "attributes": {"a": 1}},
        {"topicName": "T", "topicFilterType": 1},
    ],
)
def test_what_is_no_configuration_is_refused(members: Any) -> None:
    with pytest.raises(ValueError):
        TopicConfig.from_json(members)


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"topicName":"T","perm":"x"}'])
def test_a_body_that_is_no_configuration_raises_a_protocol_error(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_topic_config(body)


def test_a_change_of_a_topic_is_written_in_java_fields() -> None:
    request = UpdateTopicRequest(CONFIG, attribute_changes={"message.type": "FIFO", "old": None})
    assert request.to_fields() == {
        "topic": "T",
        "defaultTopic": "TBW102",
        "readQueueNums": "4",
        "writeQueueNums": "3",
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "true",
        "attributes": "+message.type=FIFO,-old",
    }
    assert UpdateTopicRequest.from_fields(request.to_fields()) == request
    plain = UpdateTopicRequest(CONFIG)
    assert "attributes" not in plain.to_fields()
    assert UpdateTopicRequest.from_fields(plain.to_fields()) == plain


def test_attributes_are_changed_and_the_rest_is_replaced() -> None:
    request = UpdateTopicRequest(CONFIG, attribute_changes={"new": "1", "old": None})
    existing = TopicConfig("T", 16, 16, 2, attributes={"old": "x", "kept": "y"})
    assert request.applied_to(existing).attributes == {"kept": "y", "new": "1"}
    assert request.applied_to(existing).read_queues == 4
    assert request.applied_to(None).attributes == {"new": "1"}


@pytest.mark.parametrize("text", ["a=b", "+a", "+=b", "-", "+", "+a=b,x"])
def test_what_is_not_an_attribute_change_is_refused(text: str) -> None:
    with pytest.raises(ProtocolError, match="attributes"):
        UpdateTopicRequest.from_fields({**UpdateTopicRequest(CONFIG).to_fields(), "attributes": text})


@pytest.mark.parametrize(
    ("header", "fields"),
    [
        (TopicRequest("T"), {"topic": "T"}),
        (ConsumerGroupRequest("G"), {"consumerGroup": "G"}),
        (ConsumerGroupRequest("G", "T"), {"consumerGroup": "G", "topic": "T"}),
        (ProducerGroupRequest("G"), {"producerGroup": "G"}),
        (
            RunningInfoRequest("G", "C", True),
            {"consumerGroup": "G", "clientId": "C", "jstackEnable": "true", "brief": "false"},
        ),
    ],
)
def test_headers_are_written_and_read_back(header: Any, fields: dict[str, str]) -> None:
    assert header.to_fields() == fields
    assert type(header).from_fields(fields) == header
    with pytest.raises(ProtocolError, match="is missing"):
        type(header).from_fields({})


def test_tables_and_lists_are_read_back() -> None:
    assert encode_kv_table({"putTps": "0.0"}) == b'{"table":{"putTps":"0.0"}}'
    assert decode_kv_table(b'{"table":{"putTps":0.5,"x":"y"}}') == {"putTps": "0.5", "x": "y"}
    assert encode_group_list(["G"]) == b'{"groupList":["G"]}'
    assert decode_group_list(b'{"groupList":["G","H"]}') == ["G", "H"]
    for body in (b"", b"[]", b'{"table":7,"groupList":7}', b'{"table":{"a":[]},"groupList":[[]]}'):
        with pytest.raises(ProtocolError):
            decode_kv_table(body)
        with pytest.raises(ProtocolError):
            decode_group_list(body)


def test_groups_are_the_keys_of_their_configurations() -> None:
    body = b'{"dataVersion":{"counter":1},"forbiddenTable":{},"subscriptionGroupTable":{"g":{"groupName":"g"},"h":{}}}'
    assert decode_groups(body) == ["g", "h"]
    assert decode_groups(b"{}") == []


@pytest.mark.parametrize("body", [b"", b"[]", b'{"subscriptionGroupTable":7}'])
def test_a_body_without_groups_raises_a_protocol_error(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_groups(body)


def test_a_brokers_options_are_lines_of_a_properties_file() -> None:
    body = b"brokerName=broker-a\nuseServerSideResetOffset=true\n# comment\nrmqAddressServerDomain=\nurl=a=b\n"
    options = decode_broker_config(body)
    assert options == {
        "brokerName": "broker-a",
        "useServerSideResetOffset": "true",
        "rmqAddressServerDomain": "",
        "url": "a=b",
    }
