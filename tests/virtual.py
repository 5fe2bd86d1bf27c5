"""A simulation as one call of a test."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from rocketapp.testing.virtual_time import VirtualTimeLoop

T = TypeVar("T")


def run_virtual(main: Callable[[], Coroutine[Any, Any, T]], *, limit: float = 86_400.0) -> T:
    """Run a simulation to its end; fails when it takes more than `limit` virtual seconds."""

    async def bounded() -> T:
        async with asyncio.timeout(limit):
            return await main()

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(bounded(), context=contextvars.copy_context())
