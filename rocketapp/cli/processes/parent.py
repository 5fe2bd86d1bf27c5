"""The parent of several workers: starts them, hears them, starts them again, ends them.

It runs no user code. Workers load the app, tell that they did, and get the address of
their cluster; the embedded broker is started when the first of them needs one. At the
end workers go first and the broker last. What `RocketApp(settings=...)` says is told by
a worker, and settings are read again with it.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import random
import signal
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rocketapp.cli.failure import DONE, FAILED, CommandError, describe, problem_of
from rocketapp.cli.logs import log_failure, set_up_logging
from rocketapp.cli.processes.child import Child, exit_text
from rocketapp.cli.processes.reload import Watched
from rocketapp.cli.processes.reports import Report
from rocketapp.cli.processes.run import Run
from rocketapp.cli.processes.service_manager import SilentWorkers, keep_alive, watchdog_of
from rocketapp.cli.processes.stop import SLACK, STOP_TIMEOUT, ProcessStop
from rocketapp.cli.settings import read_settings
from rocketapp.errors import RocketAppError
from rocketapp.model.snapshot import HandlerStats
from rocketapp.state.backoff import Backoff
from rocketapp.tasks import Tasks, scope

if TYPE_CHECKING:
    from rocketapp.app.settings import Settings

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
"""Seconds before a worker that died is started again, doubled each time."""
STEADY = 60.0
"""Seconds after which a worker counts as running: its next death is a first one again."""

_log = logging.getLogger("rocketapp.run")


class Parent:
    """Runs the workers of one app until it is told to stop."""

    def __init__(
        self, spec: Mapping[str, Any], settings: Settings, stop: ProcessStop, *, watched: Watched | None = None
    ) -> None:
        """`spec` is what every child is told, the number of workers among it.

        `watched`: start workers again when these files change. Raises CommandError for an address that cannot be used.
        """
        self._presence = os.pipe()
        """Each worker holds the writing end, and writes nothing: an embedded broker reads the end of this pipe when the
        parent and every worker are gone, however they ended. Until then workers that drain commit."""
        reading, writing = self._presence
        self._spec = {**spec, "role": "worker", "presence": writing, "is_edited": watched is not None}
        self._stop = stop
        self._watched = watched
        self._edits = 0
        self._edited = asyncio.Event()
        self._silence = SilentWorkers()
        self._tasks = Tasks(log_failure)
        self._children: dict[int, Child] = {}
        self._started: set[int] = set()
        self._failure: RocketAppError | None = None
        self._told: dict[str, Any] = {}
        """What a worker last told of its app."""
        names = {number: f"worker {number}" for number in range(1, spec["workers"] + 1)}
        self._run = Run(spec, settings, stop, names, self._ask, presence=reading)
        self._use(settings)

    def __repr__(self) -> str:
        return f"<Parent of {len(self._children)}/{self._spec['workers']} workers: {self.summary}>"

    @property
    def summary(self) -> HandlerStats:
        """The message counters of all workers so far."""
        return self._run.reports.summary

    async def run(self) -> int:
        """Run until a stop is requested, no worker can be started, or all have been idle for long enough.

        Returns the exit code.
        """
        for number in range(1, self._spec["workers"] + 1):
            self._tasks.start(self._keep(number), f"worker {number}")
        self._tasks.start(keep_alive(self._end_silent), "watchdog")
        if self._watched is not None:
            self._tasks.start(self._follow(self._watched), "edits")
        try:
            await self._stop.requested.wait()
            code = await self._end_workers()
        finally:
            await self._tasks.close()
            self._stop.allow(STOP_TIMEOUT)
            await self._run.close()
            for end in self._presence:
                os.close(end)
        if self._failure is not None:
            raise self._failure
        return code

    def adopt(self, told: dict[str, Any]) -> None:
        """Take over settings that the app has in code, as a worker reports them. Raises CommandError."""
        if told == self._told:
            return
        self._told, settings = told, self._settings
        if told["settings"]:
            settings = read_settings(self._spec["overrides"], file=self._spec["settings"], code=told)
            set_up_logging(settings.app, file=self._spec["log_config"])
            if (wanted := settings.app.workers) != self._spec["workers"]:
                text = "app.workers is %d in the code, which --reload does not load before: give --workers %d"
                _log.warning(text, wanted, wanted)
        self._use(settings, told)

    def _use(self, settings: Settings, told: dict[str, Any] | None = None) -> None:
        self._settings = settings
        self.drain_timeout: float = settings.app.drain_timeout
        # Workers watch their own drain; the parent is watched for the case that it cannot end them.
        self._stop.drain_timeout = self.drain_timeout + 2 * SLACK
        self._run.use_settings(settings, told)

    def _ask(self, number: int, fields: Mapping[str, str]) -> None:
        self._children[number].tell(fields)

    async def _keep(self, number: int) -> None:
        """Keep one worker running until the app ends: start it, wait for its end, start it again."""
        loop = asyncio.get_running_loop()
        backoff = Backoff(FIRST_PAUSE, LONGEST_PAUSE)
        hear = functools.partial(self._hear, number)
        while not self._stop.requested.is_set():
            began, edits = loop.time(), self._edits
            name, spec, descriptors = f"worker {number}", {**self._spec, "number": number}, [self._spec["presence"]]
            try:
                child = Child(name, spec, hear, descriptors=descriptors)
            except OSError as error:
                problem = f"worker {number} cannot be started: {problem_of(error)}"
                if number not in self._started and self._watched is None:
                    self._give_up(CommandError(problem, FAILED))
                    return
                pause = backoff.next(random.random())
                _log.error("%s; trying again in %.1f s", problem, pause)
                await self._pause(pause)
                continue
            self._children[number] = child
            code = await child.ended()
            self._run.lost(number)
            if self._stop.requested.is_set():
                return
            was_started = number in self._started
            if self._watched is not None and not was_started and self._edits == edits:
                _log.info("%s could not be started (%s): waiting for the next edit", child.name, exit_text(code))
                await self._edited.wait()
            if self._edits > edits:
                self._started.discard(number)
                continue
            if not was_started:
                problem = f"worker {number} ended before it was started: {exit_text(code)}"
                self._give_up(CommandError(problem, FAILED))
                return
            if loop.time() - began > STEADY:
                backoff.reset()
            pause = backoff.next(random.random())
            if code == 0:
                # It received a signal and drained: nothing is lost, and nothing is wrong.
                _log.warning("worker %d ended before the others; starting it again in %.1f s", number, pause)
            else:
                _log.error("worker %d died (%s); starting it again in %.1f s", number, exit_text(code), pause)
            await self._pause(pause)

    async def _pause(self, seconds: float) -> None:
        """Wait, but not past the end of the app, nor past an edit, which may fix what the worker died of."""
        async with scope(self._stop.requested.wait(), self._edited.wait()) as waiting:
            await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)

    async def _follow(self, watched: Watched) -> None:
        """Restart workers at each edit: they drain first, and are killed when that takes too long."""
        # A second SIGTERM would cut the drain, and that is what the end of the app sends. SIGHUP may be ignored.
        drain = signal.SIGTERM if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN else signal.SIGHUP
        async for files in watched.edits():
            _log.info("%s: starting again", files)
            self._edits += 1
            self._edited.set()
            self._edited = asyncio.Event()
            ending = [child for child in self._children.values() if child.is_alive]
            for child in ending:
                child.signal(drain)
            await asyncio.gather(*(child.await_or_kill(self.drain_timeout + SLACK) for child in ending))

    def _hear(self, number: int, report: Report) -> None:
        if report.kind == "loaded":
            self._tasks.start(self._greet(number, report), f"greeting of worker {number}")
        elif report.kind == "failed":
            self._failed(number, report)
        else:
            if report.kind == "started":
                self._started.add(number)
                self._stop.tell()
            self._run.hear(number, report)

    def _failed(self, number: int, report: Report) -> None:
        if number in self._started or self._watched is not None:
            _log.error("worker %d: %s", number, report.error)
        else:
            self._give_up(CommandError(report.error, report.code))

    async def _greet(self, number: int, report: Report) -> None:
        """Answer a worker that has loaded its app: the address of the cluster, and what is paused."""
        child = self._children[number]
        try:
            self.adopt(report.said)
            address = await self._run.cluster() if report.needs_cluster else ""
        except Exception as error:
            self._give_up(error if isinstance(error, RocketAppError) else CommandError(describe(error), FAILED))
            return
        # Otherwise the process after it asks for itself: that one knows nothing of what was paused before it.
        if child.is_alive and self._failure is None:
            child.tell({"name_server": address, "paused": self._run.greet(number)})

    def _give_up(self, failure: RocketAppError) -> None:
        if self._failure is None:
            self._failure = failure
        self._stop.request("a worker cannot be started")

    def _end_silent(self) -> None:
        """Kill workers that have not reported within the watchdog time; they are started again."""
        silent = self._silence.look(self._run.reports.heard_at)
        for number in [] if self._stop.requested.is_set() else silent:
            limit = watchdog_of(os.environ) or 0.0
            _log.error("worker %d has not reported for %g s: the watchdog ends it", number, limit)
            self._children[number].signal(signal.SIGKILL)

    async def _end_workers(self) -> int:
        """Drain all workers at once; forward a second signal; kill a worker that exceeds its limit.

        Returns the exit code.
        """
        children = [child for child in self._children.values() if child.is_alive]
        for child in children:
            child.signal(signal.SIGTERM)
        async with scope(_all_ended(children), self._stop.cut.wait()) as (ended, cutting):
            limit = self.drain_timeout + SLACK
            await asyncio.wait({ended, cutting}, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
            if self._stop.cut.is_set():
                for child in children:
                    child.signal(signal.SIGINT)
                await asyncio.wait({ended}, timeout=SLACK)
        clean = True
        for child in children:
            code = await child.await_or_kill(0.0)
            if code not in (DONE, -signal.SIGTERM):
                clean = False
                if self._failure is None:
                    _log.error("%s did not end cleanly (%s)", child.name, exit_text(code))
        return DONE if clean and not self._stop.cut.is_set() else FAILED


async def _all_ended(children: Sequence[Child]) -> None:
    await asyncio.gather(*(child.ended() for child in children))
