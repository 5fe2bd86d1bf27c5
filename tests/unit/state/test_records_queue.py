"""Messages that stay together: counted one by one, finished together, and never committed before they are."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rocketapp.model.message_queue import MessageQueue
from rocketapp.state.records_queue import RecordsQueue

QUEUE = MessageQueue("t", "b", 0)


@dataclass(frozen=True, slots=True)
class Some:
    """Messages with these offsets."""

    offsets: tuple[int, ...]

    @property
    def offset(self) -> int:
        return self.offsets[0]

    @property
    def end(self) -> int:
        return self.offsets[-1] + 1

    @property
    def size(self) -> int:
        return 10 * len(self.offsets)

    def __len__(self) -> int:
        return len(self.offsets)

    def since(self, offset: int) -> Some | None:
        left = tuple(at for at in self.offsets if at >= offset)
        return Some(left) if left else None


def test_what_was_pulled_before_is_cut_off() -> None:
    queue: RecordsQueue[Some] = RecordsQueue(QUEUE, 0)
    queue.put([Some((0, 1, 2))])
    assert queue.put([Some((1, 2, 3)), Some((4,))]) == [Some((3,)), Some((4,))]
    assert queue.put([Some((3, 4))]) == []
    assert (len(queue), queue.size, queue.end_offset, queue.span) == (5, 50, 5, 4)


def test_an_offset_inside_records_withdraws_only_those_behind_it() -> None:
    queue: RecordsQueue[Some] = RecordsQueue(QUEUE, 0)
    queue.put([Some((0, 1, 2)), Some((3, 4))])
    queue.withdraw(1)
    assert (len(queue), queue.end_offset, queue.commit_offset) == (3, 3, 0)


@pytest.mark.parametrize("part", [(0,), (0, 1), (1, 2), (2,)])
def test_a_part_of_records_finishes_nothing(part: tuple[int, ...]) -> None:
    queue: RecordsQueue[Some] = RecordsQueue(QUEUE, 0)
    queue.put([Some((0, 1, 2)), Some((3,))])
    queue.finish(Some(part))
    assert (len(queue), queue.commit_offset) == (4, 0)


def test_those_who_watch_hear_of_finished_and_withdrawn_records() -> None:
    queue: RecordsQueue[Some] = RecordsQueue(QUEUE, 0)
    first, second = queue.put([Some((0, 1)), Some((2,))])
    heard: list[int] = []
    queue.watch(lambda: heard.append(len(queue)))
    queue.finish(first)
    queue.withdraw(second.offset)
    assert heard == [1, 0]


class Machine(RuleBasedStateMachine):
    """Beside a set of what was put and not finished."""

    def __init__(self) -> None:
        super().__init__()
        self.queue: RecordsQueue[Some] = RecordsQueue(QUEUE, 5)
        self.records: list[Some] = []
        self.end = self.committed = self.finished = 5

    @rule(sizes=st.lists(st.integers(1, 4), min_size=1, max_size=4), back=st.integers(0, 6), gap=st.integers(0, 2))
    def pull(self, sizes: list[int], back: int, gap: int) -> None:
        at, found = max(5, self.end - back) + gap, []
        for size in sizes:
            found.append(Some(tuple(range(at, at + size))))
            at += size + gap
        new = self.queue.put(found)
        if self.queue.closed:
            assert list(new) == []
            return
        wanted = [at for each in found for at in each.offsets if at >= self.end]
        assert [at for each in new for at in each.offsets] == wanted
        self.records += new
        self.end = max([self.end, *(at + 1 for at in wanted)])

    @rule(beyond=st.integers(-2, 5))
    def filtered(self, beyond: int) -> None:
        self.queue.advance(self.end + beyond)
        if not self.queue.closed:
            self.end = max(self.end, self.end + beyond)

    @precondition(lambda self: self.records)
    @rule(data=st.data(), twice=st.booleans())
    def finish(self, data: st.DataObject, twice: bool) -> None:
        done = data.draw(st.lists(st.sampled_from(self.records), min_size=1, max_size=3, unique=True))
        for _ in range(1 + twice):
            self.queue.finish_all(done)
        self.records = [each for each in self.records if each not in done]
        self.finished += sum(len(each.offsets) for each in done)

    @precondition(lambda self: self.records)
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        first = data.draw(st.sampled_from(self.records)).offset
        self.queue.withdraw(first)
        self.records = [each for each in self.records if each.offset < first]
        self.end = first
        self.committed = min(self.committed, self.queue.commit_offset)

    @rule()
    def close(self) -> None:
        self.queue.close()

    @invariant()
    def says_what_is_true(self) -> None:
        queue = self.queue
        offsets = [at for each in self.records for at in each.offsets]
        assert (len(queue), queue.size, queue.finished) == (len(offsets), 10 * len(offsets), self.finished)
        assert queue.commit_offset == min(offsets, default=self.end)
        assert queue.end_offset == self.end
        assert queue.unfinished() == self.records
        assert queue.commit_offset >= self.committed
        self.committed = queue.commit_offset


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
