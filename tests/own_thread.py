"""A loop that another thread calls without `call_soon_threadsafe` fails the test, as in the debug mode of asyncio.

That mode keeps a stack for each future and each callback besides, which was up to a fifth of a test's time. A coroutine
that nobody awaits needs it not: that warning is an error anyway.
"""

from __future__ import annotations

import asyncio
from typing import Any


def check_threads() -> None:
    """From now on, for every loop of this process: those of tests, and those that the product runs in its threads."""
    for name in ("call_soon", "call_at"):
        setattr(asyncio.BaseEventLoop, name, _checked(getattr(asyncio.BaseEventLoop, name)))


def _checked(method: Any) -> Any:
    def checked(self: Any, *arguments: Any, **named: Any) -> Any:
        if type(self) is asyncio.SelectorEventLoop:  # in virtual time threads take turns, and none runs beside the loop
            self._check_thread()
        return method(self, *arguments, **named)

    return checked
