"""What a member tells of itself."""

from __future__ import annotations

import json

import pytest

from rocketapp.errors import ProtocolError
from rocketapp.model.subscription import SubscriptionData, parse_tags
from rocketapp.wire.requests.running_info import CONSUME_TYPE, STARTED, RunningInfo

INFO = RunningInfo(
    {CONSUME_TYPE: "CONSUME_PASSIVELY", STARTED: "1795000000000"},
    (SubscriptionData("orders", "paid || late", parse_tags("paid || late"), 7),),
)


def test_it_is_read_as_it_was_written_and_has_every_table_that_java_reads() -> None:
    assert RunningInfo.decode(INFO.encode()) == INFO
    tables = {"mqPopTable", "mqTable", "properties", "statusTable", "subscriptionSet", "userConsumerInfo"}
    assert json.loads(INFO.encode()).keys() == tables


def test_that_of_a_java_member_is_read_with_queues_as_keys() -> None:
    body = (
        b'{"mqTable":{{"brokerName":"b","queueId":0,"topic":"T"}:{"commitOffset":5,"droped":false}},'
        b'"properties":{"PROP_CONSUMEORDERLY":"false"},"subscriptionSet":[{"topic":"T","subString":"a"}]}'
    )
    info = RunningInfo.decode(body)
    assert (info.properties, [(one.topic, one.expression) for one in info.subscriptions]) == (
        {"PROP_CONSUMEORDERLY": "false"},
        [("T", "a")],
    )


@pytest.mark.parametrize("body", [b"", b"[]", b'{"subscriptionSet":[{}]}', b'{"properties":7}'])
def test_a_body_that_is_none_raises_a_protocol_error(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        RunningInfo.decode(body)
