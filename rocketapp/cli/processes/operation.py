"""`rocketapp run --http`: where an app is looked at and operated, in one process or as the parent of several.

A worker of a parent sends its view through the pipe of its reports, once a second; what is paused and resumed comes
back through its lifeline. Nothing of this is there, and nothing is imported, without `--http`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from rocketapp.cli.failure import CommandError
from rocketapp.cli.processes.describing import Description, description_of, tell_description
from rocketapp.cli.processes.reports import Report
from rocketapp.cli.settings import subscriptions_of
from rocketapp.errors import RocketAppError, SetupError
from rocketapp.model.event import LoopBlocked
from rocketapp.model.snapshot import AppSnapshot
from rocketapp.operate.durations import Durations, added, durations_of
from rocketapp.operate.operation import Operation
from rocketapp.operate.running import remove_address, write_address
from rocketapp.operate.server import OperatorServer
from rocketapp.operate.together import counters_of, together
from rocketapp.operate.view import Desk, Now, Seen, View, decode, encode

if TYPE_CHECKING:
    from rocketapp.app.app import RocketApp
    from rocketapp.app.settings.settings import Settings
    from rocketapp.cli.processes.stop import ProcessStop

PAUSED = "by an operator"
"""The reason of a pause that came by HTTP."""
_log = logging.getLogger("rocketapp.run")
Call = Literal["pause", "resume"]


class Served:
    """A desk that is served, from before the app starts until after it has stopped."""

    def __init__(self, settings: Settings, desk: Desk) -> None:
        """Raises CommandError for what is not an address, and for one that is taken."""
        address, source = settings.app.http, settings.source_of("app", "http")
        name = "--http" if source == "command line" else f"{source}: app.http"
        try:
            self._server = OperatorServer(address, desk)
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

    def close(self) -> None:
        if self._app:
            remove_address(self._directory, self._app)
        self._server.stop()


class OwnDesk:
    """The app is in this process."""

    def __init__(self, app: RocketApp, settings: Settings, stop: ProcessStop) -> None:
        self.operation: Operation = Operation(durations=settings.app.http_durations)
        self._app, self._settings, self._stop = app, settings, stop
        self._patience = settings.app.ready_patience
        self._description = b""

    def now(self) -> Now:
        seen = self.operation.seen()
        draining = self._stop.requested.is_set()
        return Now(app=self._app.name, processes=(seen,), is_draining=draining, patience=self._patience)

    def change(self, call: Call, topic: str, group: str) -> None:
        seen = self.operation.seen()
        check_names([] if seen.view is None else [seen.view.snapshot], topic, group)
        change_pauses(self._app, call, topic, group)

    def describe(self) -> bytes:
        self._description = self._description or description_of(self._app, self._settings)
        return self._description


@dataclass(frozen=True, slots=True)
class _Worker:
    """What the parent knows of one worker; replaced as a whole, so that threads of the server may read it."""

    since: float
    view: View | None = None
    blocked: LoopBlocked | None = None
    blocked_at: float = 0.0
    has_started: bool = False


class ParentDesk:
    """The app is in the processes of workers. For the parent's loop, except for what a Desk has."""

    def __init__(self, app: str, settings: Settings, workers: int, stop: ProcessStop) -> None:
        """`app`: as the command line names it, until a worker tells its name."""
        self._app, self._patience, self._stop = app, settings.app.ready_patience, stop
        self._loop = asyncio.get_running_loop()
        began = time.monotonic()
        self._workers = {number: _Worker(began) for number in range(1, workers + 1)}
        self._gone: AppSnapshot | None = None
        self._gone_durations: Durations = Durations()
        self._paused: dict[tuple[str, str], None] = {}
        self._listening: set[int] = set()
        self._description = Description()
        self.tell: Callable[[int, Mapping[str, Any]], None] = lambda number, fields: None
        """Writes to a worker; set by its owner."""
        self.viewed: Callable[[str], None] = lambda app: None
        """Hears the app's name with each view."""

    def now(self) -> Now:
        now = time.monotonic()
        workers = tuple(_seen(number, one, now) for number, one in sorted(self._workers.copy().items()))
        draining = self._stop.requested.is_set()
        return Now(
            app=self._app,
            processes=workers,
            is_draining=draining,
            patience=self._patience,
            gone=self._gone,
            gone_durations=(self._gone_durations,),
        )

    def change(self, call: Call, topic: str, group: str) -> None:
        check_names([one.view.snapshot for one in self._workers.copy().values() if one.view], topic, group)
        self._loop.call_soon_threadsafe(self._change, call, topic, group)

    def describe(self) -> bytes:
        def ask() -> None:
            self._loop.call_soon_threadsafe(self._ask_for_description)

        return self._description.get(ask)

    def hear(self, number: int, report: Report) -> None:
        """What a worker tells."""
        now, known = time.monotonic(), self._workers[number]
        if report.kind == "view":
            view = decode(report.said)
            self._app = view.app
            self._workers[number] = _Worker(now, view, has_started=True)
            self.viewed(view.app)
        elif report.kind == "blocked":
            blocked = msgspec.json.decode(report.said, type=LoopBlocked)
            self._workers[number] = replace(known, blocked=None if blocked.is_over else blocked, blocked_at=now)
        elif report.kind == "described":
            self._description.hear(report)

    def greet(self, number: int) -> list[tuple[str, str]]:
        """Topics and groups that are paused for a worker that starts; from now on it hears of changes."""
        self._listening.add(number)
        return list(self._paused)

    def lost(self, number: int) -> None:
        """The worker's process has ended: what it counted stays counted."""
        self._listening.discard(number)
        self._description.forget()
        known = self._workers[number]
        if known.view is not None:
            counted = counters_of(known.view.snapshot)
            self._gone = counted if self._gone is None else together([self._gone, counted])
            self._gone_durations = durations_of(added([self._gone_durations, known.view.durations]))
        self._workers[number] = _Worker(time.monotonic(), has_started=known.has_started)

    def _ask_for_description(self) -> None:
        for number in sorted(self._listening)[:1]:
            self.tell(number, {"call": "describe"})

    def _change(self, call: Call, topic: str, group: str) -> None:
        if call == "pause":
            self._paused[topic, group] = None
        else:
            self._paused.pop((topic, group), None)
        for number in self._listening:
            self.tell(number, {"call": call, "topic": topic, "group": group})


