from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketapp.model.message_queue import MessageQueue
from rocketapp.state.flow_control import REOPEN, MemoryBudget, QueueAccount, QueueLimits
from rocketapp.state.process_queue import ProcessQueue
from tests.unit.state.pulled import Item, items

LIMITS = QueueLimits(max_messages=100, max_bytes=50_000, max_span=200)


def holding(*held: Item) -> ProcessQueue[Item]:
    queue: ProcessQueue[Item] = ProcessQueue(MessageQueue("t", "b", 0), 0)
    queue.put(held)
    return queue


# The limits of a queue.


def test_below_its_limits_a_queue_may_pull() -> None:
    assert LIMITS.reason(holding()) is None
    assert not LIMITS.reached(holding(*items(*range(99))))
    assert LIMITS.reason(holding(*items(*range(74)))) is None


@pytest.mark.parametrize(
    ("held", "reason"),
    [
        (items(*range(100)), "flow control: 100 unfinished messages, limit queue_max_messages 100"),
        ([Item(at, 0) for at in range(100)], "flow control: 100 unfinished messages, limit queue_max_messages 100"),
        ([Item(0, 50_000)], "flow control: 50000 unfinished bytes, limit queue_max_bytes 50000"),
        (
            items(0, 200),
            "flow control: 200 offsets were pulled beyond the lowest unfinished message, #0; limit queue_max_span 200",
        ),
    ],
)
def test_a_limit_that_is_reached_is_named(held: list[Item], reason: str) -> None:
    assert LIMITS.reason(holding(*held)) == reason


def test_orderly_queues_have_no_span() -> None:
    limits = QueueLimits(max_messages=100, max_bytes=50_000, max_span=None)
    assert limits.reason(holding(*items(0, 200))) is None


def test_a_queue_that_stopped_pulls_again_only_when_a_quarter_is_finished() -> None:
    queue = holding(*items(*range(100)))
    for offset in range(25):
        assert LIMITS.reached(queue, REOPEN)
        queue.finish(Item(offset))
    queue.finish(Item(25))
    assert not LIMITS.reached(queue, REOPEN)


def test_a_limit_of_several_queues_together_holds_for_those_that_hold_something() -> None:
    def is_full(share: float) -> str | None:
        return "together 80" if 100 * share <= 80 else None

    limits = QueueLimits(max_messages=100, max_bytes=50_000, max_span=None, is_full=is_full)
    assert not limits.reached(holding(Item(0)))
    assert limits.reached(holding(Item(0)), REOPEN)
    assert not limits.reached(holding(), REOPEN)
    assert limits.reason(holding(Item(0))) == "flow control: together 80"


def test_an_empty_queue_may_always_pull_whatever_its_limits() -> None:
    limits = QueueLimits(max_messages=1, max_bytes=1, max_span=1)
    assert limits.reason(holding()) is None
    assert not limits.reached(holding(), REOPEN)


# The budget of all queues.


@dataclass(eq=False)
class Holder:
    """A process queue, as far as a budget needs it."""

    size: int = 0


class Queue:
    """One queue that pulls: its holder and its account."""

    def __init__(self, budget: MemoryBudget, topic: str, expected: int = 10) -> None:
        self.budget, self.holder = budget, Holder()
        self.account = budget.open(topic, self.holder, expected=expected)

    def pull(self, size: int, now: float = 0.0) -> bool:
        """Pull once if that is allowed."""
        return self.budget.reserve(self.account, now) and self.answer(size)

    def answer(self, size: int) -> bool:
        admitted = self.budget.admit(self.account, size)
        if admitted:
            self.holder.size += size
        return admitted

    def fill(self, size: int = 10) -> int:
        """Pull until there is no room; what is held then."""
        while self.pull(size):
            pass
        return self.holder.size


def test_one_topic_uses_at_most_half_and_two_a_third_each() -> None:
    budget = MemoryBudget(600)
    hung, also_hung, alive = Queue(budget, "hung"), Queue(budget, "also hung"), Queue(budget, "alive")
    assert hung.fill() == 300
    assert also_hung.fill() == 150
    assert alive.pull(10)
    hung.holder.size = also_hung.holder.size = alive.holder.size = 0
    budget.recount_all(0.0)
    for _ in range(100):
        for queue in (hung, also_hung):
            queue.pull(10)
    assert hung.holder.size == also_hung.holder.size == 200


