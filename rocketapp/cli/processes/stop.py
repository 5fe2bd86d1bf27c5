"""The end of a process: the first signal drains, the second cuts, and a stuck process ends all the same.

SIGHUP drains as well, but never cuts: a terminal that closes may send it twice, and systemd sends it after SIGTERM.
Where SIGHUP was ignored at the start (`nohup`), it stays ignored.

Signals are taken with `signal.signal`, so that they are counted even while a handler blocks the event loop. When the
loop does not come to an end within the drain timeout, or shortly after a second signal, a thread ends the process with
exit code 1.

Code that keeps every other thread from running (a regular expression that never ends) keeps this one too, unless
signals interrupt it: a timer of the operating system sends them.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import logging
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Coroutine, Sequence
from types import FrameType
from typing import Any, NamedTuple, NoReturn, TypeVar

from rocketapp.cli.failure import FAILED, print_failure
from rocketapp.cli.runtime import run_in_loop
from rocketapp.user_line import line_of_frame

T = TypeVar("T")
GRACE = 1.5
"""Seconds that the loop gets to notice that its time is over, before the thread ends the process."""
AT_ONCE = 0.25
"""Seconds within which a second signal, before the drain has begun, is the same request: supervisors signal twice."""
NUDGE_INTERVAL = 0.25
TICK_INTERVAL = 0.1
"""Seconds of computing between two signals of the timer."""
STOP_TIMEOUT = 10.0
"""Seconds that a broker gets to write its tables and close its files."""
SLACK = 2 * GRACE + 1.0
"""Seconds beyond its own limits after which a parent kills a worker."""
PATIENCE = 5.0
"""Seconds that threads of an app get together to end, once the command itself has ended."""

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""The signals that drain. Only the main thread may take them."""
_NUDGE, _TICK = signal.SIGURG, signal.SIGVTALRM
_log = logging.getLogger("rocketapp.run")


class _Limit(NamedTuple):
    """The process ends itself after `seconds`."""

    seconds: float
    may_extend: bool = False


