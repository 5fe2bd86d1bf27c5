"""Names and delay levels."""

from __future__ import annotations

from rocketapp.model.names import DELAY_SECONDS, delay_level_at_least


def test_a_delay_is_rounded_up_to_a_level_and_never_beyond_the_last() -> None:
    assert [delay_level_at_least(seconds) for seconds in (0, 1, 1.5, 5, 7200, 7201)] == [1, 1, 2, 2, 18, 18]
    assert [delay_level_at_least(seconds) for seconds in DELAY_SECONDS] == list(range(1, 19))