def test_a_pull_under_way_reserves_what_the_last_answers_of_its_topic_brought() -> None:
    budget = MemoryBudget(10_000)
    first, second = Queue(budget, "t", expected=100), Queue(budget, "t", expected=100)
    assert first.pull(1000)
    assert budget.reserve(second.account, 0.0)
    assert (budget.held, budget.used) == (1000, 2000)
    budget.release(second.account)
    assert budget.used == 1000


def test_a_pull_that_its_broker_holds_reserves_nothing_any_more() -> None:
    budget = MemoryBudget(100)
    queues = [Queue(budget, "t", expected=50) for _ in range(3)]
    assert [budget.reserve(queue.account, 1.0) for queue in queues] == [True, False, False]
    budget.recount_all(1.4)
    assert budget.used == 50
    budget.recount_all(1.5)
    assert budget.used == 0
    assert budget.reserve(queues[1].account, 1.5)


def test_a_late_answer_keeps_its_room_while_other_answers_of_its_topic_arrive() -> None:
    budget = MemoryBudget(200)
    slow, quick, idle = (
        Queue(budget, "t", expected=40),
        Queue(budget, "t", expected=40),
        Queue(budget, "u", expected=40),
    )
    assert budget.reserve(slow.account, 0.0)
    assert budget.reserve(idle.account, 0.0)
    assert quick.pull(10)
    budget.recount_all(0.5)
    assert (slow.account.reserved, idle.account.reserved) == (40, 0)
    budget.recount_all(0.9)
    assert slow.account.reserved == 40
    budget.recount_all(1.0)
    assert slow.account.reserved == 0


def test_a_pull_at_the_end_of_its_queue_reserves_nothing() -> None:
    budget = MemoryBudget(100)
    queue = Queue(budget, "t", expected=50)
    assert queue.pull(20)
    queue.account.is_at_end = True
    assert budget.reserve(queue.account, 0.0)
    assert budget.used == 20


def test_more_than_was_expected_is_discarded_when_there_is_no_room() -> None:
    budget = MemoryBudget(100)
    queues = [Queue(budget, "t", expected=10) for _ in range(5)]
    assert all(budget.reserve(queue.account, 0.0) for queue in queues)
    assert [queue.answer(90) for queue in queues] == [True, False, False, False, False]
    assert budget.held == 90
    queues[0].holder.size = 0
    budget.recount(queues[0].account)
    assert queues[1].pull(90)


def test_while_a_message_larger_than_the_limit_is_held_each_other_topic_holds_one_answer() -> None:
    budget = MemoryBudget(100)
    large, small, neighbour = Queue(budget, "t"), Queue(budget, "u"), Queue(budget, "u")
    assert large.pull(5000)
    for _ in range(3):
        budget.wait(small.account)
        assert budget.grant(0.0) is small.account
        assert not budget.reserve(neighbour.account, 0.0)
        assert small.answer(200)
        assert not neighbour.pull(10)
        assert not large.pull(10)
        small.holder.size = 0
        budget.recount(small.account)


def test_of_two_pulls_that_reserved_nothing_one_is_admitted_to_a_topic_without_room() -> None:
    budget = MemoryBudget(100)
    large, first, second = Queue(budget, "t"), Queue(budget, "u"), Queue(budget, "u")
    assert large.pull(5000)
    first.account.is_at_end = second.account.is_at_end = True
    assert budget.reserve(first.account, 0.0)
    assert budget.reserve(second.account, 0.0)
    assert [first.answer(10), second.answer(10)] == [True, False]


def test_what_was_finished_without_a_report_is_found_by_looking_at_all() -> None:
    budget = MemoryBudget(100)
    silent, other = Queue(budget, "t"), Queue(budget, "t")
    assert silent.pull(100)
    silent.holder.size = 0
    assert not budget.reserve(other.account, 0.0)
    budget.recount_all(0.0)
    assert budget.reserve(other.account, 0.0)


