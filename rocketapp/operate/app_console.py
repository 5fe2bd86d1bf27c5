"""What operators see of a running app, and what they ask of it: the state behind its HTTP pages.

Threads of the HTTP server read it and send requests to the processes of the app. The processes report to it from their
event loops, or from a thread while a loop is blocked. What is known of a process is one frozen value, replaced whole.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, Literal

from rocketapp.errors import SetupError
from rocketapp.model.event import LoopBlocked
from rocketapp.operate.aggregate import Durations, aggregate_durations, aggregate_snapshots, counters_of, durations_of
from rocketapp.operate.app_state import AppState, ProcessState, ProcessView, snapshots_of
from rocketapp.operate.history import History
from rocketapp.plugin import AppSnapshot

ANSWERED_WITHIN = 4.0
"""Seconds that a request waits for what a process answers; a request as a whole has 5."""
Ask = Callable[[int, Mapping[str, Any]], None]
"""Asks a process, by its number, for a `call`, from any thread. Pause and resume have a topic and a group. What is
answered, with the `number` of the question, are describe, replay and try.
"""


@dataclass(frozen=True, slots=True)
class _Process:
    since: float
    view: ProcessView | None = None
    blocked: LoopBlocked | None = None
    blocked_at: float = 0.0
    has_started: bool = False


class AppConsole:
    """An app in one process or several. Every method may be called from any thread."""

    def __init__(
        self,
        app: str,
        names: Mapping[int, str],
        *,
        patience: float,
        draining: asyncio.Event,
        ask: Ask,
        may_try: bool = False,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`app`: the name to show until a process reports its own.

        `names`: the names of the processes by number; empty when there is only one process.
        `may_try`: whether an operator may call a handler with a message of their own.
        """
        self._app, self._names, self._patience, self._draining = app, names, patience, draining
        self._ask, self._now, self._may_try = ask, now, may_try
        self._processes = dict.fromkeys(sorted(names), _Process(now()))
        self._gone: AppSnapshot | None = None
        self._gone_durations: Durations = ()
        self._history = History()
        self._lock = threading.Lock()
        """Of the two that follow: a process that starts meanwhile hears of each pause once."""
        self._paused: dict[tuple[str, str], None] = {}
        self._listening: set[int] = set()
        self._questions, self._open = 0, dict[int, Future[str]]()
        self._description = ""

    def __repr__(self) -> str:
        return f"<AppConsole of {self._app}: {len(self._names)} processes>"

    def state(self) -> AppState:
        """The last known state of every process. Does not block."""
        return AppState(
            app=self._app,
            processes=tuple(self._seen(number, one) for number, one in self._processes.copy().items()),
            is_draining=self._draining.is_set(),
            patience=self._patience,
            gone=self._gone,
            gone_durations=(self._gone_durations,),
            history=self._history,
            may_try=self._may_try,
        )

    def change(self, call: Literal["pause", "resume"], topic: str, group: str) -> None:
        """Pause a topic of a group, or lift all reasons for which it is paused, in every process.

        Raises SetupError for names that the app does not have, and when it does not run.
        """
        known = snapshots_of(self.state().processes)
        if not known:
            raise SetupError("", "the app does not consume yet")
        groups = [one for snapshot in known for one in snapshot.groups if one.group == group]
        if not any(handler.topic == topic for one in groups for handler in one.handlers):
            raise SetupError("", "no handler of the app takes this topic in this group")
        with self._lock:
            if call == "pause":
                self._paused[topic, group] = None
            else:
                self._paused.pop((topic, group), None)
            for number in self._listening:
                self._ask(number, {"call": call, "topic": topic, "group": group})

    def describe(self) -> bytes:
        """The AsyncAPI document of the app, as JSON. May take seconds.

        Raises SetupError when no process answers with one. Cached until a process starts again, perhaps with a new app.
        """
        if not self._description:
            self._description = self._answer_of("describe")
        return self._description.encode()

    def replay(self, group: str, identity: str) -> str:
        """Replay one dead letter of a group. Returns what became of it; raises SetupError with what went wrong."""
        clusters = [one.cluster for one in self.state().snapshot.groups if one.group == group]
        if not clusters:
            raise SetupError("", "no handler of the app is in this group")
        return self._answer_of("replay", group=group, clusters=clusters, id=identity)

    def try_handler(self, handler: str, body: str, tag: str) -> str:
        """Call a handler, `name topic group`, with one message, without a broker: the outcome.

        Raises SetupError with what went wrong.
        """
        return self._answer_of("try", handler=handler, body=body, tag=tag)

    def _answer_of(self, call: str, **fields: str | list[str]) -> str:
        """The answer of the first process that is running."""
        with self._lock:
            if not self._listening:
                raise SetupError("", "no worker is there to ask yet: ask again")
            self._questions += 1
            number, question = self._questions, Future[str]()
            self._open[number] = question
            self._ask(min(self._listening), {"call": call, "number": number, **fields})
        try:
            return question.result(ANSWERED_WITHIN)
        except TimeoutError:
            raise SetupError("", f"no answer within {ANSWERED_WITHIN:g} s: the log says what became of it") from None
        finally:
            self._open.pop(number, None)

    def greet(self, number: int) -> list[tuple[str, str]]:
        """Returns the paused topics and groups for a process that has just started, and sends it later changes."""
        with self._lock:
            self._listening.add(number)
            return list(self._paused)

    def viewed(self, number: int, view: ProcessView) -> None:
        """Process `number` reports its present view."""
        self._app = view.app
        self._processes[number] = _Process(self._now(), view, has_started=True)
        if self._history.is_due(self._now()):
            state = self.state()
            self._history = self._history.with_sample(self._now(), state.counted, state.counts)

    def blocked(self, number: int, event: LoopBlocked) -> None:
        """Process `number` reports that its event loop is blocked, or is running again."""
        known, blocked = self._processes[number], None if event.is_over else event
        self._processes[number] = replace(known, blocked=blocked, blocked_at=self._now())

    def answered(self, number: int, answer: str, problem: str) -> None:
        """Process `number` answers a request, or says why it cannot. Ignored when nobody waits any more."""
        question = self._open.pop(number, None)
        if question is not None and problem:
            question.set_exception(SetupError("", problem))
        elif question is not None:
            question.set_result(answer)

    def lost(self, number: int) -> None:
        """Process `number` has ended. Its counters are kept in the totals."""
        with self._lock:
            self._listening.discard(number)
        self._description = ""
        known = self._processes[number]
        if known.view is not None:
            counted = counters_of(known.view.snapshot)
            self._gone = counted if self._gone is None else aggregate_snapshots([self._gone, counted])
            self._gone_durations = durations_of(aggregate_durations([self._gone_durations, known.view.durations]))
        self._processes[number] = _Process(self._now(), has_started=known.has_started)

    def _seen(self, number: int, one: _Process) -> ProcessState:
        now, blocked = self._now(), one.blocked
        if blocked is not None:
            blocked = replace(blocked, seconds=blocked.seconds + now - one.blocked_at)
        name, age = self._names[number], now - one.since
        return ProcessState(name=name, view=one.view, age=age, blocked=blocked, has_started=one.has_started)
