"""How Python runs in a process of ours: its garbage collector and its event loop."""

from __future__ import annotations

import gc
import importlib.util
import sys
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from rocketapp.cli.failure import FAILED, CommandError, shown_path

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")
LOOPS = ("auto", "asyncio", "uvloop")
"""auto is uvloop when it is installed."""
_THRESHOLDS = (10_000, 20, 50)
"""Python looks for cycles after 700 new objects; a pull of 32 messages makes that many by itself, and none of them
is a cycle. Imports make a hundred times as many. Ten times rarer costs a few MiB at most."""


def collect_rarely() -> None:
    """Let the garbage collector run less often, from the begin of a process."""
    gc.set_threshold(*_THRESHOLDS)


def settle() -> None:
    """After the start: what is there now stays, so the collector need not look at it again."""
    gc.collect()
    gc.freeze()


def run_in_loop(main: Coroutine[Any, Any, T], loop: str = "auto") -> T:
    """Run a coroutine to its end, in a loop of the kind that `--loop` names."""
    import asyncio

    try:
        factory = _loop_factory(loop)
    except CommandError:
        main.close()  # Python would complain that it was never awaited
        raise
    with asyncio.Runner(loop_factory=factory) as runner:
        lines = _note_stops(runner.get_loop())
        try:
            return runner.run(main)
        except RuntimeError as error:
            if "stopped before Future completed" not in str(error):
                raise
            text = f"{lines[-1] if lines else 'in the app'}: loop.stop() ended the run: to end an app, send it SIGTERM"
            raise CommandError(text, FAILED) from error


def _note_stops(loop: asyncio.AbstractEventLoop) -> list[str]:
    """`file:line` of the user's code whenever it stops the loop."""
    from rocketapp.user_line import line_of_frame

    lines: list[str] = []
    stop = loop.stop

    def stop_and_note() -> None:
        if (found := line_of_frame(sys._getframe(1))) is not None:
            lines.append(f"{shown_path(found.file)}:{found.line}")
        stop()

    loop.stop = stop_and_note  # type: ignore[method-assign]
    return lines


def _loop_factory(loop: str) -> Callable[[], asyncio.AbstractEventLoop] | None:
    """None is the standard library's own choice."""
    if loop == "asyncio" or (loop == "auto" and importlib.util.find_spec("uvloop") is None):
        return None
    try:
        import uvloop
    except ImportError as error:
        raise CommandError("--loop uvloop: uvloop is not installed: pip install 'rocketapp[uvloop]'") from error
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
