from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_rocketmq.offsets import Offsets, from_json, from_tree, to_json, whole
from pyspark_rocketmq.options import EARLIEST, LATEST, Edge
from pyspark_rocketmq.planning import Bounds, Range, advance, limited, ranges, resolve, split
from pyspark_rocketmq.problems import DataLossError, OptionError
from rocketapp import MessageQueue
from rocketapp.state.queue_identity import Landmark
from tests.cases import cases

A, B, C = MessageQueue("t", "b", 0), MessageQueue("t", "b", 1), MessageQueue("t", "b", 10)
queues = st.builds(MessageQueue, st.sampled_from(["t", "s"]), st.sampled_from(["a", "b"]), st.integers(0, 20))
position_maps = st.dictionaries(queues, st.integers(0, 2**40), max_size=12)


landmark = st.builds(Landmark, st.integers(0, 2**40), st.integers(0, 2**40), st.text(max_size=5))


@given(position_maps, st.data())
def test_positions_have_one_text_form_and_come_back(positions: dict[MessageQueue, int], data: st.DataObject) -> None:
    last = {queue: data.draw(landmark) for queue in positions if data.draw(st.booleans())}
    backwards = dict(reversed(list(positions.items())))
    text = json.dumps(to_json(positions, last))
    assert text == json.dumps(to_json(backwards, last))
    assert from_json(json.loads(text)) == Offsets(positions, last)


def test_a_checkpoint_of_the_first_version_is_read() -> None:
    assert from_json({"t": {"t": {"b": {"0": 7}}}, "v": 1}) == Offsets({A: 7}, {})


def test_the_text_form_is_sorted_by_number() -> None:
    assert to_json({C: 3, B: 2, A: 1}) == {"t": {"t": {"b": {"0": 1, "1": 2, "10": 3}}}, "v": 2}
    assert list(to_json({C: 3, B: 2})["t"]["t"]["b"]) == ["1", "10"]


@pytest.mark.parametrize("data", [{"t": 1}, {"t": {"b": [1]}}, {"t": {"b": {"x": 1}}}, {"t": {"b": {"0": "1"}}}, [], 5])
def test_malformed_positions_are_refused(data: object) -> None:
    with pytest.raises(OptionError, match="place"):
        from_tree(data, "place", whole)


def test_offsets_of_another_version_are_refused() -> None:
    with pytest.raises(OptionError, match="version"):
        from_json({"v": 3, "t": {}})


BOUNDS = {A: Bounds(10, 100), B: Bounds(0, 0)}


@cases(
    "edge, found_at, expected",
    [
        (Edge(default=EARLIEST), {}, {A: 10, B: 0}),
        (Edge(default=LATEST), {}, {A: 100, B: 0}),
        (Edge(default=EARLIEST, offsets={A: 50}), {}, {A: 50, B: 0}),
        (Edge(default=EARLIEST, offsets={A: LATEST}), {}, {A: 100, B: 0}),
        (Edge(default=LATEST, offsets={A: EARLIEST}), {}, {A: 10, B: 0}),
        (Edge(default=EARLIEST, time=5, fail_on_miss=True), {A: 70, B: 0}, {A: 70, B: 0}),
        (Edge(default=EARLIEST, times={A: 5}), {A: 3}, {A: 10, B: 0}),
        (Edge(default=EARLIEST, time=5), {A: 100, B: 0}, {A: 100, B: 0}),
    ],
    ids=["earliest", "latest", "some", "some latest", "some earliest", "time", "time before all", "time after all"],
)
def test_an_edge_means_a_position_in_every_queue(
    edge: Edge, found_at: dict[MessageQueue, int], expected: dict[MessageQueue, int]
) -> None:
    assert resolve(edge, BOUNDS, found_at) == expected


def test_a_time_behind_the_last_message_is_an_error_when_asked_for() -> None:
    with pytest.raises(OptionError, match="t@b:0 has no message at or after"):
        resolve(Edge(default=EARLIEST, time=5, fail_on_miss=True), BOUNDS, {A: 100, B: 0})


def test_a_queue_that_is_not_read_may_not_be_named() -> None:
    with pytest.raises(OptionError, match="t@b:10"):
        resolve(Edge(default=EARLIEST, offsets={C: 1}), BOUNDS, {})


