"""Durations of calls are counted as successes and failures, by what the engine makes of their results."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from rocketapp import DeadLetter, Message, Pause, Policy, Retry, RocketApp, Skip
from rocketapp.plugins.counts import Counts
from tests.unit.app.given import bound


async def settle(message: Message) -> None: ...


def raising(error: BaseException) -> Callable[[Any], Any]:
    def call(message: Any) -> Any:
        raise error

    return call


CALLS = [
    pytest.param(lambda message: "text", "", id="returns"),
    pytest.param(lambda message: Skip, "", id="returns Skip"),
    pytest.param(lambda message: Retry, "Retry", id="returns the class Retry"),
    pytest.param(lambda message: Retry(after=5), "Retry", id="returns a Retry"),
    pytest.param(lambda message: DeadLetter("stolen"), "DeadLetter", id="returns a DeadLetter"),
    pytest.param(lambda message: Pause("full"), "Pause", id="returns a Pause"),
    pytest.param(raising(Skip("old")), "", id="raises Skip"),
    pytest.param(raising(KeyError("item")), "", id="raises what its policy skips"),
    pytest.param(raising(ValueError("amount")), "ValueError", id="raises"),
    pytest.param(raising(SystemExit(1)), "SystemExit", id="exits"),
]


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
@pytest.mark.parametrize(
    ("call", "error"),
    CALLS,
)
def test_a_call_counts_as_what_it_comes_to(call: Callable[[Any], Any], error: str, is_async: bool) -> None:
    app = RocketApp("shop", retry=Policy(on={KeyError: Skip}))
    app.subscribe("orders")(settle)
    counts, subscription = Counts(), replace(bound(app).subscription, is_async=is_async)
    wrapper = counts.handler(subscription)
    assert wrapper.for_async is not None
    assert wrapper.for_sync is not None
    with contextlib.suppress(Exception, SystemExit):
        if is_async:
            asyncio.run(wrapper.for_async(awaited(call))(None))  # type: ignore[arg-type]
        else:
            wrapper.for_sync(call)(None)
    counted = {which.error: sum(histogram.buckets) for which, histogram in counts.histograms.items()}
    assert counted == ({"": 0, error: 1} if error else {"": 1})


def awaited(call: Callable[[Any], Any]) -> Callable[[Any], Any]:
    async def handle(message: Any) -> Any:
        return call(message)

    return handle
