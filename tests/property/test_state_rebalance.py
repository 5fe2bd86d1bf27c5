"""Members that come and go, each deciding for itself: every queue is wanted by exactly one of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rocketapp.model.message_queue import MessageQueue
from rocketapp.state.rebalance import share

NAMES = st.sets(st.text("abc1.@#", min_size=1, max_size=6), min_size=1, max_size=6)


@given(st.integers(0, 20), NAMES)
def test_every_queue_is_wanted_by_exactly_one_member(count: int, members: set[str]) -> None:
    queues = [MessageQueue("T", f"b{number % 3}", number) for number in range(count)]
    wanted = [queue for member in members for queue in share(queues, members, member)]
    assert sorted(wanted) == sorted(queues)
