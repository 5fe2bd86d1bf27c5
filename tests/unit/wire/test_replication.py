"""The bytes between a slave and its master."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketapp.errors import ProtocolError
from rocketapp.wire.replication import (
    HEAD_BYTES,
    MOST_BLOCK_BYTES,
    block_head,
    encode_report,
    last_report,
    read_head,
)
from rocketapp.wire.requests.replication import decode_timer_checkpoint, encode_timer_checkpoint


def test_a_head_is_a_position_and_a_size() -> None:
    head = block_head(1_073_741_824, 32_768)
    assert head.hex() == "000000004000000000008000"
    assert len(head) == HEAD_BYTES
    assert read_head(head) == (1_073_741_824, 32_768)


@given(st.lists(st.integers(0, 2**63 - 1), min_size=1), st.data())
def test_the_last_whole_report_counts_wherever_they_are_cut(ends: list[int], data: st.DataObject) -> None:
    stream, rest, last = b"".join(map(encode_report, ends)), b"", None
    while stream:
        cut = data.draw(st.integers(1, len(stream)))
        end, rest = last_report(rest + stream[:cut])
        last, stream = last if end is None else end, stream[cut:]
    assert (last, rest) == (ends[-1], b"")


def test_a_timer_checkpoint_is_javas() -> None:
    body = encode_timer_checkpoint(7000, 3, 5, 9000)
    assert [int.from_bytes(body[at : at + 8]) for at in range(0, 56, 8)] == [7000, 0, 3, 5, 0, 9000, 9000]
    assert decode_timer_checkpoint(body) == (7000, 5)


@pytest.mark.parametrize(("position", "size"), [(-1, 5), (5, -1), (5, MOST_BLOCK_BYTES + 1)])
def test_a_head_that_no_master_sends_is_refused(position: int, size: int) -> None:
    with pytest.raises(ProtocolError):
        read_head(block_head(position, size))
