"""What `rocketapp run` has once, whether its worker is this process or there are several worker processes.

It receives the workers' reports, keeps the embedded broker, serves `--http` and notifies systemd. Nothing for `--http`
is imported without that option.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rocketapp.app.settings import DEVELOPMENT, Settings
from rocketapp.cli.failure import CommandError, problem_of
from rocketapp.cli.processes import service_manager
from rocketapp.cli.processes.reports import Report, WorkerReports
from rocketapp.cli.processes.stop import SLACK, STOP_TIMEOUT, ProcessStop
from rocketapp.model.event import LoopBlocked

if TYPE_CHECKING:
    from rocketapp.cli.processes.broker import BrokerKeeper
    from rocketapp.operate.app_console import AppConsole, Ask
    from rocketapp.operate.server import OperatorServer

_log = logging.getLogger("rocketapp.run")


class Run:
    """One `rocketapp run` without its workers."""

    def __init__(
        self,
        spec: Mapping[str, Any],
        settings: Settings,
        stop: ProcessStop,
        names: Mapping[int, str],
        ask: Ask,
        *,
        code: Mapping[str, Any] | None = None,
        presence: int | None = None,
    ) -> None:
        """`spec` is what every child is told; `names`: of the workers, by number, empty for an only one.

        `ask` asks a worker for something; `code`: what an app that is in this process was made with; `presence`: the
        reading end of the pipe that the workers hold. Raises CommandError for an address of `--http` that is taken.
        """
        self.reports: WorkerReports = WorkerReports(len(names))
        self._spec, self._stop, self._names, self._ask, self._presence = spec, stop, names, ask, presence
        self._joined: set[int] = set()
        self._keeper: BrokerKeeper | None = None
        self._looking = asyncio.Lock()
        self._console: AppConsole | None = None
        self._server: OperatorServer | None = None
        service_manager.starting(settings.app.connect_timeout)
        limit = 2 * SLACK + STOP_TIMEOUT
        stop.drains = lambda reason: service_manager.draining(reason, stop.drain_timeout + limit)
        self.use_settings(settings, code)

    def use_settings(self, settings: Settings, code: Mapping[str, Any] | None) -> None:
        """Use these settings for parts that are not started yet. Raises CommandError as the constructor does."""
        self._settings, self._code = settings, code
        if settings.app.http and self._server is None:
            self._serve(settings.app.http, settings.source_of("app", "http"))

    def _serve(self, address: str, source: str) -> None:
        from rocketapp.operate.app_console import AppConsole
        from rocketapp.operate.app_requests import answering
        from rocketapp.operate.server import OperatorServer

        app = self._code["app"] if self._code is not None else self._spec["app"]
        patience, draining = self._settings.app.ready_patience, self._stop.requested
        may_try = self._settings.environment == DEVELOPMENT
        self._console = AppConsole(
            app, self._names, patience=patience, draining=draining, ask=self._ask, may_try=may_try
        )
        name = "--http" if source == "command line" else f"{source}: app.http"
        try:
            self._server = OperatorServer(address, answering(self._console))
            served = self._server.start()
        except ValueError as error:
            raise CommandError(f"{name} {address}: {error}") from error
        except OSError as error:
            text = f"{name} {address}: {problem_of(error)}: choose another address or port"
            raise CommandError(text) from error
        _log.info("http://%s tells how the app does", served)

    async def cluster(self) -> str:
        """The address of the embedded broker, joined or started by the first call. Raises CommandError."""
        from rocketapp.cli.processes.broker import BrokerKeeper

        async with self._looking:
            if self._keeper is None:
                spec = {**self._spec, "code": self._code}
                self._keeper = BrokerKeeper(self._settings, spec, presence=self._presence)
                await self._keeper.start()
        return self._keeper.address

    def greet(self, number: int) -> list[tuple[str, str]]:
        """The paused topics and groups, for a worker that has just started; later changes are sent to it."""
        return [] if self._console is None else self._console.greet(number)

    def hear(self, number: int, report: Report) -> None:
        """Process a report of a worker. Views and answers for operators may come from any thread."""
        if report.kind in ("view", "blocked", "answered"):
            if self._console is not None:
                self._show(self._console, number, report)
        elif report.kind == "started":
            assert self._code is not None, "it has told of its app"
            _log.info("%s started, process %d", self._names[number] or self._code["app"], report.pid)
        elif report.kind == "joined":
            self._joined.add(number)
            if len(self._joined) == len(self._names):
                service_manager.ready(len(self._names))
        else:
            now, limit = asyncio.get_running_loop().time(), self._spec["exit_when_idle"]
            self.reports.heard(number, report, now)
            if limit is not None and self.reports.idle_for(now) >= limit:
                self._stop.request(f"idle for {limit:g} s")

    def _show(self, console: AppConsole, number: int, report: Report) -> None:
        """Pass a report on to the HTTP console. A child reports plain values; this process passes its objects."""
        from msgspec import convert

        from rocketapp.operate.app_state import ProcessView

        said = report.said
        if report.kind == "view":
            console.viewed(number, said if isinstance(said, ProcessView) else convert(said, ProcessView))
        elif report.kind == "blocked":
            console.blocked(number, said if isinstance(said, LoopBlocked) else convert(said, LoopBlocked))
        else:
            console.answered(report.number, said or "", report.error)

    def lost(self, number: int) -> None:
        """The worker's process has ended. Its counters are kept."""
        self.reports.lost(number)
        if self._console is not None:
            self._console.lost(number)

    async def close(self) -> None:
        """After the last worker: stop the broker and the HTTP server."""
        if self._keeper is not None:
            self._stop.allow(STOP_TIMEOUT)
            await self._keeper.stop()
        if self._server is not None:
            self._server.stop()
