"""The parent of several workers: starts them, hears them, starts them again, ends them.

It runs no user code. Workers load the app, tell that they did, and get the address of
their cluster; the embedded broker is started when the first of them needs one. At the
end workers go first and the broker last.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import random
import signal
from collections.abc import Mapping, Sequence
from typing import Any

from rocketapp.cli.failure import DONE, FAILED, CommandError
from rocketapp.cli.logs import log_failure
from rocketapp.cli.processes.child import Child, exit_text
from rocketapp.cli.processes.edits import Edits
from rocketapp.cli.processes.parts import ParentParts
from rocketapp.cli.processes.presence import Presence
from rocketapp.cli.processes.reports import IdleTimer, Report, WorkerReports
from rocketapp.cli.processes.service_manager import ServiceManager, Silence
from rocketapp.cli.processes.stop import SLACK, STOP_TIMEOUT, ProcessStop
from rocketapp.cli.processes.worker import status_interval
from rocketapp.state.backoff import Backoff
from rocketapp.tasks import Tasks, scope

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
"""Seconds before a worker that died is started again, doubled each time."""
STEADY = 60.0
"""Seconds after which a worker counts as running: its next death is a first one again."""

_log = logging.getLogger("rocketapp.run")


class Parent:
    """Of `workers` processes; `run` returns the exit code."""

    def __init__(
        self,
        spec: Mapping[str, Any],
        *,
        workers: int,
        exit_when_idle: float | None,
        parts: ParentParts,
        presence: Presence,
        edits: Edits | None = None,
        manager: ServiceManager | None = None,
    ) -> None:
        """`spec` is what every worker is told; an embedded broker is started when one of them needs a cluster.

        `edits`: start workers again when their sources change.
        `manager` hears when all workers consume, and ends none of them when it is None.
        """
        self._spec = {**spec, "role": "worker", "presence": presence.writing}
        self._presence = presence
        self._exit_when_idle = exit_when_idle
        self._parts = parts
        self._edits = edits
        self._manager = manager or ServiceManager()
        self._silence = Silence()
        self._cluster: asyncio.Future[str] | None = None
        self._tasks = Tasks(log_failure)
        # Of the task that starts the cluster: `_tell_cluster` hears how it ended, and workers end before it.
        self._keeping = Tasks()
        self._children: dict[int, Child] = {}
        self._workers = workers
        self._started: set[int] = set()
        self._joined: set[int] = set()
        self._failure: CommandError | None = None
        self.reports: WorkerReports = WorkerReports(workers)

    def __repr__(self) -> str:
        return f"<Parent of {len(self._children)}/{self._workers} workers: {self.reports.summary}>"

    async def run(self, stop: ProcessStop) -> int:
        """Until `stop` is requested, a worker cannot be started at all, or all was idle for long enough."""
        for number in range(1, self._workers + 1):
            self._tasks.start(self._keep(number, stop), f"worker {number}")
        self._tasks.start(self._await_idle(stop), "idleness")
        self._tasks.start(self._manager.keep_alive(lambda: self._end_silent(stop)), "watchdog")
        if self._edits is not None:
            self._tasks.start(self._edits.follow(self._children.values), "edits")
        try:
            await stop.requested.wait()
            code = await self._end_workers(stop)
        finally:
            await self._tasks.close()
            stop.allow(STOP_TIMEOUT)
            await self._keeping.close()
            await self._parts.keeper.stop()
        if self._failure is not None:
            raise self._failure
        return code

    async def _keep(self, number: int, stop: ProcessStop) -> None:
        """One worker for as long as the run lasts, in one process after the other."""
        loop = asyncio.get_running_loop()
        backoff = Backoff(FIRST_PAUSE, LONGEST_PAUSE)
        while not stop.requested.is_set():
            hear = functools.partial(self._hear, number, stop)
            child = Child(
                f"worker {number}", self._spec | {"number": number}, hear, descriptors=[self._presence.writing]
            )
            began, edits = loop.time(), self._edits.count if self._edits is not None else 0
            try:
                child.start()
            except OSError as error:
                problem = f"worker {number} cannot be started: {(error.strerror or str(error)).lower()}"
                if number not in self._started and self._edits is None:
                    self._give_up(CommandError(problem, FAILED), stop)
                    return
                pause = backoff.next(random.random())
                _log.error("%s; trying again in %.1f s", problem, pause)
                await self._pause(pause, stop)
                continue
            self._children[number] = child
            code = await child.ended()
            self.reports.lost(number)
            if self._parts.desk is not None:
                self._parts.desk.lost(number)
            if stop.requested.is_set():
                return
            if self._edits and await self._edits.again(child, edits, was_started=number in self._started):
                self._started.discard(number)
                continue
            if number not in self._started:
                self._give_up(
                    CommandError(f"worker {number} ended before it was started: {exit_text(code)}", FAILED), stop
                )
                return
            if loop.time() - began > STEADY:
                backoff.reset()
            pause = backoff.next(random.random())
            if code == 0:
                # It received a signal and drained: nothing is lost, and nothing is wrong.
                _log.warning("worker %d ended before the others; starting it again in %.1f s", number, pause)
            else:
                _log.error("worker %d died (%s); starting it again in %.1f s", number, exit_text(code), pause)
            await self._pause(pause, stop)

    async def _pause(self, seconds: float, stop: ProcessStop) -> None:
        """Less at the end of the run, and at an edit: it may mend what the worker died of."""
        news = [stop.requested.wait(), *([] if self._edits is None else [self._edits.next()])]
        async with scope(*news) as waiting:
            await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)

    def _hear(self, number: int, stop: ProcessStop, report: Report) -> None:
        if report.kind == "loaded":
            self._loaded(number, report, stop)
        elif report.kind == "started":
            self._started.add(number)
            stop.tell()
            _log.info("worker %d started, process %d", number, self._children[number].pid or 0)
        elif report.kind == "joined":
            self._joined.add(number)
            if len(self._joined) == self._workers:
                self._manager.ready(self._workers)
        elif report.kind == "failed":
            if number in self._started or self._edits is not None:
                _log.error("worker %d: %s", number, report.error)
            else:
                self._give_up(CommandError(report.error, report.code), stop)
        elif report.kind in ("view", "blocked", "described"):
            if self._parts.desk is not None:
                self._parts.desk.hear(number, report)
        else:
            self.reports.heard(number, report, asyncio.get_running_loop().time())

    def _loaded(self, number: int, report: Report, stop: ProcessStop) -> None:
        try:
            self._parts.adopt(report.said, is_first=self._cluster is None)
        except CommandError as error:
            self._give_up(error, stop)
            return
        if self._parts.desk is not None:
            self._parts.desk.tell = lambda number, fields: self._children[number].tell(fields)
        self._tell_cluster(number, report.needs_cluster, stop)

    def _tell_cluster(self, number: int, needed: bool, stop: ProcessStop) -> None:
        child = self._children[number]
        if not needed:
            child.tell({"name_server": "", "paused": self._paused_for(number)})
            return
        if self._cluster is None:
            self._cluster = self._keeping.start(self._parts.keeper.start(), "cluster")

        def tell(cluster: asyncio.Future[str]) -> None:
            if cluster.cancelled():
                return
            if (error := cluster.exception()) is not None:
                self._give_up(error if isinstance(error, CommandError) else CommandError(str(error), FAILED), stop)
            elif child.is_alive:  # otherwise the process after it asks for itself
                child.tell({"name_server": cluster.result(), "paused": self._paused_for(number)})

        self._cluster.add_done_callback(tell)

    def _paused_for(self, number: int) -> list[tuple[str, str]]:
        """A process that replaces another one knows nothing of what was paused before it."""
        return [] if self._parts.desk is None else self._parts.desk.greet(number)

    def _give_up(self, failure: CommandError, stop: ProcessStop) -> None:
        if self._failure is None:
            self._failure = failure
        stop.request("a worker cannot be started")

    async def _await_idle(self, stop: ProcessStop) -> None:
        if self._exit_when_idle is None:
            return
        loop = asyncio.get_running_loop()
        timer = IdleTimer()
        interval = status_interval(self._exit_when_idle)
        while not stop.requested.is_set():
            await asyncio.sleep(interval)
            idle = not self.reports.busy_because(loop.time())
            if timer.observe(loop.time(), idle=idle, summary=self.reports.summary) >= self._exit_when_idle:
                stop.request(f"idle for {self._exit_when_idle:g} s")

    def _end_silent(self, stop: ProcessStop) -> None:
        """End workers that have reported nothing for as long as the watchdog allows; their keepers start them again."""
        silent = self._silence.look(self.reports.heard_at)
        for number in [] if stop.requested.is_set() else silent:
            limit = self._manager.watchdog or 0.0
            _log.error("worker %d has not reported for %g s: the watchdog ends it", number, limit)
            self._children[number].signal(signal.SIGKILL)

    async def _end_workers(self, stop: ProcessStop) -> int:
        """Drain all at once; forward a second signal; kill a worker that takes longer than its limit."""
        children = [child for child in self._children.values() if child.is_alive]
        for child in children:
            child.signal(signal.SIGTERM)
        async with scope(_all_ended(children), stop.cut.wait()) as (ended, cutting):
            limit = self._parts.drain_timeout + SLACK
            await asyncio.wait({ended, cutting}, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
            if stop.cut.is_set():
                for child in children:
                    child.signal(signal.SIGINT)
                await asyncio.wait({ended}, timeout=SLACK)
        clean = True
        for child in children:
            code = await child.await_or_kill(0.0)
            if code not in (DONE, -signal.SIGTERM):
                clean = False
                if self._failure is None:
                    _log.error("%s was cut off (%s)", child.name, exit_text(code))
        return DONE if clean and not stop.cut.is_set() else FAILED


async def _all_ended(children: Sequence[Child]) -> None:
    await asyncio.gather(*(child.ended() for child in children))
