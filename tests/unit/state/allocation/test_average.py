from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketapp.model.message_queue import MessageQueue
from rocketapp.state.allocation import AVERAGE, sorted_members, sorted_queues


def average(members: list[str], me: str, queues: list[MessageQueue]) -> list[MessageQueue]:
    return list(AVERAGE.allocate("g", me, queues, members))


QUEUES = [MessageQueue("T", broker, number) for broker in ("broker-a", "broker-b") for number in range(4)]
MEMBERS = ["10.0.0.1@1#1", "10.0.0.2@2#2", "10.0.0.3@3#3"]


@pytest.mark.parametrize(("index", "first", "end"), [(0, 0, 3), (1, 3, 6), (2, 6, 8)])
def test_the_reference_allocation(index: int, first: int, end: int) -> None:
    assert average(MEMBERS, MEMBERS[index], QUEUES) == QUEUES[first:end]


@pytest.mark.parametrize(
    ("members", "sizes"), [(1, [4]), (2, [2, 2]), (3, [2, 1, 1]), (4, [1, 1, 1, 1]), (5, [1, 1, 1, 1, 0])]
)
def test_the_sizes_of_four_queues_over_some_members(members: int, sizes: list[int]) -> None:
    names = [f"c{number}" for number in range(members)]
    assert [len(average(names, name, QUEUES[:4])) for name in names] == sizes


def java_average(members: list[str], me: str, queues: list[MessageQueue]) -> list[MessageQueue]:
    """The rule as protocol and Java's source state it, word for word."""
    m, n, i = len(queues), len(members), members.index(me)
    mod = m % n
    size = 1 if m <= n else (m // n + 1 if mod > 0 and i < mod else m // n)
    start = i * size if mod > 0 and i < mod else i * size + mod
    return [queues[(start + each) % m] for each in range(max(0, min(size, m - start)))]


@given(st.integers(1, 40), st.integers(1, 20))
def test_every_queue_has_one_owner_and_it_is_javas(queue_count: int, member_count: int) -> None:
    queues = [MessageQueue("T", "b", number) for number in range(queue_count)]
    members = sorted_members(f"client{number}" for number in range(member_count))
    shares = [average(members, member, queues) for member in members]
    assert [queue for share in shares for queue in share] == queues
    assert shares == [java_average(members, member, queues) for member in members]


def test_who_is_not_in_the_list_gets_nothing() -> None:
    assert average(MEMBERS, "stranger", QUEUES) == []


def test_members_sort_by_utf16_units_and_count_once() -> None:
    # By code points the emoji would come last; Java compares its surrogates, which are smaller than U+FF21.
    assert sorted_members(["\uff21", "\U0001f600", "b", "a", "b"]) == ["a", "b", "\U0001f600", "\uff21"]


def test_queues_sort_by_topic_broker_and_number() -> None:
    queues = [
        MessageQueue("b", "x", 0),
        MessageQueue("a", "y", 10),
        MessageQueue("a", "y", 9),
        MessageQueue("a", "x", 11),
    ]
    assert sorted_queues(queues) == [queues[3], queues[2], queues[1], queues[0]]
