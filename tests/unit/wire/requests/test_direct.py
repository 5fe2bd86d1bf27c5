"""One member is asked to consume one stored message."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from rocketapp.errors import ProtocolError
from rocketapp.wire.requests.direct import LATER, SUCCESS, DirectRequest, DirectResult


def test_a_request_names_the_member_and_the_message() -> None:
    request = DirectRequest("G", "C", "7F00", "T", "broker-a", 7)
    assert request.to_fields() == {
        "consumerGroup": "G",
        "clientId": "C",
        "msgId": "7F00",
        "topic": "T",
        "brokerName": "broker-a",
        "queueOffset": "7",
        "attempts": "0",
        "lockedBy": "",
        "replay": "",
    }
    for one in (request, replace(request, attempts=3, locked_by="D")):
        assert DirectRequest.from_fields(one.to_fields()) == one


def test_a_request_of_a_tool_says_less() -> None:
    fields = {"consumerGroup": "G", "clientId": "C", "msgId": "7F00", "topicSysFlag": "0"}
    request = DirectRequest.from_fields(fields)
    assert request == DirectRequest("G", "C", "7F00", "", "", -1)
    assert not request.is_by_member


@pytest.mark.parametrize("result", [DirectResult(SUCCESS), DirectResult(LATER, "ValueError: no", 2.5)])
def test_a_result_is_read_as_it_was_written(result: DirectResult) -> None:
    assert DirectResult.decode(result.encode()) == result


def test_a_result_of_java_has_no_remark() -> None:
    body = b'{"autoCommit":true,"consumeResult":"CR_SUCCESS","order":false,"spentTimeMills":3}'
    assert DirectResult.decode(body) == DirectResult(SUCCESS)


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b'{"consumeResult":[]}', b'{"consumeResult":"CR_LATER","remark":[1]}']
)
def test_what_is_no_result_is_refused(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        DirectResult.decode(body)
