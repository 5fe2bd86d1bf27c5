"""Where all threads and tasks of this process stand, as text: what Java's tools call a jstack."""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from collections.abc import Iterable
from types import FrameType

from rocketapp.consumer.standing_calls import frames_of_coroutine, frames_of_thread

_NAMES = 5
"""Names that are shown of those that stand at the same place."""


def stacks() -> str:
    """The stacks of all threads, then of all tasks of the running loop; those that stand alike are shown once."""
    found: dict[str, list[str]] = {}
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():
        stack = _text(list(frames_of_thread(frame))[::-1])
        found.setdefault(stack, []).append(f"thread {names.get(ident, ident)}")
    for task in asyncio.all_tasks():
        stack = _text(frames_of_coroutine(task.get_coro()))
        found.setdefault(stack, []).append(f"task {task.get_name()}")
    return "\n".join(f"{_title(sorted(who))}\n{stack}" for stack, who in found.items())


def _text(frames: Iterable[FrameType]) -> str:
    summary = traceback.StackSummary.extract(((frame, frame.f_lineno) for frame in frames), lookup_lines=False)
    return "".join(f"    at {line.name} ({line.filename}:{line.lineno})\n" for line in reversed(summary))


def _title(who: list[str]) -> str:
    more = len(who) - _NAMES
    return ", ".join(who[:_NAMES]) + (f" and {more} more" if more > 0 else "") + ":"
