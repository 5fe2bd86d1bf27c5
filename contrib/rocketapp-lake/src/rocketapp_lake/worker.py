"""One thread that does what blocks, one call after the other, for one event loop.

A call that hangs does not keep the process from ending.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")


class Worker:
    """Started by its first call."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def __repr__(self) -> str:
        return f"<Worker {self._name}>"

    def run(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """Its result. When the caller is cancelled the call goes on, and its result is dropped."""
        result: Future[T] = Future()
        result.set_running_or_notify_cancel()
        if self._thread is None:
            self._thread = threading.Thread(target=self._loop, name=self._name, daemon=True)
            self._thread.start()
        self._calls.put((call, result))
        return asyncio.wrap_future(result)

    def stop(self) -> None:
        """End the thread behind the calls that it has."""
        self._calls.put(None)
        self._thread = None

    def _loop(self) -> None:
        while (work := self._calls.get()) is not None:
            call, result = work
            try:
                result.set_result(call())
            except BaseException as error:
                result.set_exception(error)
            del work, call, result  # they hold a batch
