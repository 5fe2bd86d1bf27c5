from __future__ import annotations

import pytest

from rocketapp.plugins.trace_context import carrier_of, is_sampled, trace_id
from rocketapp.wire.properties import encode
from tests.cases import cases

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED, DROPPED = f"00-{TRACE}-{SPAN}-01", f"00-{TRACE}-{SPAN}-00"


@pytest.mark.parametrize("name", ["traceparent", "TRACE_CONTEXT"])
@pytest.mark.parametrize(("value", "kept"), [(SAMPLED, True), (DROPPED, False)])
def test_the_context_is_read_wherever_it_stands_among_the_properties(name: str, value: str, kept: bool) -> None:
    for properties in ({name: value}, {"UNIQ_KEY": "1", name: value}, {name: value, "WAIT": "true"}):
        assert is_sampled(encode(properties)) is kept
        assert trace_id(encode(properties)) == TRACE


@cases(
    "properties",
    [
        {},
        {"traceparent": "00-abc"},
        {"traceparent": f"ff-{TRACE}-{SPAN}-01"},
        {"traceparent": f"00-{'0' * 32}-{SPAN}-01"},
        {"traceparent": f"00-{TRACE}-{'0' * 16}-01"},
        {"traceparent": f"00-{TRACE}-{SPAN}-011"},
        {"my-traceparent": SAMPLED},
        {"note": f"traceparent {SAMPLED}"},
    ],
)
def test_another_text_gives_no_context(properties: dict[str, str]) -> None:
    assert is_sampled(encode(properties)) is None
    assert trace_id(encode(properties)) == ""


def test_a_longer_name_does_not_hide_the_right_one() -> None:
    assert is_sampled(encode({"my-traceparent": DROPPED, "traceparent": SAMPLED})) is True


def test_a_later_version_may_say_more() -> None:
    assert is_sampled(encode({"traceparent": f"01-{TRACE}-{SPAN}-01-more"})) is True


def test_the_proxy_s_name_stands_in_for_the_usual_one_only_when_that_is_missing() -> None:
    assert carrier_of({"TRACE_CONTEXT": SAMPLED})["traceparent"] == SAMPLED
    assert carrier_of({"TRACE_CONTEXT": SAMPLED, "traceparent": DROPPED})["traceparent"] == DROPPED
