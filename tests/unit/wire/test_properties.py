"""The property string and the tag in it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketapp.errors import ProtocolError
from rocketapp.wire.properties import decode, encode, from_tag_on, keys_of, tag_of, unique_id_of
from tests.cases import cases


def test_an_entry_counts_when_name_and_value_are_both_there() -> None:
    assert decode(b"a\x01b\x02c\x01\x02\x01d\x02ab\x01x") == {"a": "b", "ab": "x"}


def test_of_equal_names_the_last_wins() -> None:
    assert decode(b"a\x01b\x02k\x01v1\x02k\x01v2\x02") == {"a": "b", "k": "v2"}


def test_null_is_left_out_and_an_empty_value_is_written() -> None:
    assert encode({"k": "v", "e": "", "n": None}) == b"k\x01v\x02e\x01\x02"


def test_a_value_may_hold_the_sign_between_name_and_value() -> None:
    assert decode(encode({"a": "b\x01c"})) == {"a": "b\x01c"}


@pytest.mark.parametrize("properties", [{"a\x01": "b"}, {"a\x02": "b"}, {"a": "b\x02"}])
def test_a_text_that_could_not_be_read_back_is_refused(properties: dict[str, str]) -> None:
    with pytest.raises(ProtocolError, match="separator"):
        encode(properties)


def test_a_text_that_is_no_unicode_is_refused() -> None:
    with pytest.raises(ProtocolError, match="UTF-8"):
        encode({"a": "\ud800"})


def test_broken_utf8_is_replaced_and_not_fatal() -> None:
    assert decode(b"a\x01\xff\x02b\x01c\x02") == {"a": "\ufffd", "b": "c"}


@cases(
    "raw, tag",
    [
        (b"TAGS\x01TagA\x02", b"TagA"),
        (b"TAGS\x01TagA", b"TagA"),
        (b"WAIT\x01true\x02TAGS\x01TagA\x02KEYS\x01k\x02", b"TagA"),
        (b"TAGS\x01first\x02TAGS\x01last\x02", b"last"),
        (b"TAGS\x01first\x02TAGS\x01\x02", b"first"),
        (b"TAGS\x01\x02", None),
        (b"MYTAGS\x01x\x02", None),
        (b"note\x01TAGS\x01x\x02", None),
        (b"note\x01TAGS\x01x\x02TAGS\x01y\x02", b"y"),
        (b"", None),
    ],
)
def test_the_tag_is_the_last_one_that_stands_at_the_start_of_an_entry(raw: bytes, tag: bytes | None) -> None:
    assert tag_of(raw) == tag


ENTRIES = st.lists(
    st.tuples(
        st.sampled_from([b"UNIQ_KEY", b"MY_UNIQ_KEY", b"KEYS", b""]),
        st.sampled_from([b"\x01", b""]),
        st.binary(max_size=3),
    )
)


@given(ENTRIES, st.booleans(), st.sampled_from([(keys_of, "KEYS"), (unique_id_of, "UNIQ_KEY")]))
def test_one_value_alone_is_that_of_all_properties(
    entries: list[tuple[bytes, bytes, bytes]], ends: bool, reader: tuple[Callable[[bytes], bytes | None], str]
) -> None:
    raw = b"\x02".join(b"".join(entry) for entry in entries) + (b"\x02" if ends else b"")
    read, name = reader
    found = read(raw)
    assert (None if found is None else found.decode("utf-8", "replace")) == decode(raw).get(name)


TAGGED = st.lists(
    st.sampled_from([b"TAGS\x01a", b"TAGS\x01b", b"TAGS\x01", b"MYTAGS\x01a", b"k\x01TAGS\x01", b"k\x01v", b""])
)


@given(TAGGED, TAGGED, TAGGED)
def test_properties_that_end_alike_from_the_tag_on_have_one_tag(
    before: list[bytes], other: list[bytes], after: list[bytes]
) -> None:
    one, two = b"\x02".join(before + after), b"\x02".join(other + after)
    ending = from_tag_on(one)
    assert one.endswith(ending)
    if ending and two.endswith(ending):
        assert tag_of(two) == tag_of(one) is not None


def test_a_tag_behind_other_properties_is_said_by_the_end() -> None:
    assert from_tag_on(b"k\x01v\x02TAGS\x01a\x02WAIT\x01true") == b"\x02TAGS\x01a\x02WAIT\x01true"
