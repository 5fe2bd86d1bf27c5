"""Members that come and go, each deciding for itself: every queue is wanted by exactly one of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rocketapp.model.message_queue import MessageQueue
from rocketapp.state.rebalance import change, handed_over, share

NAMES = st.sets(st.text("abc1.@#", min_size=1, max_size=6), min_size=1, max_size=6)


@given(st.integers(0, 20), NAMES)
def test_every_queue_is_wanted_by_exactly_one_member(count: int, members: set[str]) -> None:
    queues = [MessageQueue("T", f"b{number % 3}", number) for number in range(count)]
    wanted = [queue for member in members for queue in share(queues, members, member)]
    assert sorted(wanted) == sorted(queues)


@given(st.integers(1, 20), NAMES, NAMES)
def test_what_changes_hands_between_the_living_is_known_to_the_new_owner(
    count: int, before: set[str], after: set[str]
) -> None:
    queues = [MessageQueue("T", "b", number) for number in range(count)]
    for me in after & before:
        acquired = change(share(queues, before, me), share(queues, after, me)).acquire
        owners = {queue: member for member in before for queue in share(queues, before, member)}
        theirs = {queue for queue in acquired if owners[queue] in after}
        assert handed_over(queues, before, after, me) == theirs
