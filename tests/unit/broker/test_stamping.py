"""Properties on their way into the store."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketapp.broker.added_properties import Stamp, value_of
from rocketapp.broker.steady_clock import SteadyClock
from rocketapp.errors import BrokerError
from rocketapp.wire import properties
from rocketapp.wire.codes import ResponseCode
from tests.unit.scripted import ClockAt

CLOCK = SteadyClock(ClockAt(60.0), lambda: 0.0)
STAMP = Stamp(cluster="DefaultCluster", region="DefaultRegion", new_key=lambda: "NEW", clock=CLOCK)
ADDED = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true", "CLUSTER": "DefaultCluster"}


def test_a_message_keeps_its_properties_and_gets_the_brokers() -> None:
    stamped = STAMP.single("TAGS\x01paid\x02UNIQ_KEY\x01A1\x02")
    assert properties.decode(stamped.raw) == {"TAGS": "paid", "UNIQ_KEY": "A1", **ADDED}
    assert (stamped.unique_key, stamped.delay_level) == ("A1", 0)


def test_a_message_without_a_unique_key_gets_one() -> None:
    for text in ("", "TAGS\x01paid", "XUNIQ_KEY\x01no\x02", "UNIQ_KEY\x01\x02"):
        stamped = STAMP.single(text)
        assert stamped.unique_key == "NEW"
        assert properties.decode(stamped.raw)["UNIQ_KEY"] == "NEW"


def test_a_last_entry_without_its_end_is_not_glued_to_the_next() -> None:
    assert properties.decode(STAMP.single("UNIQ_KEY\x01A1\x02a\x01b").raw)["a"] == "b"


def test_what_a_pop_left_behind_is_taken_out() -> None:
    stamped = STAMP.single("POP_CK\x011 2 3\x02UNIQ_KEY\x01A1\x02MY_POP_CK\x01x\x02")
    assert properties.decode(stamped.raw) == {"UNIQ_KEY": "A1", "MY_POP_CK": "x", **ADDED}


@pytest.mark.parametrize(
    ("text", "level"), [("DELAY\x013\x02", 3), ("DELAY\x01-1\x02", 0), ("DELAY\x010", 0), ("XDELAY\x013\x02", 0)]
)
def test_the_delay_level_is_found(text: str, level: int) -> None:
    assert STAMP.single(text).delay_level == level


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("TIMER_DELAY_SEC\x01999999\x02", ResponseCode.MESSAGE_ILLEGAL),
        ("TIMER_DELIVER_MS\x01soon\x02", ResponseCode.MESSAGE_ILLEGAL),
        ("a\x01b\x00c\x02", ResponseCode.MESSAGE_ILLEGAL),
        ("DELAY\x01soon\x02", ResponseCode.MESSAGE_ILLEGAL),
        ("a\x01" + "x" * 32_767 + "\x02", ResponseCode.MESSAGE_ILLEGAL),
        ("a\x01" + "\u4e2d" * 11_000 + "\x02", ResponseCode.MESSAGE_ILLEGAL),
    ],
)
def test_what_cannot_be_stored_is_refused(text: str, code: ResponseCode) -> None:
    with pytest.raises(BrokerError) as refused:
        STAMP.single(text)
    assert refused.value.code == code


def test_a_batched_message_has_its_own_properties_alone_and_a_unique_key() -> None:
    own = b"UNIQ_KEY\x01A1\x02KEYS\x01k\x02"
    stamped = STAMP.batched(own)
    assert (stamped.raw, stamped.unique_key) == (own, "A1")
    assert properties.decode(STAMP.batched(b"KEYS\x01k").raw) == {"KEYS": "k", "UNIQ_KEY": "NEW"}


def test_the_refusal_of_a_nul_says_what_to_do() -> None:
    with pytest.raises(BrokerError, match=r"embedded broker does not store: put it in the body"):
        STAMP.single("a\x01b\x00c\x02")


def test_properties_that_are_no_text_are_refused() -> None:
    with pytest.raises(BrokerError):
        STAMP.batched(b"a\x01\xff\x02")


texts = st.text(st.characters(codec="utf-8", exclude_characters="\x00\x01\x02"), max_size=5)


@given(st.lists(st.tuples(st.sampled_from(["TAGS", "UNIQ_KEY", "XTAGS", "a"]), texts), max_size=6))
def test_a_looked_up_value_is_the_last_of_its_name(entries: list[tuple[str, str]]) -> None:
    text = "".join(f"{name}\x01{value}\x02" for name, value in entries)
    for name in ("TAGS", "UNIQ_KEY", "XTAGS", "a"):
        values = [value for other, value in entries if other == name]
        assert value_of(text, name) == (values[-1] if values else None)
