"""`rocketapp run --http`: where an app is looked at and operated, in one process or as the parent of several.

A worker of a parent sends its view through the pipe of its reports, once a second; what it is asked for comes back
through its lifeline. Nothing of this is there, and nothing is imported, without `--http`.
"""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from rocketapp.cli.failure import CommandError, describe
from rocketapp.cli.processes.reports import Report
from rocketapp.cli.settings import subscriptions_of
from rocketapp.errors import RocketAppError
from rocketapp.model.event import LoopBlocked
from rocketapp.operate.desk import Ask, Desk
from rocketapp.operate.operation import Operation
from rocketapp.operate.running import remove_address, write_address
from rocketapp.operate.server import OperatorServer
from rocketapp.operate.view import decode, encode

if TYPE_CHECKING:
    from rocketapp.app.app import RocketApp
    from rocketapp.app.settings.settings import Settings
    from rocketapp.cli.processes.stop import ProcessStop

PAUSED = "by an operator"
"""The reason of a pause that came by HTTP."""
_log = logging.getLogger("rocketapp.run")


class Served:
    """A desk that is served, from before the app starts until after it has stopped."""

    def __init__(self, settings: Settings, app: str, names: Mapping[int, str], stop: ProcessStop, ask: Ask) -> None:
        """`app` and `names`, of its processes by number, are shown; `ask` asks one of them for something.

        Raises CommandError for what is not an address, and for one that is taken.
        """
        self.desk: Desk = Desk(app, names, patience=settings.app.ready_patience, draining=stop.requested, ask=ask)
        address, source = settings.app.http, settings.source_of("app", "http")
        name = "--http" if source == "command line" else f"{source}: app.http"
        try:
            self._server = OperatorServer(address, self.desk)
            self._address = self._server.start()
        except ValueError as error:
            raise CommandError(f"{name} {address}: {error}") from error
        except OSError as error:
            problem = (error.strerror or str(error)).lower()
            raise CommandError(f"{name} {address}: {problem}: choose another address or port") from error
        self._directory = Path(settings.broker.dir)
        self._app = ""
        _log.info("http://%s tells how the app does", self._address)

    def started(self, app: str) -> None:
        """The app runs: in its folder, `rocketapp doctor` finds it."""
        if not self._app:
            self._app = app
            write_address(self._directory, app, self._address)

    def hear(self, number: int, report: Report) -> None:
        """What a process tells of itself."""
        if report.kind == "view":
            self.desk.viewed(number, decode(report.said))
        elif report.kind == "blocked":
            self.desk.blocked(number, msgspec.json.decode(report.said, type=LoopBlocked))
        else:
            self.desk.described(report.said, report.error)

    def close(self) -> None:
        if self._app:
            remove_address(self._directory, self._app)
        self._server.stop()


def served_here(app: RocketApp, settings: Settings, stop: ProcessStop) -> tuple[Served, Operation]:
    """The desk of an app that is in this process, and the plugin that tells it how the app does."""

    def ask(_number: int, fields: Mapping[str, Any]) -> None:
        obey(app, settings, fields, served.desk.described)

    served = Served(settings, app.name, {1: ""}, stop, ask)
    served.desk.greet(1)
    operation = Operation(
        durations=settings.app.http_durations,
        viewed=functools.partial(served.desk.viewed, 1),
        blocked=functools.partial(served.desk.blocked, 1),
    )
    return served, operation


def served_by_parent(
    app: RocketApp, settings: Settings, tell: Callable[[Report], None]
) -> tuple[Callable[[Mapping[str, Any]], None], Operation]:
    """The same in a worker whose parent has the desk: what hears the parent, and the plugin."""
    operation = Operation(
        durations=settings.app.http_durations,
        viewed=lambda view: tell(Report("view", said=encode(view))),
        blocked=lambda event: tell(Report("blocked", said=msgspec.json.encode(event).decode())),
    )

    def hear(fields: Mapping[str, Any]) -> None:
        obey(app, settings, fields, lambda said, error: tell(Report("described", said=said, error=error)))

    return hear, operation


def obey(app: RocketApp, settings: Settings, fields: Mapping[str, Any], described: Callable[[str, str], None]) -> None:
    """Do what a desk asks of the process that has the app; from any thread.

    The app is described in a thread of its own, so that the event loop and the lifeline go on. `described` hears the
    document, or why there is none.
    """

    def describe_app() -> None:
        from rocketapp.asyncapi.document import document_of, encoded

        try:
            text = encoded(document_of(app, settings), "json")
        except Exception as error:  # a request waits for an answer
            described("", str(error) if isinstance(error, RocketAppError) else describe(error))
        else:
            described(text, "")

    call = fields["call"]
    if call == "describe":
        threading.Thread(target=describe_app, name="rocketapp-describing", daemon=True).start()
        return
    topic, group = fields["topic"], fields["group"]
    try:
        if call == "pause":
            app.pause(topic, group=group, reason=PAUSED)
        else:  # lifts all reasons: a person has decided
            app.resume(topic, group=group)
    except RocketAppError as error:
        _log.warning("%s of topic %s: %s", call, topic, error)
    else:
        _log.warning("topic %s of group %s was %sd by an operator", topic, group, call)


def pause_again(app: RocketApp, settings: Settings, paused: Sequence[Sequence[str]]) -> None:
    """Topics and groups that were paused before this process was started. Its code may have been edited meanwhile."""
    known = {(one.topic, one.group) for one in subscriptions_of(app, settings)}
    for topic, group in paused:
        if (topic, group) in known:
            obey(app, settings, {"call": "pause", "topic": topic, "group": group}, lambda said, error: None)
        else:
            _log.warning("topic %s of group %s was paused, and the app has no handler of it any more", topic, group)
