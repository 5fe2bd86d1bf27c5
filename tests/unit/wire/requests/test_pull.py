"""Pull requests and their answers."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from rocketapp.errors import ProtocolError
from rocketapp.wire.requests.pull import FLAG_COMMIT, FLAG_SUSPEND, PullRequest, PullResponse

REQUEST = PullRequest("G", "T", 1, 100, 32, FLAG_SUSPEND | FLAG_COMMIT, 90, 15000, 1795169906244)


def test_a_pull_is_written_in_java_fields() -> None:
    assert REQUEST.to_fields() == {
        "consumerGroup": "G",
        "topic": "T",
        "queueId": "1",
        "queueOffset": "100",
        "maxMsgNums": "32",
        "sysFlag": "3",
        "commitOffset": "90",
        "suspendTimeoutMillis": "15000",
        "subVersion": "1795169906244",
        "expressionType": "TAG",
    }


def test_optional_fields_are_written_when_they_are_given() -> None:
    request = replace(REQUEST, expression="a || b", max_bytes=262144, broker_name="broker-a")
    fields = request.to_fields()
    assert (fields["subscription"], fields["maxMsgBytes"], fields["bname"]) == ("a || b", "262144", "broker-a")
    assert PullRequest.from_fields(fields) == request
    assert PullRequest.from_fields(REQUEST.to_fields()) == REQUEST


@pytest.mark.parametrize("name", ["consumerGroup", "topic", "queueId", "queueOffset", "maxMsgNums", "sysFlag"])
def test_a_missing_field_is_told_by_its_name(name: str) -> None:
    fields = REQUEST.to_fields()
    del fields[name]
    with pytest.raises(ProtocolError, match=f"field {name} is missing"):
        PullRequest.from_fields(fields)


@pytest.mark.parametrize("value", ["9007199254740993.0", "1e18", "9223372036854775808"])
def test_a_number_is_read_exactly_or_refused(value: str) -> None:
    fields, answer = REQUEST.to_fields(), PullResponse(0, 132, 5, 2**40).to_fields()
    for name in ("queueOffset", "commitOffset"):
        with pytest.raises(ProtocolError, match=f"field {name}"):
            PullRequest.from_fields({**fields, name: value})
        assert PullRequest.from_fields({**fields, name: "9007199254740993"}).to_fields()[name] == "9007199254740993"
    for name in answer:
        with pytest.raises(ProtocolError, match=f"field {name}"):
            PullResponse.from_fields({**answer, name: value})
        assert PullResponse.from_fields({**answer, name: str(-(2**63))}).to_fields()[name] == str(-(2**63))


def test_an_answer_is_written_and_read_back() -> None:
    response = PullResponse(0, 132, 5, 2**40)
    assert response.to_fields() == {
        "suggestWhichBrokerId": "0",
        "nextBeginOffset": "132",
        "minOffset": "5",
        "maxOffset": "1099511627776",
    }
    assert PullResponse.from_fields(response.to_fields()) == response
    with pytest.raises(ProtocolError, match="nextBeginOffset"):
        PullResponse.from_fields({})
