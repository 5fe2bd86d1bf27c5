"""One thread that does what blocks, one call after the other, for one event loop.

A call that hangs does not keep the process from ending.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")


class Worker:
    """Started by its first call."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def __repr__(self) -> str:
        return f"<Worker {self._name}>"

    async def run(self, call: Callable[[], T]) -> T:
        """Its result. When the caller is cancelled the call goes on, and its result is dropped."""
        loop = asyncio.get_running_loop()
        result: asyncio.Future[T] = loop.create_future()

        def work() -> None:
            try:
                value = call()
            except BaseException as error:
                _tell(loop, result, result.set_exception, error)
            else:
                _tell(loop, result, result.set_result, value)

        if self._thread is None:
            self._thread = threading.Thread(target=self._loop, name=self._name, daemon=True)
            self._thread.start()
        self._calls.put(work)
        return await result

    def stop(self) -> None:
        """End the thread behind the calls that it has."""
        self._calls.put(None)
        self._thread = None

    def _loop(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
            del call  # it holds a batch


def _tell(
    loop: asyncio.AbstractEventLoop, result: asyncio.Future[Any], setter: Callable[[Any], None], value: Any
) -> None:
    def tell() -> None:
        if not result.done():
            setter(value)

    try:
        loop.call_soon_threadsafe(tell)
    except RuntimeError:
        return  # the loop is closed, and its app is gone
