"""`rocketapp run`: consume until SIGINT, SIGTERM or SIGHUP, then drain.

With one worker this process is the worker; with several, or with --reload, it is the parent. Either way the
embedded broker, when one is needed, is a child process that is stopped last, and the
last line on stdout is the summary.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from rocketapp.cli.failure import DONE, CommandError
from rocketapp.cli.loop import LOOPS
from rocketapp.cli.options import Seconds, apps, levels, refuse_empty
from rocketapp.cli.output import say
from rocketapp.cli.processes.reports import Report, summary_line
from rocketapp.model.stats import HandlerStats

if TYPE_CHECKING:
    from rocketapp.app.app import RocketApp
    from rocketapp.app.settings.settings import Settings
    from rocketapp.cli.processes.stop import ProcessStop

MOST_WORKERS = 256
SECONDS = Seconds()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """One command line."""

    app: str
    name_server: str | None
    embedded: str | None
    no_embedded: bool
    workers: int
    reload: bool
    reload_dir: tuple[str, ...]
    exit_when_idle: float | None
    log_format: str | None
    log_level: tuple[str, ...]
    log_config: str | None
    settings: str | None
    connect_timeout: float | None
    drain_timeout: float | None
    http: str | None
    loop: str
    traceback: bool

    def overrides(self) -> dict[str, dict[str, Any]]:
        """What the command line says about settings, by table."""
        app = {
            "log_format": self.log_format,
            **self._levels(),
            "connect_timeout": self.connect_timeout,
            "drain_timeout": self.drain_timeout,
            "http": self.http,
        }
        # --embedded overrides the name server of the settings.
        client = {"name_server": "" if self.embedded else self.name_server}
        broker = {"dir": self.embedded}
        tables: dict[str, dict[str, Any]] = {"app": app, "client": client, "broker": broker}
        given = {
            table: {key: value for key, value in options.items() if value is not None}
            for table, options in tables.items()
        }
        return {table: options for table, options in given.items() if options}

    def for_children(self) -> dict[str, Any]:
        """What every child process is told: all of it, and what it says about settings."""
        return {**asdict(self), "overrides": self.overrides()}

    def _levels(self) -> dict[str, Any]:
        """`--log-level` says the level of all loggers, or as LOGGER=LEVEL that of one."""
        of_all = [level for level in self.log_level if "=" not in level]
        of_one = tuple(level for level in self.log_level if "=" in level)
        return {"log_level": of_all[-1] if of_all else None, "log_levels": of_one or None}


@click.command(
    "run",
    short_help="Consume messages with APP until a signal.",
    epilog="Example: rocketapp run app:app --workers 4 --http 127.0.0.1:8080",
)
@click.argument("app", shell_complete=apps)
@click.option("--name-server", metavar="H:P[;H:P]", help="The cluster. Default: the settings', or an embedded broker.")
@click.option("--embedded", metavar="DIR", help="Use an embedded broker in DIR, also when the settings name a cluster.")
@click.option("--no-embedded", is_flag=True, help="Fail when nothing names a cluster; in production.")
@click.option("--workers", type=click.IntRange(1, MOST_WORKERS), default=1, metavar="N", help="Processes; default 1.")
@click.option("--reload", is_flag=True, help="Start anew when a source or the settings file changes; for development.")
@click.option("--reload-dir", multiple=True, metavar="DIR", help="Watch DIR, not this folder; may be repeated.")
@click.option(
    "--exit-when-idle", type=SECONDS, metavar="S", help="End with 0 when S seconds long nothing was left to do."
)
@click.option("--log-format", type=click.Choice(["text", "json"]), help="Default: text.")
@click.option(
    "--log-level", callback=levels, multiple=True, metavar="[LOGGER=]LEVEL", help="Default: INFO; may be repeated."
)
@click.option("--log-config", metavar="FILE", help="Where log lines go: TOML, JSON or INI of Python's logging.config.")
@click.option("--settings", metavar="FILE", help="Default: settings.toml, if there is one.")
@click.option("--connect-timeout", type=SECONDS, metavar="S", help="Seconds to reach the cluster at start; default 10.")
@click.option("--drain-timeout", type=SECONDS, metavar="S", help="Seconds for handlers to finish; default 30.")
@click.option("--http", metavar="H:P", help="Serve /health, /ready, /metrics and a page there.")
@click.option("--loop", type=click.Choice(LOOPS), default="auto", help="Event loop; auto: uvloop if installed.")
@click.option("--traceback", is_flag=True, help="Show the whole traceback of what went wrong.")
def command(**given: Any) -> int:
    """Run APP: module:attribute, module:factory() or module (its `app`)."""
    options = RunOptions(**given)
    last_line = LastLine()
    try:
        return _run(options, last_line)
    except CommandError as error:
        error.traceback = options.traceback
        raise
    finally:
        last_line.print()


class LastLine:
    """The summary, printed once: at the end, or by the thread that ends a stuck process."""

    def __init__(self) -> None:
        self.summary: Callable[[], HandlerStats] = HandlerStats
        self._once = threading.Lock()

    def print(self) -> None:
        if self._once.acquire(blocking=False):
            say(summary_line(self.summary()), flush=True)


def _run(options: RunOptions, last_line: LastLine) -> int:
    from rocketapp.cli.logs import set_up_logging
    from rocketapp.cli.processes.stop import ProcessStop
    from rocketapp.cli.settings import read_settings

    _refuse_contradictions(options)
    app = None
    if options.workers == 1 and not options.reload:
        from rocketapp.cli.loader import load_app

        app = load_app(options.app)
    settings = read_settings(options.overrides(), file=options.settings, app=app)
    set_up_logging(settings.app, file=options.log_config)
    stop = ProcessStop(settings.app.drain_timeout, last_line.print)
    if app is not None:
        return stop.run(partial(_run_worker, options, app, settings, last_line, stop), options.loop)
    return stop.run(partial(_run_parent, options, settings, last_line, stop), "asyncio")


def _refuse_contradictions(options: RunOptions) -> None:
    refuse_empty(
        {
            "--name-server": options.name_server,
            "--embedded": options.embedded,
            "--http": options.http,
            "--log-config": options.log_config,
        }
    )
    if options.embedded and options.name_server:
        raise CommandError("--embedded and --name-server exclude each other: leave one out")
    if options.embedded and options.no_embedded:
        raise CommandError("--embedded and --no-embedded exclude each other: leave one out")
    if options.reload_dir and not options.reload:
        raise CommandError("--reload-dir needs --reload: give both")
    if options.log_config and (options.log_format or options.overrides().get("app", {}).get("log_level")):
        raise CommandError("--log-config says all that --log-format and --log-level do: leave one out")


async def _run_worker(
    options: RunOptions, app: RocketApp, settings: Settings, last_line: LastLine, stop: ProcessStop
) -> int:
    from rocketapp.app.settings.settings import with_name_server
    from rocketapp.cli.processes.run import Run
    from rocketapp.cli.processes.stop import end_now
    from rocketapp.cli.processes.worker import Worker, obey
    from rocketapp.cli.settings import code_of, needs_cluster
    from rocketapp.tasks import scope

    def tell(report: Report) -> None:
        run.hear(1, report)

    def ask(_number: int, fields: Mapping[str, str]) -> None:
        obey(app, settings, fields, tell)

    run = Run(options.for_children(), settings, stop, {1: ""}, ask, code=code_of(app))
    run.greet(1)
    async with scope(run.manager.keep_alive()):
        try:
            if needs_cluster(app, settings, may_embed=not options.no_embedded):
                settings = with_name_server(settings, await run.cluster())
            worker = Worker(app, settings, tell=tell)
            last_line.summary = lambda: worker.summary
            clean = await worker.run(stop, exit_when_idle=options.exit_when_idle)
        finally:
            await run.close()
    if not clean:
        end_now(last_line.print)  # threads of handlers that were cut off would hold the process back
    return DONE


async def _run_parent(options: RunOptions, settings: Settings, last_line: LastLine, stop: ProcessStop) -> int:
    from rocketapp.cli.processes.parent import Parent
    from rocketapp.cli.processes.reload import watched_by

    watched = watched_by(options.reload, options.reload_dir, options.settings)
    parent = Parent(options.for_children(), settings, stop, watched=watched)
    last_line.summary = lambda: parent.summary
    return await parent.run()
