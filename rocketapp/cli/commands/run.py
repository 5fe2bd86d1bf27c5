"""`rocketapp run`: consume until SIGINT, SIGTERM or SIGHUP, then drain.

With one worker this process is the worker; with several, or with --reload, it is the parent. Either way the
embedded broker, when one is needed, is a child process that is stopped last, and the
last line on stdout is the summary.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from rocketapp.app.settings import Settings, with_name_server
from rocketapp.cli.failure import DONE, USAGE, CommandError, exit_code
from rocketapp.cli.loader import load_app
from rocketapp.cli.logs import LEVELS, set_up_logging
from rocketapp.cli.options import Seconds, overrides_of, refuse_empty
from rocketapp.cli.output import say
from rocketapp.cli.processes.reports import Report, summary_line
from rocketapp.cli.processes.run import Run
from rocketapp.cli.processes.service_manager import keep_alive
from rocketapp.cli.processes.stop import ProcessStop, end_now
from rocketapp.cli.runtime import LOOPS
from rocketapp.cli.settings import code_of, needs_cluster, read_settings
from rocketapp.config.app import MOST_WORKERS
from rocketapp.errors import RocketAppError
from rocketapp.model.snapshot import HandlerStats
from rocketapp.tasks import scope

if TYPE_CHECKING:
    from rocketapp.app.app import RocketApp
    from rocketapp.cli.processes.reload import Watched

SECONDS = Seconds()


@click.command("run", epilog="Example: rocketapp run app:app --workers 4 --http 127.0.0.1:8080")
@click.argument("app")
@click.option("--name-server", metavar="H:P[;H:P]", help="The cluster. Default: the settings', or an embedded broker.")
@click.option("--embedded", metavar="DIR", help="Use an embedded broker in DIR, also when the settings name a cluster.")
@click.option("--no-embedded", is_flag=True, help="Fail when nothing names a cluster; in production.")
@click.option(
    "--workers", type=click.IntRange(1, MOST_WORKERS), metavar="N", help="Processes. Default: app.workers, 1."
)
@click.option("--reload", is_flag=True, help="Start anew when a source or the settings file changes; for development.")
@click.option("--reload-dir", multiple=True, metavar="DIR", help="Watch DIR, not this folder; may be repeated.")
@click.option(
    "--exit-when-idle", type=SECONDS, metavar="S", help="End with 0 when S seconds long nothing was left to do."
)
@click.option("--log-format", type=click.Choice(["text", "json"]), help="Default: text.")
@click.option("--log-level", type=click.Choice(LEVELS, case_sensitive=False), help="Default: INFO.")
@click.option("--log-config", metavar="FILE", help="Where log lines go: TOML, JSON or INI of Python's logging.config.")
@click.option("--settings", metavar="FILE", help="Default: settings.toml, if there is one.")
@click.option("--connect-timeout", type=SECONDS, metavar="S", help="Seconds to reach the cluster at start; default 10.")
@click.option("--drain-timeout", type=SECONDS, metavar="S", help="Seconds for handlers to finish; default 30.")
@click.option("--http", metavar="H:P", help="Serve /health, /ready, /metrics and a page there.")
@click.option("--loop", type=click.Choice(LOOPS), default="auto", help="Event loop; auto: uvloop if installed.")
@click.option("--traceback", is_flag=True, help="Show the whole traceback of what went wrong.")
def command(**given: Any) -> int:
    """Consume messages with APP until a signal. APP is module:attribute, module:factory() or module (its `app`)."""
    last_line = LastLine()
    try:
        # --embedded overrides the name server of the settings.
        overrides = overrides_of({**given, "name_server": "" if given["embedded"] else given["name_server"]})
        return last_line.ended(_run({**given, "overrides": overrides}, last_line))
    except RocketAppError as error:
        last_line.ended(exit_code(error))
        raise
    finally:
        last_line.print()


class LastLine:
    """The summary, printed once: at the end, or by the thread that ends a stuck process."""

    def __init__(self) -> None:
        self.summary: Callable[[], HandlerStats] = HandlerStats
        self.is_due: bool = False
        """Nothing is counted of what was refused before it began."""
        self._once = threading.Lock()

    def ended(self, code: int) -> int:
        """The exit code: that of a refusal means that nothing was begun, unless something is counted."""
        self.is_due = self.is_due and (code != USAGE or self.summary() != HandlerStats())
        return code

    def print(self) -> None:
        if self.is_due and self._once.acquire(blocking=False):
            say(summary_line(self.summary()), flush=True)


def _run(given: Mapping[str, Any], last_line: LastLine) -> int:
    """`given`: the command line, and what it says about settings; children are told all of it."""
    _refuse_contradictions(given)
    app = None
    if given["workers"] in (None, 1) and not given["reload"]:
        app = load_app(given["app"])
    settings = read_settings(given["overrides"], file=given["settings"], app=app)
    given = {**given, "workers": settings.app.workers}
    if settings.app.workers > 1:
        app = None  # each worker loads its own
    set_up_logging(settings.app, file=given["log_config"])
    last_line.is_due = True
    stop = ProcessStop(settings.app.drain_timeout, last_line.print)
    if app is not None:
        return stop.run(partial(_run_worker, given, app, settings, last_line, stop), given["loop"])
    from rocketapp.cli.processes.reload import watched_by

    # What is wrong with the command line is told before signals are taken.
    watched = watched_by(given["reload"], given["reload_dir"], given["settings"])
    return stop.run(partial(_run_parent, given, settings, last_line, stop, watched), "asyncio")


def _refuse_contradictions(given: Mapping[str, Any]) -> None:
    texts = ("name_server", "embedded", "http", "log_config", "settings")
    refuse_empty({f"--{one.replace('_', '-')}": given[one] for one in texts})
    if given["embedded"] and given["name_server"]:
        raise CommandError("--embedded and --name-server exclude each other: leave one out")
    if given["embedded"] and given["no_embedded"]:
        raise CommandError("--embedded and --no-embedded exclude each other: leave one out")
    if given["reload_dir"] and not given["reload"]:
        raise CommandError("--reload-dir needs --reload: give both")
    if given["log_config"] and (given["log_format"] or given["log_level"]):
        raise CommandError("--log-config says all that --log-format and --log-level do: leave one out")


async def _run_worker(
    given: Mapping[str, Any], app: RocketApp, settings: Settings, last_line: LastLine, stop: ProcessStop
) -> int:
    from rocketapp.cli.processes.worker import Worker, obey

    def tell(report: Report) -> None:
        run.hear(1, report)

    def ask(_number: int, fields: Mapping[str, str]) -> None:
        obey(app, settings, fields, tell)

    run = Run(given, settings, stop, {1: ""}, ask, code=code_of(app))
    run.greet(1)
    async with scope(keep_alive()):
        try:
            if needs_cluster(app, settings, may_embed=not given["no_embedded"]):
                # A broker that opens its store may need longer than who stops the run wants to wait.
                async with scope(run.cluster(), stop.requested.wait()) as (found, stopping):
                    await asyncio.wait({found, stopping}, return_when=asyncio.FIRST_COMPLETED)
                    if not found.done():
                        return DONE
                    settings = with_name_server(settings, found.result())
            worker = Worker(app, settings, tell=tell)
            last_line.summary = lambda: worker.summary
            clean = await worker.run(stop, exit_when_idle=given["exit_when_idle"])
        finally:
            await run.close()
    if not clean:
        end_now(last_line.print)  # threads of handlers that were cut off would hold the process back
    return DONE


async def _run_parent(
    given: Mapping[str, Any], settings: Settings, last_line: LastLine, stop: ProcessStop, watched: Watched | None
) -> int:
    from rocketapp.cli.processes.parent import Parent

    parent = Parent(given, settings, stop, watched=watched)
    last_line.summary = lambda: parent.summary
    return await parent.run()
