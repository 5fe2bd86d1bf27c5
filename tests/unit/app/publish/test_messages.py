"""Arguments of `publish` that no message could have, and delays between two levels."""

from __future__ import annotations

import math
from typing import Any

import pytest

from rocketapp.app.publishing import outgoing
from rocketapp.model.subscription import parse_tags


@pytest.mark.parametrize("tag", ["a||b", "a || b", " a", "a ", " "])
def test_a_tag_that_no_subscription_can_select_is_refused(tag: str) -> None:
    with pytest.raises(ValueError, match="a message has one tag"):
        outgoing("orders", b"1", {"tag": tag})


@pytest.mark.parametrize("tag", ["a", "a|b", "a b", "*"])
def test_a_tag_that_a_subscription_can_select_is_sent(tag: str) -> None:
    assert tag in parse_tags(f"{tag} || other")
    assert outgoing("orders", b"1", {"tag": tag}).tag == tag


@pytest.mark.parametrize(("delay", "level"), [(0.5, 1), (1, 1), (7, 3), (10, 3), (11, 4), (7200, 18)])
def test_a_delay_is_rounded_up_to_the_next_level(delay: float, level: int) -> None:
    assert outgoing("orders", b"1", {"delay": delay, "rounding": "up"}).delay_level == level


@pytest.mark.parametrize("delay", [7201, -1, math.nan, math.inf])
def test_a_delay_that_no_level_reaches_is_refused_also_when_rounded(delay: float) -> None:
    with pytest.raises(ValueError, match=r"no delay level|give seconds above 0"):
        outgoing("orders", b"1", {"delay": delay, "rounding": "up"})


def test_a_delay_is_never_shortened() -> None:
    wrong: Any = "down"
    with pytest.raises(ValueError, match="a message must not come early"):
        outgoing("orders", b"1", {"delay": 7, "rounding": wrong})
