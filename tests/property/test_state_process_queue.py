"""A process queue against a model that remembers everything.

The model is a plain set of what was put and not finished. Whatever is pulled, pulled
again, filtered, finished in any order, withdrawn or closed: the committed offset never
passes an unfinished message, and never goes back.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rocketapp.model.message_queue import MessageQueue
from rocketapp.state.process_queue import ProcessQueue
from tests.unit.state.pulled import Item


class ProcessQueueMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.queue: ProcessQueue[Item] = ProcessQueue(MessageQueue("t", "b", 0), 5)
        self.unfinished: dict[int, Item] = {}
        self.end = 5
        self.committed = 5

    @rule(gaps=st.lists(st.integers(1, 4), min_size=1, max_size=8), back=st.integers(0, 6), size=st.integers(1, 99))
    def pull(self, gaps: list[int], back: int, size: int) -> None:
        """A batch, perhaps with filtered messages between, perhaps beginning below what is known."""
        offset, batch = max(5, self.end - back) - 1, []
        for gap in gaps:
            offset += gap
            batch.append(Item(offset, size))
        new = self.queue.put(batch)
        expected = [] if self.queue.closed else [item for item in batch if item.offset >= self.end]
        assert list(new) == expected
        for item in expected:
            self.unfinished[item.offset] = item
            self.end = item.offset + 1

    @rule(beyond=st.integers(-3, 10))
    def filtered(self, beyond: int) -> None:
        self.queue.advance(self.end + beyond)
        if not self.queue.closed:
            self.end = max(self.end, self.end + beyond)

    @precondition(lambda self: self.unfinished)
    @rule(data=st.data(), together=st.booleans())
    def finish(self, data: st.DataObject, together: bool) -> None:
        chosen = data.draw(st.lists(st.sampled_from(sorted(self.unfinished)), min_size=1, max_size=5))
        done = [self.unfinished[offset] for offset in chosen]
        if together:
            self.queue.finish_all(done)
        else:
            for item in done:
                self.queue.finish(item)
        for offset in chosen:
            self.unfinished.pop(offset, None)

    @precondition(lambda self: self.unfinished)
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        """The upper part was not started and is given back."""
        offset = data.draw(st.sampled_from(sorted(self.unfinished)))
        self.queue.withdraw(offset)
        self.unfinished = {each: item for each, item in self.unfinished.items() if each < offset}
        self.end = min(self.end, offset)

    @rule()
    def close(self) -> None:
        self.queue.close()

    @invariant()
    def it_agrees_with_the_model(self) -> None:
        assert self.queue.commit_offset == min(self.unfinished, default=self.end)
        assert self.queue.end_offset == self.end
        assert len(self.queue) == len(self.unfinished)
        assert self.queue.size == sum(item.size for item in self.unfinished.values())
        assert [item.offset for item in self.queue.unfinished()] == sorted(self.unfinished)

    @invariant()
    def the_committed_offset_never_goes_back(self) -> None:
        assert self.queue.commit_offset >= self.committed
        self.committed = self.queue.commit_offset


TestProcessQueue = ProcessQueueMachine.TestCase
TestProcessQueue.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
