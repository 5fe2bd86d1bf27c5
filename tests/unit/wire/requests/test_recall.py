"""Recall requests, and what a recall handle says."""

from __future__ import annotations

import pytest

from rocketapp.errors import ProtocolError
from rocketapp.wire.requests.recall import RecallHandle, RecallRequest
from rocketapp.wire.requests.send import SendResponse

APACHES = "djEgRDEgYnJva2VyLWEgMTc5NTE2OTczNDAwMSBUVA=="


def test_a_handle_of_apache_rocketmq_is_read_and_written_again() -> None:
    handle = RecallHandle.decode(APACHES)
    assert handle == RecallHandle("D1", "broker-a", 1795169734001, "TT")
    assert handle.encode() == APACHES


@pytest.mark.parametrize("text", ["", "x", "§", "djEgRDE=", APACHES.replace("djEg", "djIg"), APACHES[:-3]])
def test_what_is_no_handle_is_refused(text: str) -> None:
    with pytest.raises(ProtocolError, match="recall handle"):
        RecallHandle.decode(text)


def test_a_request_has_javas_names_and_a_send_response_the_handle() -> None:
    request = RecallRequest("D1", APACHES, "PG", "broker-a")
    assert request.to_fields() == {
        "topic": "D1",
        "recallHandle": APACHES,
        "producerGroup": "PG",
        "bname": "broker-a",
    }
    assert RecallRequest.from_fields(request.to_fields()) == request
    stored = SendResponse("ID", 1, 2, recall_handle=APACHES)
    assert SendResponse.from_fields(stored.to_fields()) == stored
