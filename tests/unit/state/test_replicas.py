"""Which copy of a broker is read."""

from __future__ import annotations

import pytest

from rocketapp.state.replicas import reader, slaves


@pytest.mark.parametrize(
    ("known", "wanted", "chosen"),
    [({0, 1}, 0, 0), ({0, 1}, 1, 1), ({0, 2}, 1, 2), ({0, 3}, 1, 0), ({2, 3}, 0, 2), (set(), 1, 0)],
    ids=["the master", "as suggested", "the one after", "any", "no master", "none known"],
)
def test_a_suggested_copy_that_is_gone_is_replaced_as_javas_client_does(
    known: set[int], wanted: int, chosen: int
) -> None:
    assert reader(known, wanted) == chosen


def test_a_slave_that_is_connected_stands_in_for_the_master_first() -> None:
    assert slaves({0, 1, 2}, ()) == [1, 2]
    assert slaves({0, 1, 2}, {2}) == [2, 1]
