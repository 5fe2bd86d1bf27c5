"""The jumping clock itself: what simulations rely on."""

from __future__ import annotations

import asyncio

import pytest

from rocketapp.testing.virtual_time import StandstillError
from tests.virtual import run_virtual


def test_an_hour_passes_at_once_and_timers_fire_in_their_order() -> None:
    async def main() -> tuple[float, list[str]]:
        fired: list[str] = []
        loop = asyncio.get_running_loop()
        loop.call_later(3600, fired.append, "hour")
        loop.call_later(60, fired.append, "minute")
        await asyncio.sleep(7200)
        return loop.time(), fired

    now, fired = run_virtual(main)
    assert fired == ["minute", "hour"]
    assert now == pytest.approx(7200)


def test_a_program_that_would_hang_fails_instead() -> None:
    async def main() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises((StandstillError, TimeoutError)):
        run_virtual(main, limit=10)


def test_a_year_passes_too() -> None:
    async def main() -> float:
        for _ in range(365):
            await asyncio.sleep(86_400.0)
        for _ in range(100):
            await asyncio.sleep(0.37)
        return asyncio.get_running_loop().time()

    assert run_virtual(main, limit=1e9) == pytest.approx(365 * 86_400.0 + 37.0)
