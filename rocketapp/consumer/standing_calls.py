"""Where calls of handlers stand that have been running for long: the user's line, in a task or in a thread.

Looked for only when there is such a call: every task of the loop and every thread of the process is looked at.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

from rocketapp.consumer.workers.async_workers import AsyncWorkers
from rocketapp.consumer.workers.serial import SerialOnLoop, _ThreadRun
from rocketapp.consumer.workers.thread_workers import ThreadWorkers
from rocketapp.user_line import place_of_frame

_CALLERS = (
    AsyncWorkers._drain.__code__,
    SerialOnLoop.run.__code__,
    ThreadWorkers._run.__code__,
    _ThreadRun._call_all.__code__,
)
"""The code that calls handlers; its `item` is what it calls one with."""


def places_of_calls() -> dict[int, str]:
    """By the id of an item, `file:line` where the call for it stands. On the event loop."""
    found: dict[int, str] = {}
    for task in asyncio.all_tasks():
        _note(found, list(frames_of_coroutine(task.get_coro())))
    for frame in sys._current_frames().values():
        _note(found, list(frames_of_thread(frame))[::-1])
    return found


def _note(found: dict[int, str], frames: list[FrameType]) -> None:
    """`frames`: the outermost first."""
    for number, frame in enumerate(frames):
        if frame.f_code in _CALLERS:
            inner = frames[number + 1 :]
            place = next((place for one in reversed(inner) if (place := place_of_frame(one, ""))), "")
            if place:
                found[id(frame.f_locals.get("item"))] = place
            return


def frames_of_coroutine(waiting: Any) -> Iterator[FrameType]:
    """The frames of a coroutine that is suspended, and of those that it awaits: the outermost first."""
    while waiting is not None:
        kind = next((kind for kind in ("cr", "gi", "ag") if hasattr(waiting, f"{kind}_frame")), None)
        if kind is None:
            return
        frame = getattr(waiting, f"{kind}_frame")
        if frame is not None:
            yield frame
        waiting = getattr(waiting, "gi_yieldfrom" if kind == "gi" else f"{kind}_await", None)


def frames_of_thread(frame: FrameType | None) -> Iterator[FrameType]:
    """This frame and those that called it."""
    while frame is not None:
        yield frame
        frame = frame.f_back
