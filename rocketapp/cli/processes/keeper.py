"""Keeps an embedded broker there for as long as `rocketapp run` needs one.

Joins the one that serves the directory, or starts one as a child process. When that
one is gone before the run is over - it died, or the run it belonged to has ended - a
new one is started at the same address, so that its clients
notice an outage and nothing else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rocketapp.app.settings.file import DEVELOPMENT
from rocketapp.cli.failure import CommandError
from rocketapp.cli.logs import log_failure
from rocketapp.cli.processes.broker import names_of, parse_listen
from rocketapp.cli.processes.child import Child, exit_text
from rocketapp.cli.processes.reports import Report
from rocketapp.cli.processes.stop import STOP_TIMEOUT
from rocketapp.embedded.running import ServingBroker, find_serving, is_alive
from rocketapp.state.backoff import Backoff
from rocketapp.tasks import Tasks, scope

if TYPE_CHECKING:
    from rocketapp.app.settings.settings import Settings

WATCH_INTERVAL = 0.5
"""Seconds between looks at a broker that is not our child."""
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 30.0
"""Seconds between attempts to start a broker that was lost, doubled each time."""
STEADY = 5.0
"""Seconds after which a broker counts as running: it is then started again at once."""

_log = logging.getLogger("rocketapp.run")


class BrokerKeeper:
    """The broker of one directory; `address` is where it serves once `start` returned."""

    def __init__(self, settings: Settings, spec: Mapping[str, Any], *, presence: int | None = None) -> None:
        """`spec` is what every child is told; outside of development the use of an embedded broker is a warning.

        `presence`: the reading end of the workers' `Presence`, where the broker serves several. Nothing is started
        yet. Raises CommandError for an address that cannot be used.
        """
        self.address: str = ""
        self._directory = Path(settings.broker.dir)
        self._listen = settings.broker.listen
        # An address that the user chose is meant; the usual one is a suggestion.
        self._or_free_port = settings.source_of("broker", "listen") == "default"
        names = names_of(settings, dir="--embedded", listen="broker.listen")
        parse_listen(self._listen, names["listen"])
        self._spec = {**spec, "role": "broker", "names": names, "presence": presence}
        self._timeout = settings.app.connect_timeout
        self._presence = presence
        is_development = settings.environment == DEVELOPMENT
        self._level = logging.INFO if is_development else logging.WARNING
        self._why = "" if is_development else f"no cluster is used in environment {settings.environment}: "
        self._child: Child | None = None
        self._joined: ServingBroker | None = None
        self._heard: asyncio.Future[Report] | None = None
        self._tasks = Tasks(log_failure)

    def __repr__(self) -> str:
        how = f"child {self._child.pid}" if self._child else f"joined {self._joined.pid}" if self._joined else "none"
        return f"<BrokerKeeper {self._directory} at {self.address or '?'}: {how}>"

    async def start(self) -> str:
        """Its address. Raises CommandError when none can be joined and none can be started."""
        problem = await self._join_or_launch()
        if problem is not None:
            raise CommandError(problem)
        self._tasks.start(self._keep(), "embedded broker")
        return self.address

    async def stop(self) -> None:
        """End the broker if it is ours; one that was joined goes on."""
        await self._tasks.close()
        if self._child is not None:
            await self._child.stop(timeout=STOP_TIMEOUT)
            self._child = None

    async def _join_or_launch(self) -> str | None:
        """None when one serves now, otherwise why not."""
        if await self._join():
            return None
        problem = await self._launch()
        # Two runs may have started at once: one of them has the directory, the other joins it.
        if problem is not None and await self._join():
            return None
        return problem

    async def _join(self) -> bool:
        running = await find_serving(self._directory)
        if running is None or (self.address and running.address != self.address):
            return False
        self.address, self._joined = running.address, running
        text = "%sjoined the embedded broker at %s, process %d"
        _log.log(self._level, text, self._why, running.address, running.pid)
        return True

    async def _launch(self) -> str | None:
        self._heard = asyncio.get_running_loop().create_future()
        own = {"dir": str(self._directory), "listen": self.address or self._listen}
        overrides = {**self._spec["overrides"], "broker": own}
        spec = {**self._spec, "overrides": overrides, "or_free_port": self._or_free_port and not self.address}
        descriptors = () if self._presence is None else (self._presence,)
        child = Child("broker", spec, self._hear, descriptors=descriptors)
        try:
            child.start()
        except OSError as error:
            return f"{self._directory}: the embedded broker cannot be started: {(error.strerror or str(error)).lower()}"
        # Ours from this moment on, so that stop() ends it even when the start is broken off.
        self._child = child
        async with scope(child.ended()) as (ended,):
            either: set[asyncio.Future[Any]] = {self._heard, ended}
            await asyncio.wait(either, timeout=self._timeout, return_when=asyncio.FIRST_COMPLETED)
        report = self._heard.result() if self._heard.done() else None
        if report is not None and report.kind == "serving":
            self.address, self._joined = report.address, None
            text = "%sembedded broker serves on %s, its messages are in %s"
            _log.log(self._level, text, self._why, report.address, self._directory)
            return None
        code = await child.stop(timeout=STOP_TIMEOUT)
        self._child = None
        if report is not None:
            return report.error
        return f"{self._directory}: the embedded broker did not serve within {self._timeout:g} s ({exit_text(code)})"

    def _hear(self, report: Report) -> None:
        if self._heard is not None and not self._heard.done() and report.kind in ("serving", "failed"):
            self._heard.set_result(report)

    async def _keep(self) -> None:
        now, pause = asyncio.get_running_loop().time, 0.0
        backoff = Backoff(FIRST_PAUSE, LONGEST_PAUSE)
        while True:
            began = now()
            await self._await_loss()
            served = now() - began
            if served >= STEADY:
                backoff.reset()
            elif pause:
                _log.error("embedded broker: it served for %.1f s; starting it in %g s", served, pause)
                await asyncio.sleep(pause)
            pause = backoff.next(0.0)
            while (problem := await self._join_or_launch()) is not None:
                _log.error("embedded broker: %s; trying again in %g s", problem, pause)
                await asyncio.sleep(pause)
                pause = backoff.next(0.0)

    async def _await_loss(self) -> None:
        if self._child is not None:
            code = await self._child.ended()
            self._child = None
            _log.error("the embedded broker died (%s); starting it again", exit_text(code))
            return
        while self._joined is not None:
            await asyncio.sleep(WATCH_INTERVAL)
            if not is_alive(self._joined.pid):
                self._joined = None
                _log.warning("the embedded broker that was joined is gone; starting one")
