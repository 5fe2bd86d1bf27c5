"""Committed offsets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketapp.broker.offsets import OffsetTable


def table() -> OffsetTable:
    return OffsetTable()


def test_a_group_that_never_committed_has_no_offset() -> None:
    offsets = table()
    offsets.commit("billing", "orders", 0, 7)
    assert offsets.committed("billing", "orders", 0) == 7
    assert offsets.committed("billing", "orders", 1) is None
    assert offsets.committed("shipping", "orders", 0) is None


def test_an_offset_may_go_back_because_a_reset_looks_like_that() -> None:
    offsets = table()
    offsets.commit("billing", "orders", 0, 7)
    offsets.commit("billing", "orders", 0, 3)
    assert offsets.committed("billing", "orders", 0) == 3


def test_only_a_change_makes_the_table_dirty() -> None:
    offsets = table()
    seen = [offsets.dirty]
    offsets.commit("billing", "orders", 0, 7)
    seen.append(offsets.dirty)
    offsets.dirty = False
    offsets.commit("billing", "orders", 0, 7)
    offsets.pulled("billing", "orders", 0, 9)
    seen.append(offsets.dirty)
    assert seen == [False, True, False]


def test_the_saved_form_is_apaches() -> None:
    offsets = table()
    offsets.commit("billing", "orders", 1, 7)
    offsets.commit("billing", "orders", 0, 5)
    offsets.commit("billing", "%RETRY%billing", 0, 1)
    offsets.begin_save(2_000.0)
    assert offsets.to_json() == {
        "dataVersion": {"counter": 1, "stateVersion": 0, "timestamp": 2_000_000},
        "groupTopicMap": {"billing": ["%RETRY%billing", "orders"]},
        "offsetTable": {"%RETRY%billing@billing": {0: 1}, "orders@billing": {0: 5, 1: 7}},
    }


def test_a_file_of_apache_is_understood_with_text_or_number_keys() -> None:
    offsets = table()
    offsets.load({"offsetTable": {"orders@billing": {0: 5, "1": 7}}})
    assert offsets.committed("billing", "orders", 0) == 5
    assert offsets.committed("billing", "orders", 1) == 7
    assert not offsets.dirty


@pytest.mark.parametrize(
    "saved",
    [
        {},
        {"offsetTable": []},
        {"offsetTable": {"orders": {0: 1}}},
        {"offsetTable": {"orders@billing": 3}},
        {"offsetTable": {"orders@billing": {"x": 3}}},
        {"offsetTable": {"orders@billing": {0: "many"}}},
    ],
)
def test_what_is_no_table_is_refused_and_changes_nothing(saved: dict[str, object]) -> None:
    offsets = table()
    offsets.commit("billing", "orders", 0, 7)
    with pytest.raises(ValueError):
        offsets.load(saved)
    assert offsets.committed("billing", "orders", 0) == 7


def test_a_deleted_topic_or_group_takes_its_offsets_along() -> None:
    offsets = table()
    for group in ("billing", "shipping"):
        for topic in ("orders", "stock"):
            offsets.commit(group, topic, 0, 1)
            offsets.pulled(group, topic, 0, 2)
            offsets.reset(group, topic, 0, 3)
    offsets.delete(topic="orders")
    offsets.delete(group="shipping")
    assert offsets.topics_of("billing") == {"stock"}
    assert offsets.groups_of("stock") == {"billing"}
    assert offsets.pulled_to("billing", "orders", 0) is None
    assert offsets.pulled_to("billing", "stock", 0) == 2
    assert [offsets.take_reset("billing", topic, 0) for topic in ("orders", "stock")] == [None, 3]
    assert offsets.take_reset("shipping", "stock", 0) is None
    assert offsets.dirty


names = st.text("ab%_-", min_size=1, max_size=4)


@given(st.dictionaries(st.tuples(names, names, st.integers(0, 9)), st.integers(0, 2**63 - 1)))
def test_every_table_is_read_back_as_it_was_saved(entries: dict[tuple[str, str, int], int]) -> None:
    offsets, again = table(), table()
    for (group, topic, queue_id), offset in entries.items():
        offsets.commit(group, topic, queue_id, offset)
    again.load(offsets.to_json())
    for (group, topic, queue_id), offset in entries.items():
        assert again.committed(group, topic, queue_id) == offset
    assert again.to_json() == offsets.to_json()


def test_what_was_done_before_a_reset_is_not_committed_over_it() -> None:
    offsets = table()
    offsets.commit("billing", "orders", 0, 7)
    offsets.reset("billing", "orders", 0, 3)
    offsets.commit("billing", "orders", 0, 8)
    offsets.commit("shipping", "orders", 0, 8)
    assert offsets.committed("billing", "orders", 0) == 3
    assert [offsets.take_reset("billing", "orders", queue) for queue in (0, 1, 0)] == [3, None, None]
    offsets.commit("billing", "orders", 0, 4)
    assert (offsets.committed("billing", "orders", 0), offsets.committed("shipping", "orders", 0)) == (4, 8)
