"""A queue is a list of records, of which the oldest may be deleted. Another queue of its name has other records."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rocketapp.state.queue_identity import Identity, Landmark, recognise
from tests.cases import cases

times = st.lists(st.integers(0, 50), min_size=1, max_size=40).map(sorted)


def queue(stored: list[int], name: str) -> list[Landmark]:
    """The records of a queue, as their broker stored them one after the other."""
    return [Landmark(offset, ms, f"{name}{offset}") for offset, ms in enumerate(stored)]


def look(records: list[Landmark], known: Landmark, *, deleted: int) -> Identity:
    """What is said of a queue whose first records are deleted."""
    found = next((record for record in records[deleted:] if record.offset >= known.offset), None)
    return recognise(known, found, end=len(records))


@given(times, st.data())
def test_a_queue_is_known_again_however_many_of_its_first_records_are_deleted(
    stored: list[int], data: st.DataObject
) -> None:
    records = queue(stored, "a")
    known = data.draw(st.sampled_from(records))
    deleted = data.draw(st.integers(0, len(records)))
    expected = Identity.SAME if deleted <= known.offset else Identity.GONE
    assert look(records, known, deleted=deleted) is expected


@given(times, times, st.data())
def test_another_queue_is_told_whether_it_is_longer_or_shorter(
    stored: list[int], others: list[int], data: st.DataObject
) -> None:
    known = data.draw(st.sampled_from(queue(stored, "a")))
    assert look(queue(others, "b"), known, deleted=0) is Identity.OTHER


@given(times, times, st.data())
def test_a_queue_that_lost_its_tail_and_went_on_is_another_one(
    stored: list[int], later: list[int], data: st.DataObject
) -> None:
    records = queue(stored, "a")
    kept = data.draw(st.integers(0, len(records) - 1))
    known = data.draw(st.sampled_from(records[kept:]))
    went_on = [Landmark(kept + n, 50 + ms, f"b{n}") for n, ms in enumerate(later)]
    assert look(records[:kept] + went_on, known, deleted=0) is Identity.OTHER


@cases(
    "found, end, said",
    [
        (Landmark(99, 5, "a"), 300, Identity.SAME),
        (Landmark(99, 5, "b"), 300, Identity.OTHER),
        (Landmark(99, 6, "a"), 300, Identity.OTHER),
        (Landmark(120, 6, "b"), 300, Identity.GONE),
        (Landmark(120, 5, "b"), 300, Identity.GONE),
        (Landmark(120, 4, "b"), 300, Identity.OTHER),
        (None, 300, Identity.GONE),
        (None, 99, Identity.OTHER),
        (None, 0, Identity.OTHER),
    ],
    ids=[
        *(
            "unchanged",
            "another key",
            "another time",
            "deleted",
            "deleted in one millisecond",
            "followed by an older one",
        ),
        *("all deleted", "tail lost", "empty"),
    ],
)
def test_offset_key_and_time_decide(found: Landmark | None, end: int, said: Identity) -> None:
    assert recognise(Landmark(99, 5, "a"), found, end=end) is said
