"""Trace messages: as few as the limits allow, readable whatever keys hold."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rocketapp.wire.trace import MOST_KEY_BYTES, PubRecord, line_of, pack
from tests.golden.traces import decode

TEXT = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=("Cs",)), min_size=1, max_size=40)


def record(message_id: str, keys: str | None = None) -> PubRecord:
    return PubRecord(1, "DefaultRegion", "g", "t", message_id, None, keys, "h:1", 4, 7, 0, "x", True)


@given(st.lists(st.tuples(TEXT, TEXT), max_size=30), st.integers(1, 400))
def test_every_record_is_in_one_message_within_the_limit(told: list[tuple[str, str]], most: int) -> None:
    records = [record(message_id, keys) for message_id, keys in told if keys != "null"]
    packed = list(pack(map(line_of, records), most_bytes=most))
    assert [found for body, _ in packed for found in decode(body)] == records
    assert all(len(body) <= most or len(decode(body)) == 1 for body, _ in packed)


def test_the_keys_of_a_message_stay_within_what_a_broker_takes() -> None:
    records = [record(f"{number:032X}", f"key-{number}") for number in range(2000)]
    packed = list(pack(map(line_of, records), most_bytes=10_000_000))
    assert len(packed) > 2
    assert all(len(" ".join(keys)) <= MOST_KEY_BYTES for _, keys in packed)
    assert {key for _, keys in packed for key in keys} >= {"key-0", "key-1999"}


def test_signs_that_separate_fields_become_blanks_inside_of_them() -> None:
    (read,) = decode(record("id", "a\x01b\x02c").encode().encode())
    assert read == record("id", "a b c")


def test_a_key_is_told_once_and_one_that_is_too_long_is_left_out() -> None:
    told = [record("A", "B shared"), record("B", "shared"), record("C", "x" * MOST_KEY_BYTES), record("A", "B shared")]
    packed = list(pack(map(line_of, told)))
    assert [len(decode(body)) for body, _ in packed] == [2, 1, 1]
    assert [keys for _, keys in packed] == [["A", "B", "shared"], ["C"], ["A", "B", "shared"]]
