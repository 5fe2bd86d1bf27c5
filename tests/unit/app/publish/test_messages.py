"""Arguments of `publish` that no message could have, and delays between two levels."""

from __future__ import annotations

import math

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


@pytest.mark.parametrize("delay", [-1, math.nan, math.inf])
def test_a_delay_that_no_message_can_have_is_refused(delay: float) -> None:
    with pytest.raises(ValueError, match="give seconds above 0"):
        outgoing("orders", b"1", {"delay": delay})
