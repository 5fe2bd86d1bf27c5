from __future__ import annotations

import pytest

from rocketapp.state.missing_keys import FIRST, MissingKeys


def told_of(*keys: str | None) -> list[int]:
    told = list[int]()
    missing = MissingKeys(told.append)
    for key in keys:
        missing.saw(key)
    return told


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ([None] * (FIRST - 1), []),
        ([None] * FIRST, [FIRST]),
        ([None] * FIRST * 3, [FIRST]),
        (["a", *[None] * FIRST * 3], []),
        ([*[None] * (FIRST - 1), "", *[None] * FIRST], []),
    ],
    ids=["too few", "enough", "many more", "the first has it", "the last one has an empty one"],
)
def test_it_tells_once_when_none_of_the_first_has_a_key(keys: list[str | None], told: list[int]) -> None:
    assert told_of(*keys) == told
