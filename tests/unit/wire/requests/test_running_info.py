"""What a member tells of itself."""

from __future__ import annotations

import json

import pytest

from rocketapp.errors import ProtocolError
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.subscription import SubscriptionData, parse_tags
from rocketapp.wire.requests.running_info import (
    CONSUME_TYPE,
    STARTED,
    PopInfo,
    QueueInfo,
    RunningInfo,
    TopicRates,
    decode_owned,
)

INFO = RunningInfo(
    {CONSUME_TYPE: "CONSUME_PASSIVELY", STARTED: "1795000000000"},
    (SubscriptionData("orders", "paid || late", parse_tags("paid || late"), 7),),
)


def test_it_is_read_as_it_was_written_and_has_every_table_that_java_reads() -> None:
    assert RunningInfo.decode(INFO.encode()) == INFO
    tables = {"mqPopTable", "mqTable", "properties", "statusTable", "subscriptionSet", "userConsumerInfo"}
    assert json.loads(INFO.encode()).keys() == tables


def test_queues_and_stacks_are_written_by_the_names_of_java() -> None:
    queue = MessageQueue("T", "b", 3)
    info = INFO._replace(
        queues={queue: QueueInfo(5, 6, 9, 3, 2, 5, 5, 1, is_locked=True, consumed_ms=7)}, stacks="at f"
    )
    said = INFO.encode().decode()
    table = (
        '{{"brokerName":"b","queueId":3,"topic":"T"}:{"cachedMsgCount":3,"cachedMsgMaxOffset":9,"cachedMsgMinOffset":6,'
        '"cachedMsgSizeInMiB":2,"commitOffset":5,"droped":false,"lastConsumeTimestamp":7,"lastLockTimestamp":0,'
        '"lastPullTimestamp":0,"locked":true,"transactionMsgCount":1,"transactionMsgMaxOffset":5,'
        '"transactionMsgMinOffset":5,"tryUnlockTimes":0}}'
    )
    wanted = '{"jstack":"at f",' + said[1:].replace('"mqTable":{}', f'"mqTable":{table}')
    assert info.encode().decode() == wanted


def test_rates_are_written_by_the_names_of_java() -> None:
    said = INFO._replace(rates={"T": TopicRates(100.0, 96.5, 3.5, 12)}).encode()
    assert json.loads(said)["statusTable"] == {
        "T": {
            "pullRT": 0.0,
            "pullTPS": 100.0,
            "consumeRT": 0.0,
            "consumeOKTPS": 96.5,
            "consumeFailedTPS": 3.5,
            "consumeFailedMsgs": 12,
        }
    }


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
def test_another_body_raises_a_protocol_error(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        RunningInfo.decode(body)


def test_the_queues_of_a_member_are_read_but_for_those_that_it_gives_back() -> None:
    kept, leaving, popped = MessageQueue("T", "b", 3), MessageQueue("T", "b", 4), MessageQueue("P", "b", -1)
    info = INFO._replace(
        queues={kept: QueueInfo(5), leaving: QueueInfo(5, is_given_back=True)}, popped={popped: PopInfo(0)}
    )
    assert decode_owned(info.encode()) == {kept, popped}
    assert decode_owned(b'{"mqTable":null}') == frozenset()


@pytest.mark.parametrize(
    "body", [b"[]", b'{"mqTable":{"a":{}}}', b'{"mqTable":[1]}', b'{"mqTable":{{"queueId":1}:{}}}']
)
def test_queues_that_cannot_be_read_are_an_error(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_owned(body)
