"""How long the turns of an event loop are."""

from __future__ import annotations

import asyncio
import time
from typing import Any
from unittest import mock


class Turns:
    """Times every turn of the loop: `with Turns() as turns: ...`."""

    def __init__(self) -> None:
        self.longest: float = 0.0
        """Seconds of CPU of the longest one so far."""
        self._run = vars(asyncio.Handle)["_run"]
        self._patch = mock.patch.object(asyncio.Handle, "_run", self._timed())

    def __enter__(self) -> Turns:
        self._patch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._patch.stop()

    def _timed(self) -> Any:
        def timed(handle: Any) -> None:
            begun = time.thread_time()
            self._run(handle)
            self.longest = max(self.longest, time.thread_time() - begun)

        return timed
