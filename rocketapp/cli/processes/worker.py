"""One worker: an app's lifecycle from start to drain, in this process, and what operators ask of it.

It reports its state in `Report`s: to the run command when that is the worker itself, or to
the parent at the other end of a pipe.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rocketapp.app.run.lifecycle import Lifecycle
from rocketapp.app.run.wiring import Runtime
from rocketapp.cli.failure import FAILED, USAGE, CommandError, describe, problem_of, user_place
from rocketapp.cli.processes.operator_requests import ANSWERS
from rocketapp.cli.processes.reports import Report
from rocketapp.cli.runtime import settle
from rocketapp.cli.settings import subscriptions_of
from rocketapp.clock import SystemClock
from rocketapp.consumer.journal import Journal
from rocketapp.errors import ConfigError, PluginError, RocketAppError, SetupError, TransportError
from rocketapp.model.snapshot import HandlerStats
from rocketapp.tasks import scope
from rocketapp.transport.tcp import dial_tcp

if TYPE_CHECKING:
    from rocketapp.app.app import RocketApp
    from rocketapp.app.settings import Settings
    from rocketapp.cli.processes.stop import ProcessStop
    from rocketapp.operate.view_plugin import ViewPlugin

_log = logging.getLogger("rocketapp.run")
Tell = Callable[[Report], None]

STATUS_INTERVAL = 1.0
"""Seconds between reports without `--exit-when-idle`."""
JOIN_INTERVAL = 0.2
"""Seconds between looks whether all groups know their queues."""
PAUSED = "by an operator"
"""The reason of a pause that came by HTTP."""


class Worker:
    """One app in one process."""

    def __init__(self, app: RocketApp, settings: Settings, *, tell: Tell, members: int = 1, number: int = 1) -> None:
        """`tell` hears the reports. `number`: of this worker among the `members` that start, from 1."""
        self._tell = tell
        self._operation = operation_of(settings, tell)
        self._journal = _open_journal(settings.consumer.crash_dir)
        self._lifecycle: Lifecycle = Lifecycle(
            app,
            settings,
            Runtime(dial=dial_tcp, clock=SystemClock(), random=random.Random(), journal=self._journal, worker=number),
            expected_members=members,
            plugins=[] if self._operation is None else [self._operation],
        )

    @property
    def summary(self) -> HandlerStats:
        """What became of the messages so far."""
        return self._lifecycle.counters

    async def run(self, stop: ProcessStop, *, exit_when_idle: float | None) -> bool:
        """Consume until `stop` is requested, then drain. True when nothing was cut off.

        Raises CommandError for what the start or the end raised, after undoing what was done.
        """
        try:
            return await self._consume(stop, exit_when_idle)
        except Exception as error:
            raise start_failure(error) from error

    async def _consume(self, stop: ProcessStop, exit_when_idle: float | None) -> bool:
        try:
            if await self._start(stop):
                settle()
                stop.tell()
                self._tell(Report("started", pid=os.getpid()))
                await self._report_until(stop, exit_when_idle)
        finally:
            async with scope(self._report_drain()):
                clean: bool = await self._lifecycle.stop(stop.cut)
            if self._journal is not None:
                self._journal.close()
        return clean

    async def _start(self, stop: ProcessStop) -> bool:
        """False when the stop came first: then the start is broken off."""
        async with scope(self._lifecycle.start(), stop.requested.wait()) as (starting, stopping):
            await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not starting.done():
                return False
            await starting
            if not self._lifecycle.subscribes:
                _log.warning("nothing is subscribed, so that no message is handled: a Router needs app.include(router)")
            return True

    async def _report_until(self, stop: ProcessStop, exit_when_idle: float | None) -> None:
        """First that every group knows its queues: where no broker is reached, that may take for ever."""
        # Several of them within the time that idleness must last.
        interval = STATUS_INTERVAL if exit_when_idle is None else min(0.5, max(0.05, exit_when_idle / 4))
        has_joined = False
        while not stop.requested.is_set():
            if not has_joined and all(group.has_assigned for group in self._lifecycle.snapshot().groups):
                has_joined = True
                if self._operation is not None:
                    self._operation.joined()
                self._tell(Report("joined"))
            if has_joined:
                self._tell(await self._status(look=exit_when_idle is not None))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.requested.wait(), interval if has_joined else JOIN_INTERVAL)

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
        return Report("status", self.summary, owned=idle.owned, wanted=idle.wanted, reasons=idle.reasons)


def operation_of(settings: Settings, tell: Tell) -> ViewPlugin | None:
    """The plugin behind `--http`, which is not imported without it."""
    if not settings.app.http:
        return None
    from rocketapp.app.settings import DEVELOPMENT
    from rocketapp.operate.view_plugin import ViewPlugin

    measured = settings.app.http_durations
    return ViewPlugin(
        durations=settings.environment == DEVELOPMENT if measured is None else measured,
        viewed=lambda view: tell(Report("view", said=view)),
        blocked=lambda event: tell(Report("blocked", said=event)),
    )


def obey(app: RocketApp, settings: Settings, fields: Mapping[str, Any], tell: Tell) -> None:
    """Do what an operator asks of the process that has the app; from any thread.

    `tell` hears the answer to what asks for one, or why there is none.
    """

    call = fields["call"]

    def work_out() -> None:
        try:
            report = Report("answered", number=fields["number"], said=ANSWERS[call](app, settings, fields))
        except Exception as error:  # a request waits for an answer
            told = str(error) if isinstance(error, RocketAppError) else describe(error)
            report = Report("answered", number=fields["number"], error=told)
        tell(report)

    if call in ANSWERS:
        threading.Thread(target=work_out, name=f"rocketapp-{call}", daemon=True).start()
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
    known = {(one.topic, one.group) for one in subscriptions_of(app, settings)} if paused else ()
    for topic, group in paused:
        if (topic, group) in known:
            obey(app, settings, {"call": "pause", "topic": topic, "group": group}, lambda report: None)
        else:
            _log.warning("topic %s of group %s was paused, and the app has no handler of it any more", topic, group)


def start_failure(error: Exception) -> CommandError:
    """What a start that raised means for the exit code: their declarations and settings, or their code as it ran.

    A function that runs at the start may succeed the next time, and a cluster that was not reached may be there. A hook
    that only says what a plugin adds will not succeed, nor will a function in which a declaration or a setting is found
    to be wrong.
    """
    if isinstance(error, CommandError):
        return error
    cause = error.__cause__
    if isinstance(error, ConfigError) or isinstance(cause, ConfigError | SetupError):
        return CommandError(str(error), USAGE)
    if isinstance(error, PluginError):
        return CommandError(str(error), FAILED if error.hook == "app_startup" else USAGE)
    if isinstance(error, TransportError):
        return CommandError(str(error), FAILED)
    if isinstance(error, SetupError):
        ran = cause is not None and user_place(cause) is not None
        return CommandError(str(error), FAILED if ran else USAGE)
    return CommandError(f"{user_place(error) or 'start'}: {describe(error)}", FAILED)


def _open_journal(directory: str) -> Journal | None:
    """Where this process notes down what it has in flight."""
    if not directory:
        return None
    try:
        return Journal(Path(directory), SystemClock(), _log.warning)
    except OSError as error:
        text = "%s: %s: messages that end the process are not found (consumer.crash_dir)"
        _log.warning(text, directory, problem_of(error))
        return None
