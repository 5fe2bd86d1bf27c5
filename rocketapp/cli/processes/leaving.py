"""The last thing a process does. Python waits for all threads but daemons: those of an app get some seconds."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Sequence
from typing import NoReturn

PATIENCE = 5.0
"""Seconds that such threads get together."""


def leave(code: int) -> NoReturn:
    """Exit with this code, also when threads of the app would go on. Ctrl-C from now on leaves no traceback."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    main = threading.main_thread()
    left = [thread for thread in threading.enumerate() if thread is not main and not thread.daemon]
    if left:
        threading.Thread(target=_end_without, args=(left, code), name="rocketapp-leave", daemon=True).start()
    sys.exit(code)


def _end_without(left: Sequence[threading.Thread], code: int) -> None:
    from rocketapp.cli.failure import print_failure
    from rocketapp.cli.processes.stop import end_now, why_stuck

    deadline = time.monotonic() + PATIENCE
    for thread in left:
        thread.join(max(0.0, deadline - time.monotonic()))
    if any(thread.is_alive() for thread in left):
        end_now(lambda: print_failure(why_stuck()), code)
