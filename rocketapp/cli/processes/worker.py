"""One worker: an app's lifecycle from start to drain, in this process.

It reports its state in `Report`s: to the run command when that is the worker itself, or to
the parent at the other end of a pipe.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rocketapp.cli.collector import settle
from rocketapp.cli.processes.reports import Report
from rocketapp.clock import SystemClock
from rocketapp.errors import RocketAppError
from rocketapp.model.stats import HandlerStats
from rocketapp.tasks import scope

if TYPE_CHECKING:
    from rocketapp.app.app import RocketApp
    from rocketapp.app.run.lifecycle import Lifecycle
    from rocketapp.app.settings.settings import Settings
    from rocketapp.cli.processes.stop import ProcessStop
    from rocketapp.consumer.crashes import Crashes

_log = logging.getLogger("rocketapp.run")
Tell = Callable[[Report], None]

STATUS_INTERVAL = 1.0
"""Seconds between reports without `--exit-when-idle`."""
JOIN_INTERVAL = 0.2
"""Seconds between looks whether all groups know their queues."""


def status_interval(exit_when_idle: float | None) -> float:
    """Seconds between reports: several of them within the time that idleness must last."""
    return STATUS_INTERVAL if exit_when_idle is None else min(0.5, max(0.05, exit_when_idle / 4))


class Worker:
    """One app in one process."""

    def __init__(
        self,
        app: RocketApp,
        settings: Settings,
        *,
        expected_members: int,
        tell: Tell,
        joined: Callable[[], None],
        plugins: Sequence[object] = (),
        number: int = 1,
    ) -> None:
        """`joined` is called when every group knows its queues. `plugins`: of this run, behind the app's.

        `number`: of this worker among those of the run, from 1.
        """
        from rocketapp.app.run.lifecycle import Lifecycle
        from rocketapp.transport.tcp import dial_tcp

        self._tell, self._joined = tell, joined
        self._crashes = _open_crashes(settings.consumer.crash_dir)
        self._lifecycle: Lifecycle = Lifecycle(
            app,
            settings,
            dial=dial_tcp,
            clock=SystemClock(),
            random=random.Random(),
            expected_members=expected_members,
            crashes=self._crashes,
            plugins=plugins,
            worker=number,
        )

    @property
    def summary(self) -> HandlerStats:
        """What became of the messages so far."""
        return self._lifecycle.counters

    async def run(self, stop: ProcessStop, *, exit_when_idle: float | None, always_report: bool) -> bool:
        """Consume until `stop` is requested, then drain. True when nothing was cut off.

        Raises what the start raised, after undoing the part of it that was done.
        """
        try:
            if await self._start(stop):
                settle()
                stop.tell()
                self._tell(Report("started"))
                await self._await_queues(stop)
                self._joined()
                if always_report or exit_when_idle is not None:
                    await self._report_until(stop, exit_when_idle)
                await stop.requested.wait()
        finally:
            async with scope(*([self._report_drain()] if always_report else [])):
                clean: bool = await self._lifecycle.stop(stop.cut)
            if self._crashes is not None:
                self._crashes.close()
        return clean

    async def _start(self, stop: ProcessStop) -> bool:
        """False when the stop came first: then the start is broken off."""
        async with scope(self._lifecycle.start(), stop.requested.wait()) as (starting, stopping):
            await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not starting.done():
                starting.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await starting
                return False
            await starting
            if not self._lifecycle.subscribes:
                _log.warning("nothing is subscribed, so that no message is handled: a Router needs app.include(router)")
            return True

    async def _await_queues(self, stop: ProcessStop) -> None:
        """Until every group knows its queues: where no broker is reached, that may take for ever."""
        while not stop.requested.is_set():
            if all(group.has_assigned for group in self._lifecycle.snapshot().groups):
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.requested.wait(), JOIN_INTERVAL)

    async def _report_until(self, stop: ProcessStop, exit_when_idle: float | None) -> None:
        interval = status_interval(exit_when_idle)
        while not stop.requested.is_set():
            self._tell(await self._status(look=exit_when_idle is not None))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.requested.wait(), interval)

    async def _report_drain(self) -> None:
        """A drain may take longer than a watchdog waits for a sign of life."""
        while True:
            self._tell(Report("status", self.summary, reasons=("it drains",)))
            await asyncio.sleep(STATUS_INTERVAL)

    async def _status(self, *, look: bool) -> Report:
        """Counters; and with `look`, at the price of questions to brokers, whether there is anything left to do."""
        if not look:
            return Report("status", self.summary)
        try:
            idle = await self._lifecycle.idle()
        except RocketAppError as error:
            return Report("status", self.summary, reasons=(str(error),))
        return Report(
            "status",
            self.summary,
            owned=frozenset(map(str, idle.owned)),
            wanted=frozenset(map(str, idle.wanted)),
            reasons=tuple(idle.reasons),
        )


def _open_crashes(directory: str) -> Crashes | None:
    """Where this process notes down what it has in hand."""
    from rocketapp.consumer.crashes import Crashes

    if not directory:
        return None
    try:
        return Crashes(Path(directory), now=SystemClock().now, tell=_log.warning)
    except OSError as error:
        problem = (error.strerror or str(error)).lower()
        _log.warning("%s: %s: messages that end the process are not found (consumer.crash_dir)", directory, problem)
        return None
