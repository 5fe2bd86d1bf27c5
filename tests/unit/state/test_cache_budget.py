from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from rocketapp.state.cache_budget import CacheBudget


@dataclass(eq=False)
class Holder:
    size: int = 0


def test_it_is_full_when_the_queues_together_hold_the_limit() -> None:
    budget, one, other = CacheBudget(100), Holder(), Holder()
    budget.join(one)
    budget.join(other)
    one.size = 60
    budget.took(60)
    assert not budget.full
    other.size = 40
    budget.took(40)
    assert budget.full
    one.size = 59
    assert not budget.full


def test_a_queue_that_was_given_up_counts_no_more() -> None:
    budget, one = CacheBudget(100), Holder(200)
    budget.join(one)
    assert budget.full
    budget.leave(one)
    assert not budget.full
    assert budget.used() == 0


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 60), st.integers(0, 60)), max_size=60))
def test_it_never_says_that_there_is_room_when_there_is_none(steps: list[tuple[int, int, int]]) -> None:
    budget, holders = CacheBudget(150), [Holder(), Holder(), Holder()]
    for holder in holders:
        budget.join(holder)
    for which, took, finished in steps:
        holders[which].size += took
        budget.took(took)
        holders[which].size -= min(finished, holders[which].size)
        assert budget.full == (sum(holder.size for holder in holders) >= 150)
