"""Sets up Python for a process of ours: garbage collector, standard streams and event loop."""

from __future__ import annotations

import gc
import importlib.util
import sys
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from rocketapp.cli.failure import FAILED, CommandError, describe, shown_path

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")
LOOPS = ("auto", "asyncio", "uvloop")
"""auto is uvloop when it is installed."""
_THRESHOLDS = (10_000, 20, 50)
"""Python looks for cycles after 700 new objects; a pull of 32 messages makes that many by itself, and none of them
is a cycle. Imports make a hundred times as many. Ten times rarer costs a few MiB at most."""


def collect_rarely() -> None:
    """Let the garbage collector run less often, from the start of the process."""
    gc.set_threshold(*_THRESHOLDS)


def open_streams() -> None:
    """Make stdout and stderr streams that take every text, also where they were closed from the beginning.

    Code of an app that closes one would take it from the log and from the last line of the command: it flushes it.
    """
    for number, name in ((1, "stdout"), (2, "stderr")):
        stream = getattr(sys, name)
        if stream is None:
            stream = open(number, "w", closefd=False)  # noqa: SIM115 - for as long as the process lives
            setattr(sys, name, stream)
        stream.reconfigure(errors="backslashreplace")
        stream.close = stream.flush


def settle() -> None:
    """After the start: exclude all present objects from garbage collection (`gc.freeze`)."""
    gc.collect()
    gc.freeze()


def run_in_loop(main: Coroutine[Any, Any, T], loop: str = "auto", broken: Callable[[str], NoReturn] | None = None) -> T:
    """Run a coroutine to its end, in a loop of the kind that `--loop` names.

    `broken`: ends the process when the app has stopped the loop, or closed what it needs, before that end. It is called
    while handlers are in flight as they were: what cancels them would also take out of the record that they were.
    """
    import asyncio

    try:
        factory = _loop_factory(loop)
    except CommandError:
        main.close()  # Python would complain that it was never awaited
        raise
    has_ended = False

    class Main(asyncio.Task[Any]):
        def cancel(self, msg: Any = None) -> bool:
            # By a line of theirs it was meant for all tasks: those of the engine were cancelled as well.
            if broken is not None and (place := _user_place()):
                broken(f"{place}: {_CANCELLED}")
            return super().cancel(msg)

    async def to_its_end() -> T:
        nonlocal has_ended
        try:
            ended: T = await Main(main)
            return ended
        finally:
            has_ended = True

    def stopped(stop: Callable[[], None]) -> None:
        if not has_ended and broken is not None:
            broken(f"{_user_place() or 'in the app'}: {_STOPPED}")
        stop()

    with asyncio.Runner(loop_factory=factory) as runner:
        running = runner.get_loop()
        running.stop = partial(stopped, running.stop)  # type: ignore[method-assign]
        try:
            return runner.run(to_its_end())
        except (OSError, RuntimeError) as error:
            if has_ended:
                raise
            is_stopped = "stopped before Future completed" in str(error)
            text = f"in the app: {_STOPPED}" if is_stopped else f"the event loop broke: {describe(error)}"
            if broken is not None:
                broken(text)
            raise CommandError(text, FAILED) from error


_STOPPED = "loop.stop() ended the app: to end an app, send it SIGTERM"
_CANCELLED = "cancelling all tasks ended the app: cancel those that you made; to end an app, send it SIGTERM"


def _user_place() -> str:
    """`file:line` of the user code that is running now, or ""."""
    from rocketapp.user_line import line_of_frame

    found = line_of_frame(sys._getframe(2))
    return "" if found is None else f"{shown_path(found.file)}:{found.line}"


def _loop_factory(loop: str) -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Makes the loop that `--loop` names; None lets asyncio choose."""
    if loop == "asyncio" or (loop == "auto" and importlib.util.find_spec("uvloop") is None):
        return None
    try:
        import uvloop
    except ImportError as error:
        raise CommandError("--loop uvloop: uvloop is not installed: pip install 'rocketapp[uvloop]'") from error
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
