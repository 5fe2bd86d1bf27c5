from __future__ import annotations

from rocketapp.model.message_queue import MessageQueue
from rocketapp.state.cache_budget import CacheBudget
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.state.pull_gate import PullGate
from tests.unit.state.pulled import Item, items

BUDGET = CacheBudget(1_000_000)
GATE = PullGate(max_messages=100, max_bytes=50_000, max_span=200, budget=BUDGET)


def holding(*held: Item) -> ProcessQueue[Item]:
    queue: ProcessQueue[Item] = ProcessQueue(MessageQueue("t", "b", 0), 0)
    queue.put(held)
    return queue


def test_an_open_gate_has_no_reason() -> None:
    assert GATE.closed_by(holding(), orderly=False) is None
    assert GATE.closed_by(holding(*items(*range(99))), orderly=False) is None


def test_too_many_messages_too_many_bytes_and_too_wide_a_span_close_it_by_name() -> None:
    assert "queue_max_messages 100" in str(GATE.closed_by(holding(*items(*range(100))), orderly=False))
    assert "queue_max_bytes 50000" in str(GATE.closed_by(holding(Item(0, 50_000)), orderly=False))
    assert "queue_max_span 200" in str(GATE.closed_by(holding(*items(0, 200)), orderly=False))


def test_orderly_queues_have_no_span() -> None:
    assert GATE.closed_by(holding(*items(0, 200)), orderly=True) is None


def test_a_closed_gate_opens_only_when_a_part_was_finished() -> None:
    queue = holding(*items(*range(100)))
    for offset in range(25):
        assert GATE.closed_by(queue, orderly=False, was_closed=True) is not None
        queue.finish(Item(offset))
    queue.finish(Item(25))
    assert GATE.closed_by(queue, orderly=False, was_closed=True) is None


def test_an_empty_queue_may_always_pull_whatever_its_limits() -> None:
    gate = PullGate(max_messages=1, max_bytes=1, max_span=1, budget=BUDGET)
    assert gate.closed_by(holding(), orderly=False, was_closed=True) is None


def test_the_budget_of_all_queues_closes_it_too() -> None:
    budget = CacheBudget(1000)
    gate = PullGate(max_messages=100, max_bytes=50_000, max_span=200, budget=budget)
    budget.join(holding(*items(*range(10))))
    assert "cache_max_bytes" in str(gate.closed_by(holding(), orderly=False))
