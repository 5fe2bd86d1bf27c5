"""Setting the offset of a group: the order and its answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketapp.errors import ProtocolError
from rocketapp.model.message_queue import MessageQueue
from rocketapp.wire.requests.reset_offset import ResetOffsetRequest, decode_reset, encode_reset

QUEUES = st.builds(MessageQueue, st.text(max_size=9), st.text(max_size=9), st.integers(0, 2**31 - 1))


def test_the_order_is_written_in_javas_fields_and_read_back() -> None:
    order = ResetOffsetRequest("T", "G", 3, 2**40)
    fields = {
        "topic": "T",
        "group": "G",
        "queueId": "3",
        "offset": "1099511627776",
        "timestamp": "0",
        "isForce": "true",
    }
    assert order.to_fields() == fields
    assert ResetOffsetRequest.from_fields(fields) == order


def test_the_answer_has_queues_as_keys() -> None:
    body = (
        b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:5,{"brokerName":"b","queueId":1,"topic":"T"}:6}}'
    )
    assert decode_reset(body) == {MessageQueue("T", "b", 0): 5, MessageQueue("T", "b", 1): 6}
    assert decode_reset(b"{}") == {}
    body = b'{"offsetTable":[{"brokerName":"b","offset":5,"queueId":1,"topic":"T"}]}'  # as clients in C++ get it
    assert decode_reset(body) == {MessageQueue("T", "b", 1): 5}


@given(st.dictionaries(QUEUES, st.integers(0, 2**63 - 1), max_size=5))
def test_an_answer_is_read_as_it_was_written(offsets: dict[MessageQueue, int]) -> None:
    assert decode_reset(encode_reset(offsets)) == offsets


@pytest.mark.parametrize("body", [b"", b"[]", b'{"offsetTable":[1]}', b'{"offsetTable":{"a":1}}', b"\xff{"])
def test_another_body_raises_a_protocol_error(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_reset(body)