@pytest.mark.parametrize(("asked", "given"), [(5, 10), (101, 100)])
def test_an_offset_that_the_queue_does_not_have_is_data_loss_or_the_nearest_one(asked: int, given: int) -> None:
    edge = Edge(default=EARLIEST, offsets={A: asked})
    with pytest.raises(DataLossError, match=f"t@b:0: offset {asked} .* 10 to 100.*failOnDataLoss"):
        resolve(edge, BOUNDS, {})
    assert resolve(edge, BOUNDS, {}, fail_on_data_loss=False)[A] == given


def test_ranges_lie_between_two_positions_and_empty_ones_are_left_out() -> None:
    assert ranges({A: 1, B: 5, C: 7}, {A: 4, B: 5, C: 6}) == [Range(A, 1, 4)]


@given(
    whole=st.lists(st.tuples(st.integers(0, 1000), st.integers(1, 5000)), max_size=6),
    min_parts=st.none() | st.integers(1, 40),
    max_records=st.none() | st.integers(1, 2000),
)
def test_splitting_keeps_every_offset_once(
    whole: list[tuple[int, int]], min_parts: int | None, max_records: int | None
) -> None:
    given_ranges = [Range(MessageQueue("t", "b", n), start, start + size) for n, (start, size) in enumerate(whole)]
    parts = split(given_ranges, min_parts=min_parts, max_records=max_records)
    assert parts == split(given_ranges, min_parts=min_parts, max_records=max_records)
    for one in given_ranges:
        own = [part for part in parts if part.queue == one.queue]
        assert [own[0].start, *(part.end for part in own)] == [*(part.start for part in own), one.end]
        assert all(0 < part.end - part.start <= (max_records or 10_000) for part in own)


def test_large_ranges_are_cut_into_as_many_parts_as_asked_for() -> None:
    assert len(split([Range(A, 0, 1000), Range(B, 0, 3000)], min_parts=8, max_records=None)) == 8
    assert len(split([Range(A, 0, 1000)], min_parts=None, max_records=300)) == 4


backlogs = st.lists(st.integers(0, 1000), min_size=1, max_size=12)


@given(sizes=backlogs, most=st.integers(1, 3000), begin=st.integers(0, 50))
def test_a_limited_end_uses_the_limit_and_leaves_no_queue_out(sizes: list[int], most: int, begin: int) -> None:
    all_queues = [MessageQueue("t", "b", number) for number in range(len(sizes))]
    start = dict.fromkeys(all_queues, begin)
    end = {queue: begin + size for queue, size in zip(all_queues, sizes, strict=True)}
    found = limited(start, end, most)
    taken = {queue: found[queue] - start[queue] for queue in all_queues}
    assert sum(taken.values()) == min(most, sum(sizes))
    assert all(start[queue] <= found[queue] <= end[queue] for queue in all_queues)
    if most >= len(sizes):
        assert all(taken[queue] > 0 for queue in all_queues if end[queue] > start[queue])


def test_queues_take_turns_when_there_are_fewer_offsets_than_queues() -> None:
    end = {A: 10, B: 10, C: 10}
    at = {A: 0, B: 0, C: 0}
    for _ in range(6):
        at = limited(at, end, 1)
    assert at == {A: 2, B: 2, C: 2}


def test_larger_backlogs_get_larger_shares() -> None:
    found = limited({A: 0, B: 0}, {A: 900, B: 100}, 100)
    assert found[A] == 90
    assert found[B] == 10


def test_a_stream_moves_to_the_end_of_its_queues_and_takes_in_new_ones_at_their_first_message() -> None:
    assert advance({A: 20}, {A: Bounds(10, 100), B: Bounds(3, 9)}, {}) == ({A: 100, B: 3}, [])


@pytest.mark.parametrize(
    ("bounds", "end", "problem"),
    [(Bounds(0, 5), 5, "ends at 5"), (Bounds(30, 50), 50, "10 are deleted unread")],
    ids=["shorter", "expired"],
)
def test_messages_that_are_gone_are_told(bounds: Bounds, end: int, problem: str) -> None:
    found, (lost,) = advance({A: 20}, {A: bounds}, {})
    assert found == {A: end}
    assert lost.place == str(A)
    assert problem in lost.problem


def test_a_queue_that_does_not_answer_keeps_its_position_and_is_not_lost() -> None:
    assert advance({A: 20, B: 5}, {B: Bounds(0, 9)}, {}) == ({A: 20, B: 9}, [])


def test_a_queue_that_is_another_one_is_read_from_its_first_message() -> None:
    other = DataLossError(str(A), "it is another queue")
    assert advance({A: 20}, {A: Bounds(3, 90)}, {A: other}) == ({A: 3}, [other])
