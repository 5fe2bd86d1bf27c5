"""The main function of a child process of `rocketapp run`: a worker or the embedded broker."""

from __future__ import annotations

import json
import os
import queue
import select
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from rocketapp.cli.failure import DONE, FAILED, exit_code
from rocketapp.cli.processes.pipe import Pipe
from rocketapp.cli.processes.reports import Report
from rocketapp.cli.processes.stop import PATIENCE, SLACK, ProcessStop, end_now, leave
from rocketapp.cli.runtime import collect_rarely, open_streams
from rocketapp.errors import RocketAppError

Spec = Mapping[str, Any]
LOST = "the parent process is gone"


def main(spec: Spec) -> None:
    """Run as `spec["role"]` says; ends the process."""
    collect_rarely()
    open_streams()
    if spec.get("is_edited"):
        # Python tells a compiled file that is outdated by the second and the size of its source: an edit may keep both.
        sys.dont_write_bytecode = True
    lifeline = Lifeline(spec)
    try:
        code = (_worker if spec["role"] == "worker" else _broker)(spec, lifeline)
    except RocketAppError as error:
        if spec["traceback"]:
            traceback.print_exception(error.__cause__ or error, file=sys.stderr)
        code = exit_code(error)
        lifeline.tell(Report("failed", error=str(error), code=code))
    leave(code)


class Lifeline:
    """The child's end of the pipe: receives messages of the parent, sends reports, and notices that the parent is gone.

    Before `follow`, messages are kept, and the end of the pipe ends this process: nothing is in flight yet, and what it
    is busy with, the import of an app, may never end by itself.
    """

    def __init__(self, spec: Spec) -> None:
        # What user code starts must not hold the pipe open.
        os.set_inheritable(spec["pipe"], False)
        self._pipe = Pipe(socket.socket(fileno=spec["pipe"]))
        self._parent: int = spec["parent"]
        self._early: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._hear: Callable[[bytes], None] = self._early.put
        self._lose: Callable[[], None] = lambda: os._exit(FAILED)
        threading.Thread(target=self._listen, name="rocketapp-lifeline", daemon=True).start()

    def tell(self, report: Report) -> None:
        """Send a report, from any thread. Statuses and views are dropped while the parent does not read."""
        self._pipe.tell(report.encode(), may_skip=report.kind in ("status", "view"))
        if report.kind in ("failed", "ended"):
            self._pipe.flush(PATIENCE)

    def next_words(self) -> dict[str, Any]:
        """Wait for the next message of the parent; only before `follow`."""
        fields: dict[str, Any] = json.loads(self._early.get())
        return fields

    def follow(self, lose: Callable[[], None], hear: Callable[[Mapping[str, Any]], None] = lambda fields: None) -> None:
        """Call `hear` with each message of the parent, and `lose` once when the parent is gone.

        Both are called in a thread of their own, because a handler may block the loop.
        """
        with self._lock:
            self._hear, self._lose = lambda line: hear(json.loads(line)), lose
            while not self._early.empty():
                self._hear(self._early.get())

    def _listen(self) -> None:
        self._pipe.listen(self._heard, lambda: os.getppid() == self._parent)
        with self._lock:
            lose = self._lose
        lose()

    def _heard(self, line: bytes) -> None:
        with self._lock:
            self._hear(line)


def _worker(spec: Spec, lifeline: Lifeline) -> int:
    from rocketapp.app.settings import with_name_server
    from rocketapp.cli.loader import load_app
    from rocketapp.cli.logs import set_up_logging
    from rocketapp.cli.processes.worker import Worker, obey, pause_again
    from rocketapp.cli.settings import code_of, needs_cluster, read_settings

    # What user code starts does not count as a worker.
    os.set_inheritable(spec["presence"], False)
    app = load_app(spec["app"])
    settings = read_settings(spec["overrides"], file=spec["settings"], app=app)
    set_up_logging(settings.app, file=spec["log_config"], process=spec["name"])
    needed = needs_cluster(app, settings, may_embed=not spec["no_embedded"])
    lifeline.tell(Report("loaded", needs_cluster=needed, said=code_of(app)))
    answer = lifeline.next_words()
    if answer["name_server"]:
        settings = with_name_server(settings, answer["name_server"])
    pause_again(app, settings, answer["paused"])
    # A supervisor may send SIGTERM to every process of the app, beside the parent: that must not cut the drain.
    stop = ProcessStop(settings.app.drain_timeout, cutting=(signal.SIGINT,))

    async def work() -> int:
        members, number = spec["workers"], spec["number"]
        worker = Worker(app, settings, tell=lifeline.tell, members=members, number=number)
        stop.last_words = lambda: lifeline.tell(Report("ended", worker.summary, code=FAILED))
        lifeline.follow(lambda: stop.request(LOST), lambda fields: obey(app, settings, fields, lifeline.tell))
        if not await worker.run(stop, exit_when_idle=spec["exit_when_idle"]):
            end_now(stop.last_words)
        lifeline.tell(Report("ended", worker.summary))
        return DONE

    return stop.run(work, spec["loop"])


def _broker(spec: Spec, lifeline: Lifeline) -> int:
    from rocketapp.cli.logs import set_up_logging
    from rocketapp.cli.processes.broker import DRAIN_TIMEOUT, LOOK_INTERVAL, serve_broker
    from rocketapp.cli.settings import read_settings

    settings = read_settings(spec["overrides"], file=spec["settings"], code=spec.get("code"))
    set_up_logging(settings.app, file=spec["log_config"], process=spec["name"])
    stop = ProcessStop(DRAIN_TIMEOUT)

    def end_after_workers() -> None:
        if spec["presence"] is not None:
            select.select([spec["presence"]], [], [], settings.app.drain_timeout + SLACK)
        stop.request(LOST)

    serving = threading.Event()

    def tell_start() -> None:
        """Opening a store may take long, and keeps the loop from all else: after a crash its log is searched."""
        while not serving.wait(LOOK_INTERVAL):
            lifeline.tell(Report("starting", worked=time.process_time()))

    def tell_serving(address: str) -> None:
        serving.set()
        lifeline.tell(Report("serving", address=address))

    async def serve() -> int:
        lifeline.follow(end_after_workers)
        threading.Thread(target=tell_start, name="rocketapp-starting", daemon=True).start()
        await serve_broker(
            settings,
            memory=False,
            or_free_port=spec["or_free_port"],
            names=spec["names"],
            stop=stop,
            on_serving=tell_serving,
        )
        return DONE

    return stop.run(serve, spec["loop"])
