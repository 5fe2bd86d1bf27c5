"""Positions, batches and records: values alone."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pieces import Item, halves, items, one

from rocketapp import MessageQueue
from rocketapp_lake.batches import Batch, Filling, Limits
from rocketapp_lake.positions import Span, advanced, differing
from rocketapp_lake.records import Commit, decode, encode, to_json

A, B = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-b", 0)


LIMITS = Limits(rows=4, bytes=1000, seconds=30.0)


@pytest.mark.parametrize(
    ("rows", "now", "reason"),
    [
        (items(0), 130.0, "age"),
        (items(0), 129.9, None),
        ([Item((0, 1, 2)), one(3)], 100.0, "rows"),
        ([one(0, 600), one(1, 400)], 100.0, "bytes"),
        ([], 1000.0, None),
    ],
)
def test_a_batch_is_cut_at_the_first_limit(rows: list[Item], now: float, reason: str | None) -> None:
    filling: Filling = Filling()
    filling.add(A, 0, rows, 100.0)
    assert filling.reason(LIMITS, now) == reason


def test_the_age_is_that_of_the_oldest_row_and_ends_with_the_cut() -> None:
    filling: Filling = Filling()
    filling.add(A, 0, items(0), 100.0)
    filling.add(A, 0, items(1), 120.0)
    assert filling.due_at(LIMITS) == 130.0
    filling.cut("age")
    assert filling.due_at(LIMITS) is None


def test_a_span_begins_where_the_queue_begins_and_ends_behind_its_last_row() -> None:
    filling: Filling = Filling()
    filling.add(A, 3, [Item((5, 6)), Item((8, 9))], 0.0)
    filling.add(B, 0, [], 0.0)
    assert filling.cut("rows").spans == {A: Span(3, 10)}


def test_a_row_that_does_not_lie_behind_the_others_is_refused() -> None:
    filling: Filling = Filling()
    filling.add(A, 0, items(0, 1), 0.0)
    with pytest.raises(ValueError, match="#1 comes behind #1"):
        filling.add(A, 0, items(1), 0.0)


def test_a_dropped_queue_leaves_the_others_as_they_are() -> None:
    filling: Filling = Filling()
    filling.add(A, 0, items(0), 0.0)
    filling.add(B, 0, halves(0, 1, 2), 0.0)
    filling.drop(B)
    assert (filling.rows, filling.bytes) == (1, 1)
    filling.drop(A)
    assert filling.due_at(LIMITS) is None


def test_a_queue_that_does_not_begin_where_the_table_ends_is_named() -> None:
    spans = {A: Span(0, 5), B: Span(7, 9)}
    assert differing(spans, {A: 0}) == {}
    assert differing(spans, {A: 3, B: 6}) == {A: 3, B: 6}


def test_a_queue_that_is_trimmed_to_nothing_is_gone() -> None:
    batch = Batch({A: items(0, 1), B: items(4)}, {A: Span(0, 2), B: Span(4, 5)})
    trimmed = batch.trimmed({A: 2, B: 3})
    assert (trimmed.pieces, trimmed.spans) == ({B: items(4)}, {B: Span(4, 5)})


offsets = st.integers(0, 40)
vectors = st.dictionaries(st.sampled_from([A, B]), offsets)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.sampled_from([A, B]), st.lists(offsets, unique=True, min_size=1).map(sorted)), vectors)
def test_trimming_leaves_each_row_that_the_vector_does_not_cover_and_no_other(
    rows: dict[MessageQueue, list[int]], vector: dict[MessageQueue, int]
) -> None:
    filling: Filling = Filling()
    for queue, numbers in rows.items():
        filling.add(queue, numbers[0], halves(*numbers), 0.0)
    batch = filling.cut("age").trimmed(vector)
    left = {
        (queue, at)
        for queue, held in batch.pieces.items()
        for piece in held
        if isinstance(piece, Item)
        for at in piece.offsets
    }
    assert left == {(queue, at) for queue, numbers in rows.items() for at in numbers if at >= vector.get(queue, 0)}
    assert all(end < batch.spans[queue].start for queue, end in differing(batch.spans, vector).items())


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    vectors, st.dictionaries(st.sampled_from([A, B]), st.tuples(offsets, offsets).map(lambda both: Span(*sorted(both))))
)
def test_a_vector_never_steps_back(vector: dict[MessageQueue, int], spans: dict[MessageQueue, Span]) -> None:
    after = advanced(vector, spans)
    assert all(after[queue] >= at for queue, at in vector.items())
    assert all(after[queue] >= span.end for queue, span in spans.items())


def test_a_commit_survives_json_in_one_canonical_form() -> None:
    commit = Commit(
        sink="shop/orders",
        sequence=3,
        batch="ab",
        spans={B: Span(0, 2), A: Span(1, 4)},
        vector={A: 4, B: 2},
        schema="id int64",
        rows=5,
        made_at=1.5,
    )
    assert decode(encode(commit)) == commit
    assert to_json(encode(commit)).startswith(b'{"aside":{},"batch":"ab","format":1,"kind":"append","made_at":1.5,')


def test_a_commit_of_a_newer_version_is_refused() -> None:
    with pytest.raises(ValueError, match="format 2 of a commit is unknown"):
        decode({"format": 2})
