from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rocketapp.state.keyed import Keyed


@dataclass(frozen=True)
class Item:
    offset: int
    size: int = 1


def started(keyed: Keyed[Item]) -> list[int]:
    found = []
    while keyed.startable:
        found.append(keyed.startable.popleft().offset)
    return found


def keyed_by(*keys: object) -> Keyed[Item]:
    keyed: Keyed[Item] = Keyed()
    for offset, key in enumerate(keys):
        keyed.add(Item(offset), key)  # type: ignore[arg-type]
    return keyed


def test_the_first_of_each_key_may_start_and_the_next_when_it_is_done() -> None:
    keyed = keyed_by("a", "a", "b", None, "a", None)
    assert started(keyed) == [0, 2, 3]
    keyed.release(Item(0))
    keyed.release(Item(3))
    keyed.release(Item(3))
    assert started(keyed) == [1, 5]
    assert keyed.running == 3


def test_a_failed_message_holds_its_key_and_no_other() -> None:
    keyed = keyed_by("a", "a", "b", "b")
    assert started(keyed) == [0, 2]
    keyed.rest(Item(0))
    keyed.release(Item(2))
    assert started(keyed) == [3]
    assert keyed.running == 1
    keyed.start_again(Item(0))
    keyed.start_again(Item(0))
    assert started(keyed) == [0]
    keyed.release(Item(0))
    assert started(keyed) == [1]


def test_a_hold_keeps_the_order() -> None:
    keyed = keyed_by("a", "b", "c")
    keyed.hold()
    keyed.add(Item(3), "d")
    assert started(keyed) == []
    assert keyed.kept == 4
    keyed.go_on()
    assert started(keyed) == [0, 1, 2, 3]


def test_what_was_not_started_can_be_withdrawn_from_an_offset_on() -> None:
    keyed = keyed_by("a", "a", "b", "c", "a", "b")
    assert [keyed.startable.popleft().offset] == [0]
    keyed.hold()
    assert sorted(keyed.not_started()) == [1, 2, 3, 4, 5]
    keyed.withdraw(3)
    keyed.go_on()
    assert sorted(keyed.not_started()) == [1, 2]
    keyed.release(Item(0))
    assert started(keyed) == [2, 1]
    keyed.release(Item(1))
    keyed.release(Item(2))
    assert keyed.running == 0
    keyed.add(Item(3), "c")
    assert started(keyed) == [3]


def test_a_key_that_cannot_be_hashed_changes_nothing() -> None:
    keyed = keyed_by("a")
    with pytest.raises(TypeError):
        keyed.add(Item(1), [])  # type: ignore[arg-type]
    assert started(keyed) == [0]
    assert keyed.running == 1


class Model(RuleBasedStateMachine):
    """Against lists: per key one at a time, in order, and every message comes to its turn."""

    def __init__(self) -> None:
        super().__init__()
        self.keyed: Keyed[Item] = Keyed()
        self.pulled = 0
        self.keys: dict[int, int] = {}
        self.unfinished: dict[int, list[int]] = defaultdict(list)
        self.running: list[int] = []
        self.resting: list[int] = []
        self.held = False

    @rule(key=st.integers(0, 4))
    def pull(self, key: int) -> None:
        self.keyed.add(Item(self.pulled), key)
        self.keys[self.pulled] = key
        self.unfinished[key].append(self.pulled)
        self.pulled += 1

    @rule(count=st.integers(1, 3))
    def start(self, count: int) -> None:
        for _ in range(count):
            if self.keyed.startable:
                offset = self.keyed.startable.popleft().offset
                assert not self.held
                assert self.unfinished[self.keys[offset]][0] == offset
                assert offset not in self.running
                assert offset not in self.resting
                self.running.append(offset)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        offset = data.draw(st.sampled_from(self.running))
        self.running.remove(offset)
        self.unfinished[self.keys[offset]].remove(offset)
        self.keyed.release(Item(offset))

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        offset = data.draw(st.sampled_from(self.running))
        self.running.remove(offset)
        self.resting.append(offset)
        self.keyed.rest(Item(offset))

    @precondition(lambda self: self.resting)
    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        offset = data.draw(st.sampled_from(self.resting))
        self.resting.remove(offset)
        self.keyed.start_again(Item(offset))

    @rule()
    def hold(self) -> None:
        self.keyed.hold()
        self.held = True

    @rule()
    def go_on(self) -> None:
        self.keyed.go_on()
        self.held = False

    @invariant()
    def every_key_is_used(self) -> None:
        heads = {offsets[0] for offsets in self.unfinished.values() if offsets}
        free = heads - set(self.running) - set(self.resting)
        assert self.keyed.running == len(self.running)
        assert {item.offset for item in self.keyed.startable} == (set() if self.held else free)
        assert self.keyed.kept == (len(free) if self.held else 0)


TestModel = Model.TestCase


@given(st.lists(st.integers(0, 3), max_size=30))
def test_everything_starts_once_in_the_order_of_its_key(keys: list[int]) -> None:
    keyed, seen = keyed_by(*keys), list[int]()
    while keyed.startable:
        item = keyed.startable.popleft()
        seen.append(item.offset)
        keyed.release(item)
    assert sorted(seen) == list(range(len(keys)))
    for key in set(keys):
        own = [offset for offset in seen if keys[offset] == key]
        assert own == sorted(own)
    assert keyed.running == 0
