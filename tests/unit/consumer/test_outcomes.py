from __future__ import annotations

import pytest

from rocketapp import DeadLetter, Retry, Skip
from rocketapp.consumer.outcomes import failure_of


@pytest.mark.parametrize("result", [None, 0, "text", Skip("seen"), ValueError("returned, not raised")])
def test_returning_anything_is_done(result: object) -> None:
    assert failure_of(result, raised=False) is None


def test_outcomes_may_be_raised_or_returned() -> None:
    for raised in (True, False):
        retry, dead = failure_of(Retry(after=5), raised), failure_of(DeadLetter("spoilt"), raised)
        assert retry is not None
        assert dead is not None
        assert (retry.after, retry.dead) == (5, False)
        assert dead.dead
        assert failure_of(Skip(), raised) is None


def test_an_exception_is_a_failure_with_its_text() -> None:
    failure = failure_of(ValueError("no money"), raised=True)
    assert failure is not None
    assert "no money" in str(failure)


def test_a_coroutine_that_nobody_awaits_is_a_failure_and_not_done() -> None:
    async def settle() -> None: ...

    failure = failure_of(settle(), raised=False)
    assert failure is not None
    assert "make it `async def`" in str(failure)
