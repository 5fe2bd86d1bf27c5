"""Looking stored messages up: questions."""

from __future__ import annotations

from typing import Any

import pytest

from rocketapp.errors import ProtocolError
from rocketapp.wire.requests.messages import LATEST_MS, QueryRequest, ViewRequest


@pytest.mark.parametrize(
    ("header", "fields"),
    [
        (ViewRequest("T", 2717), {"topic": "T", "offset": "2717"}),
        (
            QueryRequest("T", "order-1"),
            {
                "topic": "T",
                "key": "order-1",
                "maxNum": "64",
                "beginTimestamp": "0",
                "endTimestamp": "9223372036854775807",
                "_UNIQUE_KEY_QUERY": "false",
            },
        ),
        (
            QueryRequest("T", "7F", 32, 5, LATEST_MS - 1, unique=True),
            {
                "topic": "T",
                "key": "7F",
                "maxNum": "32",
                "beginTimestamp": "5",
                "endTimestamp": "9223372036854775806",
                "_UNIQUE_KEY_QUERY": "true",
            },
        ),
    ],
)
def test_each_header_is_written_in_javas_fields_and_read_back(header: Any, fields: dict[str, str]) -> None:
    assert header.to_fields() == fields
    assert type(header).from_fields(fields) == header


def test_an_old_client_names_no_topic_for_a_place() -> None:
    assert ViewRequest.from_fields({"offset": "7"}) == ViewRequest("", 7)


def test_a_question_without_a_key_is_refused() -> None:
    with pytest.raises(ProtocolError, match="field key is missing"):
        QueryRequest.from_fields({"topic": "T", "maxNum": "1", "beginTimestamp": "0", "endTimestamp": "1"})
