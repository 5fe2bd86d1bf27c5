"""Failed messages handed back."""

from __future__ import annotations

import pytest

from rocketapp.errors import ProtocolError
from rocketapp.wire.requests.send_back import DEAD, SendBackRequest

REQUEST = SendBackRequest(597, "G", 3, "AAAB", "T", 5, "broker-a")


def test_a_send_back_is_written_in_java_fields() -> None:
    assert REQUEST.to_fields() == {
        "offset": "597",
        "group": "G",
        "delayLevel": "3",
        "originMsgId": "AAAB",
        "originTopic": "T",
        "unitMode": "false",
        "maxReconsumeTimes": "5",
        "bname": "broker-a",
    }


@pytest.mark.parametrize(
    "request_", [REQUEST, SendBackRequest(0, "G"), SendBackRequest(1, "G", DEAD, max_reconsume_times=None)]
)
def test_a_send_back_is_read_back(request_: SendBackRequest) -> None:
    assert SendBackRequest.from_fields(request_.to_fields()) == request_


@pytest.mark.parametrize("name", ["offset", "group"])
def test_a_missing_field_is_told_by_its_name(name: str) -> None:
    fields = REQUEST.to_fields()
    del fields[name]
    with pytest.raises(ProtocolError, match=f"field {name} is missing"):
        SendBackRequest.from_fields(fields)
