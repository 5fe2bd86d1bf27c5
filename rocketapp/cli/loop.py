"""Which event loop runs."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from rocketapp.cli.failure import FAILED, CommandError, shown_path

T = TypeVar("T")
LOOPS = ("auto", "asyncio", "uvloop")
"""auto is uvloop when it is installed."""


def run_in_loop(main: Coroutine[Any, Any, T], loop: str = "auto") -> T:
    """Run a coroutine to its end, in a loop of the kind that `--loop` names."""
    try:
        factory = loop_factory(loop)
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


def loop_factory(loop: str) -> Callable[[], asyncio.AbstractEventLoop] | None:
    """None is the standard library's own choice."""
    if loop == "asyncio" or (loop == "auto" and importlib.util.find_spec("uvloop") is None):
        return None
    try:
        import uvloop
    except ImportError as error:
        raise CommandError("--loop uvloop: uvloop is not installed: pip install 'rocketapp[uvloop]'") from error
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
