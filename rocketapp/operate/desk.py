"""Where an app is looked at and operated: what its processes told last, and what is asked of them.

Threads of the HTTP server look and ask; the event loop, or a thread when that is blocked, tells. What is known of a
process is replaced as a whole.
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
from rocketapp.operate.history import History
from rocketapp.operate.together import Durations, added, counters_of, durations_of, together
from rocketapp.operate.view import Now, Seen, View, snapshots_of
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
    view: View | None = None
    blocked: LoopBlocked | None = None
    blocked_at: float = 0.0
    has_started: bool = False


class Desk:
    """One app in one process or several; for any thread."""

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
        """`app`: the name until a process tells it; `names`: of the processes, by number, empty for an only one.

        `may_try`: whether a handler may be called with a message that an operator writes.
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
        return f"<Desk of {self._app}: {len(self._names)} processes>"

    def now(self) -> Now:
        """What is known at this moment; waits for nothing."""
        return Now(
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
        known = snapshots_of(self.now().processes)
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
        """The AsyncAPI document, as JSON. May take seconds. Raises SetupError when the app does not tell it.

        It is kept until a process is started anew, perhaps with another app.
        """
        if not self._description:
            self._description = self._answer_of("describe")
        return self._description.encode()

    def replay(self, group: str, identity: str) -> str:
        """Send one dead letter of a group out again: what became of it. Raises SetupError with what went wrong."""
        clusters = [one.cluster for one in self.now().snapshot.groups if one.group == group]
        if not clusters:
            raise SetupError("", "no handler of the app is in this group")
        return self._answer_of("replay", group=group, clusters=clusters, id=identity)

    def try_handler(self, handler: str, body: str, tag: str) -> str:
        """Call a handler, `name topic group`, with one message, without a broker: the outcome.

        Raises SetupError with what went wrong.
        """
        return self._answer_of("try", handler=handler, body=body, tag=tag)

    def _answer_of(self, call: str, **fields: str | list[str]) -> str:
        """What the first process answers that is there."""
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
        """Topics and groups that are paused for a process that starts; from now on it hears of changes."""
        with self._lock:
            self._listening.add(number)
            return list(self._paused)

    def viewed(self, number: int, view: View) -> None:
        """A process tells how it does."""
        self._app = view.app
        self._processes[number] = _Process(self._now(), view, has_started=True)
        if self._history.is_due(self._now()):
            now = self.now()
            self._history = self._history.with_sample(self._now(), now.counted, now.counts)

    def blocked(self, number: int, event: LoopBlocked) -> None:
        """A process tells that its event loop is blocked, or that this is over."""
        known, blocked = self._processes[number], None if event.is_over else event
        self._processes[number] = replace(known, blocked=blocked, blocked_at=self._now())

    def answered(self, number: int, answer: str, problem: str) -> None:
        """A process answers a question, or says why it cannot. Nothing happens when nobody waits for it any more."""
        question = self._open.pop(number, None)
        if question is not None and problem:
            question.set_exception(SetupError("", problem))
        elif question is not None:
            question.set_result(answer)

    def lost(self, number: int) -> None:
        """The process has ended: what it counted stays counted."""
        with self._lock:
            self._listening.discard(number)
        self._description = ""
        known = self._processes[number]
        if known.view is not None:
            counted = counters_of(known.view.snapshot)
            self._gone = counted if self._gone is None else together([self._gone, counted])
            self._gone_durations = durations_of(added([self._gone_durations, known.view.durations]))
        self._processes[number] = _Process(self._now(), has_started=known.has_started)

    def _seen(self, number: int, one: _Process) -> Seen:
        now, blocked = self._now(), one.blocked
        if blocked is not None:
            blocked = replace(blocked, seconds=blocked.seconds + now - one.blocked_at)
        name, age = self._names[number], now - one.since
        return Seen(name=name, view=one.view, age=age, blocked=blocked, has_started=one.has_started)
