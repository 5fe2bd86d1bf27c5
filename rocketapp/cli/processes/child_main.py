"""The child's side: what a worker or broker process of `rocketapp run` does with what its parent told it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from rocketapp.cli.failure import DONE, FAILED, CommandError
from rocketapp.cli.loop import collect_rarely
from rocketapp.cli.processes.reports import Report
from rocketapp.cli.processes.stop import SIGNALS, SLACK, ProcessStop, end_now, leave

Spec = Mapping[str, Any]
PARENT_INTERVAL = 1.0
"""Seconds between looks whether the parent is still the same process. The lifeline tells
at once; but a forked copy of the parent may hold its other end open."""


def main(spec: Spec) -> None:
    """Be what `spec["role"]` says; ends the process."""
    collect_rarely()
    if spec.get("is_edited"):
        # Python tells a compiled file that is outdated by the second and the size of its source: an edit may keep both.
        sys.dont_write_bytecode = True
    reporter = Reporter(spec["reports"])
    lifeline = Lifeline(spec["parent"])
    role: Callable[[Spec, Reporter, Lifeline], int] = _worker if spec["role"] == "worker" else _broker
    try:
        code = role(spec, reporter, lifeline)
    except CommandError as error:
        if spec["traceback"] and error.__cause__ is not None:
            traceback.print_exception(error.__cause__, file=sys.stderr)
        reporter.tell(Report("failed", error=error.text, code=error.code))
        code = error.code
    leave(code)


class Reporter:
    """Writes reports to the parent without ever waiting long for it."""

    def __init__(self, descriptor: int) -> None:
        # What user code starts must not hold the pipe open.
        os.set_inheritable(descriptor, False)
        os.set_blocking(descriptor, False)
        with contextlib.suppress(OSError, AttributeError):  # Linux: room for a view of thousands of queues
            fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, 1 << 20)
        self._descriptor = descriptor
        self._unsent = b""
        self._is_sending = False
        self._lock = threading.Lock()

    def tell(self, report: Report) -> None:
        """From any thread. A status or view is left out while an earlier one is on its way; the rest must arrive."""
        with self._lock:
            self._tell(report)
            if self._unsent and not self._is_sending:
                self._is_sending = True
                threading.Thread(target=self._send_rest, name="rocketapp-reports", daemon=True).start()

    def _tell(self, report: Report) -> None:
        if report.kind in ("status", "view"):
            if not self._flush():
                return
            self._unsent = report.encode()
            self._flush()
            return
        self._unsent += report.encode()
        while not self._flush() and select.select([], [self._descriptor], [], 1.0)[1]:
            pass

    def _send_rest(self) -> None:
        """What did not fit into the pipe goes out as soon as the parent reads, and not with the next report."""
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        while True:
            select.select([], [self._descriptor], [])
            with self._lock:
                if self._flush():
                    self._is_sending = False
                    return

    def _flush(self) -> bool:
        try:
            while self._unsent:
                self._unsent = self._unsent[os.write(self._descriptor, self._unsent) :]
        except BlockingIOError:
            return False
        except BrokenPipeError:
            self._unsent = b""
        return True


class Lifeline:
    """Our old stdin: the parent's words, and their end when the parent is gone."""

    def __init__(self, parent: int) -> None:
        self._parent = parent
        self._descriptor = os.dup(0)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        self._heard = b""
        self._is_watched = threading.Event()
        self.hear: Callable[[Mapping[str, Any]], None] = lambda fields: None
        """What the parent says after `watch` was called, in that thread."""

    def read_line(self) -> dict[str, Any] | None:
        """The next thing the parent says, however long it takes; None when it is gone."""
        while b"\n" not in self._heard:
            data = os.read(self._descriptor, 4096)
            if not data:
                return None
            self._heard += data
        line, _, self._heard = self._heard.partition(b"\n")
        fields: dict[str, Any] = json.loads(line)
        return fields

    def end_with_parent(self) -> None:
        """Until `watch`: end this process, which has nothing in flight yet, when the parent is gone.

        What it is busy with, an app that is imported, may never come to an end by itself.
        """
        threading.Thread(target=self._end_with_parent, name="rocketapp-lifeline", daemon=True).start()

    def _end_with_parent(self) -> None:
        while not self._is_watched.wait(PARENT_INTERVAL):
            if os.getppid() != self._parent:
                os._exit(FAILED)

    def watch(self, on_lost: Callable[[str], None], *, after: Callable[[], None] = lambda: None) -> None:
        """Call `on_lost` once, in a thread of its own, when the parent is gone: a handler may block the loop.

        `after` is called first, and may wait for what has to end earlier.
        """
        self._is_watched.set()
        threading.Thread(target=self._wait, args=(on_lost, after), name="rocketapp-lifeline", daemon=True).start()

    def _wait(self, on_lost: Callable[[str], None], after: Callable[[], None]) -> None:
        # Signals are for the main thread. This one must not take them: it sits in select.
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        self._hear(b"")  # what came with the line that was read
        while os.getppid() == self._parent:
            if select.select([self._descriptor], [], [], PARENT_INTERVAL)[0] and not self._hear(
                os.read(self._descriptor, 4096)
            ):
                break
        after()
        on_lost("the parent process is gone")

    def _hear(self, data: bytes) -> bool:
        """False at the end."""
        *lines, self._heard = (self._heard + data).split(b"\n")
        for line in lines:
            self.hear(json.loads(line))
        return bool(data)


