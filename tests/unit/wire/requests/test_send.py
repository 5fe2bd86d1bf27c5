"""Sends in their three forms."""

from __future__ import annotations

import json
from collections.abc import Mapping

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketapp.errors import ProtocolError
from rocketapp.wire import frame
from rocketapp.wire.codes import RequestCode
from rocketapp.wire.command import JSON, Command
from rocketapp.wire.frame import Decode
from rocketapp.wire.requests import send
from rocketapp.wire.requests.send import FAILURE_FIELDS, SendRequest, SendResponse
from tests.cases import cases

REQUEST = SendRequest("PG", "T", "TBW102", 4, 1, 769, 1795169647947, 7, "k\x01v\x02", 2, 16, broker_name="broker-a")


def test_a_send_is_written_in_letters() -> None:
    assert REQUEST.to_fields() == {
        "a": "PG",
        "b": "T",
        "c": "TBW102",
        "d": "4",
        "e": "1",
        "f": "769",
        "g": "1795169647947",
        "h": "7",
        "i": "k\x01v\x02",
        "j": "2",
        "k": "false",
        "l": "16",
        "m": "false",
        "n": "broker-a",
    }
    assert SendRequest.from_fields(REQUEST.to_fields()) == REQUEST


def test_the_code_says_which_names_the_fields_have() -> None:
    long = {
        "producerGroup": "PG",
        "topic": "T",
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": "1",
        "sysFlag": "769",
        "bornTimestamp": "1795169647947",
        "flag": "7",
        "properties": "k\x01v\x02",
        "reconsumeTimes": "2",
        "maxReconsumeTimes": "16",
        "unitMode": "false",
        "batch": "false",
        "bname": "broker-a",
    }
    assert SendRequest.from_command(Command(RequestCode.SEND_MESSAGE, long)) == REQUEST
    assert SendRequest.from_command(Command(RequestCode.SEND_MESSAGE_V2, REQUEST.to_fields())) == REQUEST
    with pytest.raises(ProtocolError, match="topic"):
        SendRequest.from_command(Command(RequestCode.SEND_MESSAGE, REQUEST.to_fields()))
    with pytest.raises(ProtocolError, match="code 11"):
        SendRequest.from_command(Command(11, REQUEST.to_fields()))


def test_a_batch_is_known_by_its_code_or_by_its_letter() -> None:
    fields = REQUEST.to_fields()
    assert SendRequest.from_command(Command(RequestCode.SEND_BATCH_MESSAGE, fields)).batch
    assert SendRequest.from_command(Command(RequestCode.SEND_MESSAGE_V2, {**fields, "m": "true"})).batch


def test_only_topic_and_queue_must_be_there() -> None:
    assert SendRequest.from_fields({"b": "T", "e": "0"}) == SendRequest("", "T")
    with pytest.raises(ProtocolError, match="field e is missing"):
        SendRequest.from_command(Command(RequestCode.SEND_MESSAGE_V2, {"b": "T"}))


NUMBERS = ["0", "-0", "1", "2", " 5", "+5", "05", "1.0", "1e2", "1_0", "true", "TRUE", "null", "2147483648", "\ud800"]
VALUES = st.sampled_from(NUMBERS) | st.text(max_size=5) | st.none() | st.booleans() | st.floats() | st.lists(st.none())
VALUES |= st.integers(-(2**65), 2**65)
FIELDS = st.fixed_dictionaries(
    {"a": st.text(max_size=3), "b": st.just("T"), "e": st.sampled_from(["1", "0"])},
    optional=dict.fromkeys("cdfghijklmnz", VALUES),
)
OTHERS = st.dictionaries(st.sampled_from(["code", "flag", "language", "opaque", "request", "fields", "x"]), VALUES)


def heard(decode: Decode, header: bytes) -> object:
    """What is heard of a send, or why it is refused."""
    try:
        command = decode(JSON, header, b"body")
        request = msgspec.structs.asdict(SendRequest.from_command(command))
    except ProtocolError as error:
        return str(error)
    facts = command.code, command.opaque, command.flag, command.language, command.version, command.remark
    return facts, command.serializer, command.body, sorted(request.items())


@given(FIELDS | st.dictionaries(st.sampled_from("abeimz"), VALUES) | st.none() | VALUES, OTHERS)
def test_a_send_that_is_read_in_one_step_says_the_same(fields: object, others: Mapping[str, object]) -> None:
    header = json.dumps({"code": 310, "extFields": fields, **others}, separators=(",", ":")).encode()
    assert heard(send.decode, header) == heard(frame.decode, header)


def test_a_usual_send_is_read_in_one_step() -> None:
    header = json.dumps({"code": 310, "extFields": REQUEST.to_fields(), "opaque": 7}, separators=(",", ":")).encode()
    command = send.decode(JSON, header, b"body")
    assert command.fields is None
    assert heard(send.decode, header) == heard(frame.decode, header)
    assert SendRequest.from_command(command).topic == "T"


@cases("said", [{}, *({"TRACE_ON": word} for word in ("true", "", "0", "no", "null", "FALSE"))])
@cases("queue_id", ["1", "+1"])
def test_only_the_word_false_ends_the_trace(said: dict[str, str], queue_id: str) -> None:
    answer = {"msgId": "7F", "queueId": queue_id, "queueOffset": "40"}
    assert SendResponse.from_fields({**answer, **said}) == SendResponse("7F", 1, 40, region=None)
    assert not SendResponse.from_fields({**answer, "TRACE_ON": "false"}).trace_on


def test_every_answer_carries_what_java_reads_without_looking() -> None:
    fields = SendResponse("7F", 1, 40, "AAAB").to_fields()
    assert fields == {
        "msgId": "7F",
        "queueId": "1",
        "queueOffset": "40",
        "transactionId": "AAAB",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }
    assert FAILURE_FIELDS.items() <= fields.items()
    assert SendResponse.from_fields(fields) == SendResponse("7F", 1, 40, "AAAB")
    assert "transactionId" not in SendResponse("7F", 1, 40).to_fields()
