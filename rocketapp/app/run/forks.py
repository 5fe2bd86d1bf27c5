"""A handler may fork: its child is a copy of this process, and must not consume as well.

A child that runs another program (subprocess), or that ends by itself (multiprocessing), is not disturbed. One that
comes back from the handler ends there, with exit code 0. Its connections lead nowhere.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Callable


class ForkGuard:
    """Of one run of one app."""

    def __init__(self, halt: Callable[[], None]) -> None:
        """Made on the loop. `halt`, called in a child: start nothing more, and end the thread that forked."""
        self._halt, self._loop, self._thread = halt, asyncio.get_running_loop(), threading.get_ident()
        ref = weakref.WeakMethod(self._in_child)

        def in_child() -> None:
            if (call := ref()) is not None:
                call()

        os.register_at_fork(after_in_child=in_child)

    def __repr__(self) -> str:
        return f"<ForkGuard of {self._loop}>"

    def _in_child(self) -> None:
        self._halt()
        if threading.get_ident() == self._thread and not self._loop.is_closed():
            self._loop.call_soon(os._exit, 0)
