"""Offsets: questions and answers."""

from __future__ import annotations

from typing import Any

import pytest

from rocketapp.errors import ProtocolError
from rocketapp.wire.requests.offsets import (
    CommitRequest,
    OffsetResponse,
    QueryOffsetRequest,
    QueueRequest,
    SearchOffsetRequest,
    StoreTimeResponse,
)
from tests.cases import cases


@cases(
    "header, fields",
    [
        (QueryOffsetRequest("G", "T", 1), {"consumerGroup": "G", "topic": "T", "queueId": "1"}),
        (
            QueryOffsetRequest("G", "T", 1, set_zero_if_not_found=False),
            {"consumerGroup": "G", "topic": "T", "queueId": "1", "setZeroIfNotFound": "false"},
        ),
        (
            CommitRequest("G", "T", 1, 2**40),
            {"consumerGroup": "G", "topic": "T", "queueId": "1", "commitOffset": "1099511627776"},
        ),
        (QueueRequest("T", 3), {"topic": "T", "queueId": "3"}),
        (
            SearchOffsetRequest("T", 3, 17, "upper"),
            {"topic": "T", "queueId": "3", "timestamp": "17", "boundaryType": "upper"},
        ),
        (OffsetResponse(-1), {"offset": "-1"}),
        (StoreTimeResponse(1795169647947), {"timestamp": "1795169647947"}),
    ],
)
def test_each_header_is_written_and_read_back(header: Any, fields: dict[str, str]) -> None:
    assert header.to_fields() == fields
    assert type(header).from_fields(fields) == header


def test_an_integer_of_any_class_is_written_in_digits() -> None:
    class Place(int):
        """What a store of offsets may give."""

    assert CommitRequest("G", "T", 1, Place(7)).to_fields()["commitOffset"] == "7"


def test_the_boundary_is_lower_by_default_and_read_in_any_case() -> None:
    fields = {"topic": "T", "queueId": "3", "timestamp": "17"}
    assert SearchOffsetRequest.from_fields(fields).boundary == "lower"
    assert SearchOffsetRequest.from_fields({**fields, "boundaryType": "LOWER"}).boundary == "lower"
    assert SearchOffsetRequest.from_fields({**fields, "boundaryType": "UPPER"}).boundary == "upper"
    with pytest.raises(ProtocolError, match="boundaryType"):
        SearchOffsetRequest.from_fields({**fields, "boundaryType": "middle"})


@cases("value", ["", "x", "1.5", "2147483648", "-2147483649", "9" * 5000, "0x1"])
def test_what_is_not_a_number_is_told_with_its_field(value: str) -> None:
    with pytest.raises(ProtocolError, match="field queueId"):
        QueueRequest.from_fields({"topic": "T", "queueId": value})


@pytest.mark.parametrize("name", ["consumerGroup", "topic", "queueId", "commitOffset"])
def test_a_missing_field_is_told_by_its_name(name: str) -> None:
    fields = CommitRequest("G", "T", 1, 2).to_fields()
    del fields[name]
    with pytest.raises(ProtocolError, match=f"field {name} is missing"):
        CommitRequest.from_fields(fields)
