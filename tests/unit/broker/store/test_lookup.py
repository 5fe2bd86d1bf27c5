from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketapp.wire.layout import encode_record
from tests.unit.broker.store.stores import SetClock, delete_topic, open_store, record


def test_a_record_is_found_where_it_begins_and_nowhere_else() -> None:
    store = open_store()
    for number in range(3):
        store.append(record(b"body %d" % number))
    starts = {store.entry("T", 0, offset)[0]: offset for offset in range(3)}  # type: ignore[index]
    for physical in range(-10, store.end_position + 10):
        found = store.record_at(physical)
        assert (found is not None) == (physical in starts)
        if found is not None:
            assert b"body %d" % starts[physical] in found


def test_a_record_inside_a_body_is_not_found() -> None:
    store = open_store()
    store.append(record(b"first"))
    inner = store.end_position + 88
    store.append(record(encode_record(record(b"forged")._replace(physical_offset=inner, queue_offset=1))))
    store.append(record(encode_record(record(b"forged")._replace(physical_offset=store.end_position + 88))))
    assert store.record_at(inner) is None
    assert store.record_at(store.end_position) is None


def test_a_record_of_a_deleted_topic_is_not_found() -> None:
    store = open_store()
    physical = store.append(record()).physical
    delete_topic(store, "T")
    assert store.record_at(physical) is None


@given(st.lists(st.integers(0, 5), min_size=1, max_size=30), st.integers(-2, 60))
def test_offsets_by_time_are_those_of_the_definition(steps: list[int], ago: int) -> None:
    clock = SetClock(1000.0)
    store = open_store(clock=clock)
    times = []
    for step in steps:
        clock.time += step
        times.append(store.append(record()).stored_ms)
    wanted = int(clock.time * 1000) - ago * 1000
    later = [offset for offset, stored in enumerate(times) if stored >= wanted]
    before = [offset for offset, stored in enumerate(times) if stored <= wanted]
    assert store.offset_by_time("T", 0, wanted, "lower") == (later[0] if later else len(times))
    assert store.offset_by_time("T", 0, wanted, "upper") == (before[-1] if before else 0)


@pytest.mark.parametrize("boundary", ["lower", "upper"])
def test_an_unknown_queue_answers_zero(boundary: str) -> None:
    store = open_store()
    assert store.offset_by_time("T", 0, 0, boundary) == 0
    assert (store.min_offset("T", 0), store.max_offset("T", 0)) == (0, 0)
    assert store.stored_ms_at("T", 0, store.min_offset("T", 0)) is None
    assert store.stored_ms_at("T", 0, 0) is None
    assert store.entry("T", 0, 0) is None


def test_store_times_are_found_by_offset() -> None:
    clock = SetClock(1000.0)
    store = open_store(clock=clock)
    store.append(record())
    clock.time = 1001.5
    store.append(record())
    assert [store.stored_ms_at("T", 0, offset) for offset in range(3)] == [1_000_000, 1_001_500, None]
    assert store.stored_ms_at("T", 0, store.min_offset("T", 0)) == 1_000_000
