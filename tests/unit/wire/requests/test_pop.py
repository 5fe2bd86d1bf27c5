"""Popped messages on the wire: handles, bit sets, and where the messages of an answer lie."""

from __future__ import annotations

import base64

import msgspec
import pytest

from rocketapp.errors import ProtocolError
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.pulled import Acks, Handle
from rocketapp.wire.requests import assignment, pop

HANDLE = Handle(17, 1_795_000_000_000, 60_000, 3, 1, "broker-a", 2, 19)


def test_a_handle_is_eight_words() -> None:
    text = pop.encode_handle(HANDLE)
    assert text == "17 1795000000000 60000 3 1 broker-a 2 19"
    assert pop.decode_handle(text) == HANDLE
    for wrong in ("", "17 1 2 3 0 broker-a 2", "x 1 2 3 0 broker-a 2 19", text + " 1"):
        with pytest.raises(ProtocolError):
            pop.decode_handle(wrong)


@pytest.mark.parametrize(
    ("raw", "found"),
    [
        (b"TAGS\x01a\x02POP_CK\x0117 1795000000000 60000 3 1 broker-a 2 19\x02", True),
        (b"POP_CK\x0117 1795000000000 60000 3 1 broker-a 2 19", True),
        (b"TAGS\x01a\x02", False),
        (b"MY_POP_CK\x01mine\x02", False),
    ],
)
def test_the_handle_of_a_message_is_found_in_its_properties(raw: bytes, found: bool) -> None:
    assert pop.handle_in(raw) == (HANDLE if found else None)


def test_an_answer_says_where_its_messages_lie() -> None:
    fields = {
        "popTime": "1000",
        "invisibleTime": "60000",
        "reviveQid": "3",
        "restNum": "12",
        "startOffsetInfo": "0 1 17;1 0 4",
        "msgOffsetInfo": "0 1 17,19;1 0 4",
    }
    answer = pop.PopResponse.from_fields(fields)
    assert answer == (1000, 60_000, 3, 12, {(0, 1): 17, (1, 0): 4}, {(0, 1): [17, 19], (1, 0): [4]}, None)
    assert answer.to_fields() == fields
    for broken in ("0 1", "a b c", "0 1 x"):
        with pytest.raises(ProtocolError):
            pop.PopResponse.from_fields({**fields, "startOffsetInfo": broken})


@pytest.mark.parametrize(
    ("offsets", "bits"),
    [([17], b"\x01"), ([17, 18, 20], b"\x0b"), ([25], b"\x00\x01"), ([17, 48], b"\x01\x00\x00\x80")],
)
def test_acknowledged_offsets_are_bits_from_the_first_one_as_java_writes_them(offsets: list[int], bits: bytes) -> None:
    body = pop.encode_acks("shop", "orders", "broker-a", [Acks(HANDLE, offsets)])
    assert base64.b64encode(bits) in body
    ((group, topic, acks),) = pop.decode_acks(body)
    assert (group, topic, list(acks.offsets), acks.handle) == (
        "shop",
        "orders",
        offsets,
        HANDLE._replace(offset=offsets[0]),
    )


@pytest.mark.parametrize("bits", ["/////////////w==", "AAAA" * 2000 + "AQ==", "A", 7, None])
def test_acknowledgements_of_more_than_an_answer_has_are_refused(bits: object) -> None:
    body = pop.encode_acks("shop", "orders", "broker-a", [Acks(HANDLE, [17])])
    with pytest.raises(ProtocolError):
        pop.decode_acks(body.replace(b'"AQ=="', msgspec.json.encode(bits)))


def test_requests_are_read_as_they_are_written() -> None:
    wanted = pop.PopRequest("shop", "orders", -1, 32, 60_000, 15_000, expression="a || b")
    assert pop.PopRequest.from_fields(wanted.to_fields()) == wanted
    for request in (pop.AckRequest("shop", "orders", HANDLE), pop.AckRequest("shop", "orders", HANDLE, 0, True)):
        assert pop.AckRequest.from_fields(request.to_fields()) == request
    question = assignment.AssignmentQuestion("orders", "shop", "me@1")
    assert assignment.AssignmentQuestion.decode(question.encode()) == question


@pytest.mark.parametrize("told", [b"", b',"strategyName":null'])
def test_who_names_no_strategy_is_not_taken_at_another(told: bytes) -> None:
    body = b'{"topic":"orders","consumerGroup":"shop","clientId":"me@1"' + told + b"}"
    assert assignment.AssignmentQuestion.decode(body).strategy == ""


def test_a_message_that_is_hidden_anew_has_a_hand_out_of_its_own() -> None:
    fields = {"popTime": "5000", "invisibleTime": "1000", "reviveQid": "4"}
    assert pop.renewed(HANDLE, fields) == HANDLE._replace(start=19, popped_ms=5000, invisible_ms=1000, revive_queue=4)


def test_retry_topics_are_named_as_brokers_name_them() -> None:
    names = [pop.pop_retry_topic("shop", "orders", kind) for kind in (pop.OF_TOPIC, pop.OF_RETRY, pop.OF_RETRY_V2)]
    assert names == ["orders", "%RETRY%shop_orders", "%RETRY%shop+orders"]


def test_a_broker_that_cannot_tell_is_not_one_that_assigns_nothing() -> None:
    queue = MessageQueue("orders", "broker-a", assignment.ALL_QUEUES)
    for said in (None, [], [assignment.AssignedQueue(queue, assignment.POP)]):
        assert assignment.decode_assigned(assignment.encode_assigned(said)) == said
    with pytest.raises(ProtocolError):
        assignment.decode_assigned(b'{"messageQueueAssignments":[{"mode":"POP"}]}')