def _worker(spec: Spec, reporter: Reporter, lifeline: Lifeline) -> int:
    from rocketapp.app.settings import with_name_server
    from rocketapp.cli.loader import load_app
    from rocketapp.cli.logs import set_up_logging
    from rocketapp.cli.processes.worker import Worker, obey, pause_again
    from rocketapp.cli.settings import code_of, needs_cluster, read_settings

    # What user code starts does not count as a worker.
    os.set_inheritable(spec["presence"], False)
    lifeline.end_with_parent()
    app = load_app(spec["app"])
    settings = read_settings(spec["overrides"], file=spec["settings"], app=app)
    set_up_logging(settings.app, file=spec["log_config"], process=spec["name"])
    needed = needs_cluster(app, settings, may_embed=not spec["no_embedded"])
    reporter.tell(Report("loaded", needs_cluster=needed, said=code_of(app)))
    answer = lifeline.read_line()
    if answer is None:
        return DONE
    if answer["name_server"]:
        settings = with_name_server(settings, answer["name_server"])
    pause_again(app, settings, answer["paused"])
    # A supervisor may send SIGTERM to every process of the run, beside the parent: that must not cut the drain.
    stop = ProcessStop(settings.app.drain_timeout, cutting=(signal.SIGINT,))
    lifeline.hear = lambda fields: obey(app, settings, fields, reporter.tell)

    async def work() -> int:
        members, number = spec["workers"], spec["number"]
        worker = Worker(app, settings, tell=reporter.tell, members=members, number=number)
        stop.last_words = lambda: reporter.tell(Report("ended", worker.summary, code=FAILED))
        lifeline.watch(stop.request)
        if not await worker.run(stop, exit_when_idle=spec["exit_when_idle"]):
            end_now(stop.last_words)
        reporter.tell(Report("ended", worker.summary))
        return DONE

    return stop.run(work, spec["loop"])


def _broker(spec: Spec, reporter: Reporter, lifeline: Lifeline) -> int:
    from rocketapp.cli.logs import set_up_logging
    from rocketapp.cli.processes.broker import DRAIN_TIMEOUT, serve_broker
    from rocketapp.cli.settings import read_settings

    settings = read_settings(spec["overrides"], file=spec["settings"], code=spec.get("code"))
    set_up_logging(settings.app, file=spec["log_config"], process=spec["name"])
    stop = ProcessStop(DRAIN_TIMEOUT)

    def await_workers() -> None:
        if spec["presence"] is not None:
            select.select([spec["presence"]], [], [], settings.app.drain_timeout + SLACK)

    async def serve() -> int:
        lifeline.watch(stop.request, after=await_workers)
        await serve_broker(
            settings,
            memory=False,
            or_free_port=spec["or_free_port"],
            names=spec["names"],
            stop=stop,
            on_serving=lambda address: reporter.tell(Report("serving", address=address)),
        )
        return DONE

    return stop.run(serve, spec["loop"])
