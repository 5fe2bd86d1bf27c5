"""The parent of several workers: starts them, hears them, starts them again, ends them.

It runs no user code. Workers load the app, tell that they did, and get the address of
their cluster; the embedded broker is started when the first of them needs one. At the
end workers go first and the broker last.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import random
import signal
from collections.abc import Mapping, Sequence
from typing import Any

from rocketapp.cli.child import Child, exit_text
from rocketapp.cli.failure import DONE, FAILED, CommandError
from rocketapp.cli.keeper import STOP_TIMEOUT, BrokerKeeper
from rocketapp.cli.reports import IdleTimer, Report, WorkerReports
from rocketapp.cli.stop import SLACK, Stop
from rocketapp.cli.worker import status_interval
from rocketapp.state.backoff import Backoff

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
        drain_timeout: float,
        exit_when_idle: float | None,
        keeper: BrokerKeeper,
    ) -> None:
        """`spec` is what every worker is told; `keeper` is started when one of them needs a cluster."""
        self._spec = spec
        self._drain_timeout = drain_timeout
        self._exit_when_idle = exit_when_idle
        self._keeper = keeper
        self._cluster: asyncio.Future[str] | None = None
        self._children: dict[int, Child] = {}
        self._workers = workers
        self._started: set[int] = set()
        self._failure: CommandError | None = None
        self.reports = WorkerReports(workers)

    def __repr__(self) -> str:
        return f"<Parent of {len(self._children)}/{self._workers} workers: {self.reports.summary}>"

    async def run(self, stop: Stop) -> int:
        """Until `stop` is requested, a worker cannot be started at all, or all was idle for long enough."""
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(self._keep(number, stop)) for number in range(1, self._workers + 1)]
        tasks.append(loop.create_task(self._await_idle(stop)))
        try:
            await stop.requested.wait()
            code = await self._end_workers(stop)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            stop.allow(STOP_TIMEOUT)
            if self._cluster is not None:
                self._cluster.cancel()
                await asyncio.gather(self._cluster, return_exceptions=True)
            await self._keeper.stop()
        if self._failure is not None:
            raise self._failure
        return code

    async def _keep(self, number: int, stop: Stop) -> None:
        """One worker for as long as the run lasts, in one process after the other."""
        loop = asyncio.get_running_loop()
        backoff = Backoff(FIRST_PAUSE, LONGEST_PAUSE)
        while not stop.requested.is_set():
            child = Child(
                f"worker {number}", {**self._spec, "role": "worker"}, functools.partial(self._hear, number, stop)
            )
            self._children[number] = child
            began = loop.time()
            child.start()
            code = await child.ended()
            self.reports.lost(number)
            if stop.requested.is_set():
                return
            if number not in self._started:
                self._give_up(
                    CommandError(f"worker {number} ended before it was started: {exit_text(code)}", FAILED), stop
                )
                return
            if loop.time() - began > STEADY:
                backoff.reset()
            pause = backoff.next(random.random())
            _log.error("worker %d died (%s); starting it again in %.1f s", number, exit_text(code), pause)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.requested.wait(), pause)

    def _hear(self, number: int, stop: Stop, report: Report) -> None:
        if report.kind == "loaded":
            self._tell_cluster(number, report.needs_cluster, stop)
        elif report.kind == "started":
            self._started.add(number)
            stop.tell()
            _log.info("worker %d started, process %d", number, self._children[number].pid or 0)
        elif report.kind == "failed":
            if number in self._started:
                _log.error("worker %d: %s", number, report.error)
            else:
                self._give_up(CommandError(report.error, report.code), stop)
        else:
            self.reports.heard(number, report, asyncio.get_running_loop().time())

    def _tell_cluster(self, number: int, needed: bool, stop: Stop) -> None:
        child = self._children[number]
        if not needed:
            child.tell({"name_server": ""})
            return
        if self._cluster is None:  # `run` awaits it
            self._cluster = asyncio.ensure_future(self._keeper.start())

        def tell(cluster: asyncio.Future[str]) -> None:
            if cluster.cancelled():
                return
            if (error := cluster.exception()) is not None:
                self._give_up(error if isinstance(error, CommandError) else CommandError(str(error), FAILED), stop)
            else:
                child.tell({"name_server": cluster.result()})

        self._cluster.add_done_callback(tell)

    def _give_up(self, failure: CommandError, stop: Stop) -> None:
        if self._failure is None:
            self._failure = failure
        stop.request("a worker cannot be started")

    async def _await_idle(self, stop: Stop) -> None:
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

    async def _end_workers(self, stop: Stop) -> int:
        """Drain all at once; a second signal is forwarded; who takes longer than it may is killed."""
        children = [child for child in self._children.values() if child.is_alive]
        for child in children:
            child.signal(signal.SIGTERM)
        ends = [asyncio.ensure_future(child.ended()) for child in children]
        cutting = asyncio.ensure_future(stop.cut.wait())
        try:
            if ends:
                await _first_of(ends, cutting, self._drain_timeout + SLACK)
            if stop.cut.is_set():
                for child in children:
                    child.signal(signal.SIGTERM)
                await asyncio.wait(ends or [cutting], timeout=SLACK)
        finally:
            cutting.cancel()
        codes = [await child.await_or_kill(0.0) for child in children]
        clean = all(code in (DONE, -signal.SIGTERM) for code in codes)
        return DONE if clean and not stop.cut.is_set() else FAILED


async def _first_of(ends: Sequence[asyncio.Future[int]], cutting: asyncio.Future[Any], timeout: float) -> None:
    """Until all have ended, or the drain is cut, or the time is over."""
    everybody = asyncio.gather(*ends)
    await asyncio.wait({everybody, cutting}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