def _seen(number: int, one: _Worker, now: float) -> Seen:
    blocked = one.blocked
    if blocked is not None:
        blocked = replace(blocked, seconds=blocked.seconds + now - one.blocked_at)
    age = now - one.since
    return Seen(name=f"worker {number}", view=one.view, age=age, blocked=blocked, has_started=one.has_started)


def watched_by_parent(
    app: RocketApp, settings: Settings, name: str, tell_parent: Callable[[Report], None]
) -> tuple[Operation, Callable[[Mapping[str, Any]], None]]:
    """The plugin of a worker whose parent serves `--http`, and what hears the parent."""

    def tell(kind: str, said: str) -> None:
        tell_parent(Report(kind, said=said))

    def hear(fields: Mapping[str, Any]) -> None:
        if fields.get("call") in ("pause", "resume"):
            try:
                change_pauses(app, fields["call"], fields["topic"], fields["group"])
            except RocketAppError as error:
                _log.warning("%s of topic %s: %s", fields["call"], fields["topic"], error)
        elif fields.get("call") == "describe":
            tell_description(app, settings, tell_parent)

    plugin = Operation(
        name,
        durations=settings.app.http_durations,
        viewed=lambda view: tell("view", encode(view)),
        blocked=lambda event: tell("blocked", msgspec.json.encode(event).decode()),
    )
    return plugin, hear


def check_names(snapshots: Sequence[AppSnapshot], topic: str, group: str) -> None:
    """Raises SetupError when the app has no handler for this topic in this group."""
    if not snapshots:
        raise SetupError("", "the app does not consume yet")
    groups = [one for snapshot in snapshots for one in snapshot.groups if one.group == group]
    if not any(handler.topic == topic for one in groups for handler in one.handlers):
        raise SetupError("", "no handler of the app takes this topic in this group")


def pause_again(app: RocketApp, settings: Settings, paused: Sequence[Sequence[str]]) -> None:
    """Topics and groups that were paused before this process was started. Its code may have been edited meanwhile."""
    known = {(one.topic, one.group) for one in subscriptions_of(app, settings)}
    for topic, group in paused:
        if (topic, group) in known:
            change_pauses(app, "pause", topic, group)
        else:
            _log.warning("topic %s of group %s was paused, and the app has no handler of it any more", topic, group)


def change_pauses(app: RocketApp, call: Call, topic: str, group: str) -> None:
    """From any thread. A resume lifts all reasons: a person has decided."""
    if call == "pause":
        app.pause(topic, group=group, reason=PAUSED)
    else:
        app.resume(topic, group=group)
    _log.warning("topic %s of group %s was %sd by an operator", topic, group, call)
