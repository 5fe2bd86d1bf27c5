"""Locks of queues."""

from __future__ import annotations

import json

import pytest

from rocketapp.errors import ProtocolError
from rocketapp.model.message_queue import MessageQueue
from rocketapp.wire.requests.locks import LockBody, decode_locked, encode_locked
from tests.cases import cases

QUEUES = [MessageQueue("T", "b", 0), MessageQueue("T", "b", 1)]


def test_a_lock_request_is_written_in_java_members() -> None:
    assert json.loads(LockBody("G", "C", QUEUES[:1]).encode()) == {
        "consumerGroup": "G",
        "clientId": "C",
        "onlyThisBroker": False,
        "mqSet": [{"topic": "T", "brokerName": "b", "queueId": 0}],
    }


def test_a_lock_request_is_read_back() -> None:
    for queues in (QUEUES, []):
        body = LockBody("G", "C", queues)
        assert LockBody.decode(body.encode()) == body


def test_the_answer_names_the_locked_queues() -> None:
    assert encode_locked(QUEUES[:1]) == b'{"lockOKMQSet":[{"brokerName":"b","queueId":0,"topic":"T"}]}'
    assert decode_locked(encode_locked(QUEUES)) == set(QUEUES)
    assert decode_locked(b"{}") == set()


@cases(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"consumerGroup":"G","clientId":"C","mqSet":[1]}',
        b'{"consumerGroup":"G","clientId":"C","mqSet":[{"topic":"T"}]}',
        b'{"consumerGroup":"G","clientId":"C","mqSet":[{"topic":"T","brokerName":"b","queueId":"x"}]}',
        b'{"consumerGroup":"G","clientId":"C","mqSet":[{"topic":[],"brokerName":"b","queueId":1}]}',
    ],
)
def test_what_is_no_lock_request_raises_a_protocol_error(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        LockBody.decode(body)


@pytest.mark.parametrize("body", [b"", b"[]", b'{"lockOKMQSet":7}', b'{"lockOKMQSet":[{"topic":"T"}]}'])
def test_what_is_no_lock_answer_raises_a_protocol_error(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_locked(body)
