"""What a slave is sent: from the end of its log on, never more than is durable, nothing if its history is another."""

from __future__ import annotations

import pytest

from rocketapp.state.replica import MOST_BLOCK_BYTES, Replica


def test_an_empty_slave_gets_the_whole_log_and_another_one_what_it_lacks() -> None:
    empty, half = Replica(), Replica()
    assert empty.reported(0, begin=1000, durable=9000) is None
    assert half.reported(5000, begin=1000, durable=9000) is None
    assert (empty.position, half.position) == (1000, 5000)
    assert (empty.confirmed, half.confirmed) == (0, 5000)


@pytest.mark.parametrize(
    ("end", "said"),
    [
        (9001, "its log ends at 9001, ours at 9000: it is of another history"),
        (-1, "its log ends at -1, ours at 9000: it is of another history"),
        (999, "its log ends at 999, ours begins at 1000: what lies between is deleted"),
    ],
)
def test_a_slave_that_cannot_follow_is_refused_with_the_position(end: int, said: str) -> None:
    replica = Replica()
    assert replica.reported(end, begin=1000, durable=9000) == said
    assert replica.position == -1


def test_nobody_confirms_what_was_not_sent() -> None:
    replica = Replica()
    replica.reported(5000, begin=0, durable=9000)
    assert replica.begin_block(6000, 1 << 30) == 1000  # confirmed before its sender hears that it is sent
    assert replica.reported(6000, begin=0, durable=9000) is None
    problem = replica.reported(6001, begin=0, durable=9000)
    assert problem == "its log ends at 6001, it has got bytes up to 6000 only: somebody else writes there"
    assert replica.confirmed == 6000


def test_a_block_ends_with_the_file_and_with_what_is_durable() -> None:
    replica = Replica()
    replica.reported(100, begin=0, durable=1 << 30)
    assert replica.begin_block(1 << 30, 1 << 30) == MOST_BLOCK_BYTES
    assert replica.begin_block(150, 1 << 30) == 50
    assert replica.begin_block(1 << 30, 107) == 7
    assert replica.begin_block(90, 1 << 30) == 0
