from __future__ import annotations

import pytest

from pyspark_rocketmq.columns import check_schema
from pyspark_rocketmq.problems import OptionError


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ([("bdy", "string")], "column 'bdy' cannot be written: the nearest is 'body'"),
        ([("body", "bigint")], "column body is bigint: cast it to binary or string"),
        ([("tags", "string")], "no column body"),
        ([("body", "binary")], "give the option topic or a column topic"),
    ],
)
def test_a_frame_that_cannot_be_written_is_refused(fields: list[tuple[str, str]], problem: str) -> None:
    with pytest.raises(OptionError, match=problem):
        check_schema(fields, has_topic=False)


def test_a_frame_needs_a_body_and_a_topic_alone() -> None:
    check_schema([("body", "string")], has_topic=True)
    check_schema([("body", "binary"), ("topic", "string"), ("queue_id", "bigint")], has_topic=False)