def test_of_those_that_wait_the_emptiest_topic_goes_first_and_in_it_the_first_that_came() -> None:
    budget = MemoryBudget(100)
    full, half, empty, lone = Queue(budget, "t"), Queue(budget, "t"), Queue(budget, "t"), Queue(budget, "u")
    full.holder.size, half.holder.size, lone.holder.size = 70, 20, 60
    for queue in (full, half, empty, lone):
        budget.recount(queue.account)
        budget.wait(queue.account)
    assert budget.grant(0.0) is None
    full.holder.size, half.holder.size, lone.holder.size = 10, 5, 14
    for queue in (full, half, empty, lone):
        budget.recount(queue.account)
    granted = [budget.grant(0.0) for _ in range(4)]
    # u holds 14 and t 15; with the 10 that are reserved for lone, u is not the emptiest any more.
    assert granted == [lone.account, full.account, half.account, empty.account]


def test_a_queue_does_not_overtake_those_of_its_topic_that_wait() -> None:
    budget = MemoryBudget(100)
    waiting, newcomer = Queue(budget, "t"), Queue(budget, "t")
    budget.wait(waiting.account)
    assert not budget.reserve(newcomer.account, 0.0)
    assert budget.grant(0.0) is waiting.account
    assert budget.reserve(newcomer.account, 0.0)


def test_the_reason_names_the_limit_and_what_is_held() -> None:
    budget = MemoryBudget(100)
    one, other = Queue(budget, "one"), Queue(budget, "other")
    one.fill()
    assert budget.reason(one.account) == (
        "flow control: the queues of one use 50 bytes, limit cache_max_bytes 100: the rest is for other topics"
    )
    other.holder.size = 40
    budget.recount(other.account)
    assert budget.reserve(Queue(budget, "third").account, 0.0)
    assert budget.reason(one.account) == (
        "flow control: all queues together hold 90 bytes and wait for 10 more, limit cache_max_bytes 100"
    )


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["reserve", "answer", "finish", "release", "wait", "stop", "grant", "sweep", "close"]),
        st.integers(0, 5),
        st.integers(0, 80),
    ),
    max_size=80,
)


@given(STEPS, st.integers(1, 300))
def test_the_figures_are_the_sums_in_any_order_of_events(steps: list[tuple[str, int, int]], limit: int) -> None:
    budget, now, largest = MemoryBudget(limit), 0.0, 0
    queues = [Queue(budget, f"topic {number // 2}") for number in range(6)]
    under_way: set[QueueAccount] = set()
    for what, which, size in steps:
        queue = queues[which]
        account = queue.account
        if what == "reserve" and account not in under_way and budget.reserve(account, now):
            under_way.add(account)
        elif what == "answer" and account in under_way:
            under_way.discard(account)
            queue.answer(size)
            largest = max(largest, size)
        elif what == "finish":
            queue.holder.size -= min(size, queue.holder.size)
            if size % 2:
                budget.recount(account)
        elif what == "release":
            under_way.discard(account)
            budget.release(account)
        elif what == "wait" and account not in under_way:
            budget.wait(account)
        elif what == "stop":
            budget.stop_waiting(account)
        elif what == "grant" and (granted := budget.grant(now)) is not None:
            under_way.add(granted)
        elif what == "sweep":
            now += size / 100
            budget.recount_all(now)
        elif what == "close":
            budget.close(account)
            under_way.discard(account)
            queues[which] = Queue(budget, f"topic {which // 2}")
        accounts = [each.account for each in queues]
        assert budget.held == sum(each.held for each in accounts)
        assert budget.used == budget.held + sum(each.reserved for each in accounts)
        assert min(each.reserved for each in accounts) >= 0
        assert all(each.account.held >= each.holder.size for each in queues)
        assert budget.held <= limit + largest * len({each.topic for each in accounts})
    # What is closed leaves nothing behind.
    for queue in queues:
        budget.close(queue.account)
    assert (budget.held, budget.used, budget.grant(0.0)) == (0, 0, None)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 40)), max_size=60), st.integers(60, 400))
def test_a_topic_that_holds_nothing_goes_on_whatever_hung_topics_hold(pulls: list[tuple[int, int]], limit: int) -> None:
    budget = MemoryBudget(limit)
    hung = [Queue(budget, f"hung {number}") for number in range(4)]
    for which, size in pulls:
        hung[which].pull(size)
        alive = Queue(budget, "alive")
        assert alive.pull(1)
        budget.close(alive.account)
