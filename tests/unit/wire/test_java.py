"""Hashes as Java computes them."""

from __future__ import annotations

from rocketapp.wire.java import string_hash, tags_code
from tests.cases import cases


@cases(
    "text, expected",
    [
        ("TagA", 2598919),
        ("TagB", 2598920),
        ("你好", 652829),
        ("polygenelubricants", -2147483648),
        ("Aa", 2112),
        ("BB", 2112),
        ("", 0),
    ],
)
def test_a_string_hashes_as_in_java(text: str, expected: int) -> None:
    assert string_hash(text) == expected


def test_the_hash_that_indexes_a_key_is_that_of_topic_and_key() -> None:
    assert abs(string_hash("T#k1")) == 2539445


def test_a_character_outside_the_basic_plane_counts_as_two_units() -> None:
    assert string_hash("\U0001f600") == 31 * 0xD83D + 0xDE00


def test_a_message_without_a_tag_has_the_code_zero() -> None:
    assert tags_code(None) == 0
    assert tags_code("") == 0
    assert tags_code("TagA") == 2598919