class ProcessStop:
    """How a process stops: `requested` is set to drain, `cut` to end the drain at once."""

    def __init__(
        self,
        drain_timeout: float,
        last_words: Callable[[], None] = lambda: None,
        *,
        cutting: Collection[int] = (signal.SIGINT, signal.SIGTERM),
    ) -> None:
        """`last_words` prints what must be printed even by a process that is stuck.

        `cutting`: signals that cut the drain when they are not the first. The others drain, however often they come.
        """
        self.requested: asyncio.Event = asyncio.Event()
        self.cut: asyncio.Event = asyncio.Event()
        self.drain_timeout: float = drain_timeout
        self.last_words: Callable[[], None] = last_words
        self._loop: asyncio.AbstractEventLoop | None = None
        self._cutting = frozenset(cutting)
        self._signalled_at = float("-inf")
        """When the first signal came that another one may follow to cut the drain."""
        self.drains: Callable[[str], None] = lambda reason: None
        """Hears, on the loop, that the drain begins, and why."""
        self._is_told = False
        self._is_ending = threading.Event()
        # Its put may interrupt anything, itself included: just what a signal handler may call.
        self._news: queue.SimpleQueue[_Limit | None] = queue.SimpleQueue()

    def run(self, main: Callable[[], Coroutine[Any, Any, T]], loop: str = "auto") -> T:
        """Run the work of this process to its end, in a loop of the kind that `--loop` names."""

        async def listening() -> T:
            self.listen()
            return await main()

        try:
            return run_in_loop(listening(), loop, self._broken)
        finally:
            self.finished()

    def listen(self) -> None:
        """Take SIGINT, SIGTERM and SIGHUP from now on; inside the running loop, in the main thread."""
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._wait_for_the_end, name="rocketapp-stop", daemon=True).start()
        for number in SIGNALS:
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self._on_signal)
        signal.signal(_NUDGE, self._give_way)
        if signal.getsignal(_TICK) == signal.SIG_DFL:  # the app may have a use of its own for it
            signal.signal(_TICK, self._give_way)
            signal.siginterrupt(_TICK, False)
            signal.setitimer(signal.ITIMER_VIRTUAL, TICK_INTERVAL, TICK_INTERVAL)

    def tell(self) -> None:
        """From now on a drain is logged, with its reason."""
        self._is_told = True

    def request(self, reason: str) -> None:
        """Drain for another reason than a signal, from any thread. Ends the process even when its loop is blocked."""
        if not self.requested.is_set():
            self._news.put(_Limit(self.drain_timeout + GRACE))
            self._on_loop(self._drain, reason)

    def allow(self, seconds: float) -> None:
        """What follows (a broker that closes its files) has this many seconds of its own."""
        self._news.put(_Limit(seconds + GRACE, may_extend=True))

    def finished(self) -> None:
        """The loop has ended by itself and is closed: ignore signals from now on."""
        if self._loop is not None:
            if signal.getsignal(_TICK) == self._give_way:
                signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
            for number in SIGNALS:
                signal.signal(number, signal.SIG_IGN)
        self._news.put(None)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        # Between any two bytecodes of the main thread: no logging, no lock that it may hold.
        now = time.monotonic()
        is_same = not self.requested.is_set() and now - self._signalled_at < AT_ONCE
        first = is_same or self._signalled_at == float("-inf") or number not in self._cutting
        if self._signalled_at == float("-inf") and number != signal.SIGHUP:
            self._signalled_at = now
        self._news.put(_Limit(self.drain_timeout + GRACE if first else GRACE))
        self._on_loop(self._drain if first else self._cut, signal.Signals(number).name)

    def _on_loop(self, call: Callable[[str], None], reason: str) -> None:
        loop = self._loop or asyncio.get_running_loop()
        with contextlib.suppress(RuntimeError):  # the loop is closed already: the end is near anyway
            loop.call_soon_threadsafe(call, reason)

    def _give_way(self, _number: int, _frame: FrameType | None) -> None:
        # Being called lets another thread take its turn. At the end the main thread gets no turn back.
        if self._is_ending.is_set():
            threading.Event().wait(2 * GRACE)

    def _drain(self, reason: str) -> None:
        if not self.requested.is_set():
            # First: a second signal, of a user who has read the line below, cuts the drain.
            self.requested.set()
            if self._is_told:
                _log.info("draining: %s", reason)
            self.drains(reason)

    def _cut(self, name: str) -> None:
        self._drain(name)
        if not self.cut.is_set():
            _log.warning("%s again: cutting the drain", name)
            self.cut.set()

    def _wait_for_the_end(self) -> None:
        # Of two signals that come at once the second may wake any thread that takes it, which then takes the first
        # as well; a main thread that blocks in a lock hears of neither until something else interrupts it.
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        main = threading.main_thread().ident
        deadline: float | None = None
        while True:
            try:
                news = self._news.get(timeout=None if deadline is None else NUDGE_INTERVAL)
            except queue.Empty:
                if deadline is not None and time.monotonic() >= deadline:
                    self._is_ending.set()
                    end_now(self._last_stuck_words)
                if main is not None:
                    signal.pthread_kill(main, _NUDGE)
                continue
            if news is None:
                return
            limit = time.monotonic() + news.seconds
            # Further signals must not put off the end.
            deadline = limit if deadline is None or news.may_extend else min(deadline, limit)

    def _broken(self, problem: str) -> NoReturn:
        def last_words() -> None:
            print_failure(problem)
            self.last_words()

        end_now(last_words)

    def _last_stuck_words(self) -> None:
        _log.error("%s", why_stuck())
        self.last_words()


def why_stuck() -> str:
    """What still runs of the user's code: in the main thread, or in others that the process waits for."""
    main, threads = threading.main_thread().ident, {thread.ident: thread for thread in threading.enumerate()}
    frames = sys._current_frames()
    if found := line_of_frame(frames.get(main or 0)):
        return f"the event loop is blocked at {found} in {found.function}"
    waited_for = [ident for ident, thread in threads.items() if not thread.daemon and ident != main]
    lines = [found for ident in waited_for if (found := line_of_frame(frames.get(ident or 0)))]
    if not lines:
        return "the process has not come to its end: what it waits for is not the app's own code"
    return f"{', '.join(f'{found} in {found.function}' for found in lines)} still runs in a thread: ended without it"


def end_now(last_words: Callable[[], None], code: int = FAILED) -> NoReturn:
    """Exit at once: threads that cannot be stopped are left where they are."""
    # Should the last words block as well (a full pipe, a lock that the stuck thread holds).
    faulthandler.dump_traceback_later(GRACE, exit=True)
    try:
        last_words()
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    finally:
        os._exit(code)


def leave(code: int) -> NoReturn:
    """The last thing a process does: exit with this code, also when threads of the app would go on.

    Python waits for all threads but daemons: those of an app get some seconds. Ctrl-C leaves no traceback from now on.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    main = threading.main_thread()
    left = [thread for thread in threading.enumerate() if thread is not main and not thread.daemon]
    if left:
        threading.Thread(target=_end_without, args=(left, code), name="rocketapp-leave", daemon=True).start()
    sys.exit(code)


def _end_without(left: Sequence[threading.Thread], code: int) -> None:
    deadline = time.monotonic() + PATIENCE
    for thread in left:
        thread.join(max(0.0, deadline - time.monotonic()))
    if any(thread.is_alive() for thread in left):
        end_now(lambda: print_failure(why_stuck()), code)
