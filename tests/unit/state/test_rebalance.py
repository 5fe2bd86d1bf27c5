from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from rocketapp.model.message_queue import MessageQueue
from rocketapp.state.allocation import Average
from rocketapp.state.rebalance import (
    LONGEST_GRACE,
    REGROUP,
    GracePeriods,
    is_left_out,
    share,
)

QUEUES = [MessageQueue("T", "b", number) for number in range(8)]


def test_a_member_listed_twice_counts_once() -> None:
    assert share(QUEUES, ["a", "b", "a"], "a") == share(QUEUES, ["b", "a"], "a") == frozenset(QUEUES[:4])


def test_whether_a_topic_is_left_out_is_asked_of_few_members() -> None:
    class Asked(Average):
        asked = 0

        def allocate(
            self, group: str, me: str, queues: Sequence[MessageQueue], members: Sequence[str]
        ) -> Sequence[MessageQueue]:
            Asked.asked += 1
            return super().allocate(group, me, queues, members)

    members = frozenset(f"10.0.0.{number}@{number}" for number in range(200))
    assert not is_left_out(QUEUES[:1], members, group="g", allocation=Asked())
    assert Asked.asked == 1


def test_the_list_of_a_broker_that_came_back_is_not_acted_on_for_a_moment() -> None:
    grace = GracePeriods()
    assert grace.is_over("broker-a", 100.0)
    grace.disturb("broker-a", 200.0)
    assert not grace.is_over("broker-a", 200.0 + REGROUP - 0.1)
    assert grace.is_over("broker-b", 200.0)
    assert grace.next_end(200.0) == 200.0 + REGROUP
    assert grace.is_over("broker-a", 200.0 + REGROUP)
    assert grace.next_end(200.0 + REGROUP) is None


@given(st.lists(st.floats(0.0, 3.0), min_size=1, max_size=60))
def test_a_row_of_disturbances_ends_in_time(pauses: list[float]) -> None:
    grace, now, began = GracePeriods(), 10.0, 10.0
    for pause in pauses:
        if now > (grace.next_end(0.0) or 0.0) + REGROUP:
            began = now
        grace.disturb("broker-a", now)
        end = grace.next_end(0.0)
        assert end is not None and end <= began + LONGEST_GRACE
        now += pause
