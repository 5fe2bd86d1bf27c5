"""What a process keeps of its events, and how often it looks at itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from rocketapp import MessageQueue
from rocketapp.model.event import Event, LoopBlocked, Observe, Retried, TopicMissing
from rocketapp.operate.app_console import AppConsole
from rocketapp.operate.app_state import ProcessState
from rocketapp.operate.health import LATE
from rocketapp.operate.view_plugin import MOST_FAILURES, ViewPlugin
from rocketapp.plugin import AppSnapshot, events
from tests.unit.operate.views import snapshot_of

BLOCKED = LoopBlocked(4.0, "app.py:12", "app:settle", is_over=False)
COMMIT = events.CommitFailed("shop", MessageQueue("orders", "broker-a", 0), 7, "refused")


class App:
    """As much of a running app as the plugin asks for; a snapshot takes some time."""

    name = "shop"

    def __init__(self, cost: float = 0.0) -> None:
        self.now, self._cost = 0.0, cost
        self.console = AppConsole(
            "app", {1: ""}, patience=30.0, draining=asyncio.Event(), ask=lambda *_: None, now=lambda: self.now
        )
        operation = ViewPlugin(
            viewed=partial(self.console.viewed, 1), blocked=partial(self.console.blocked, 1), now=lambda: self.now
        )
        self.observe: Observe = operation.observe_events(app=self)

    def seen(self) -> ProcessState:
        (process,) = self.console.state().processes
        return process

    def every(self, seconds: float, call: Callable[[], None]) -> None:
        self._call = call

    def snapshot(self) -> AppSnapshot:
        self.now += self._cost
        return snapshot_of()

    def second(self) -> ProcessState:
        """What is known a second later."""
        self.now = float(int(self.now) + 1)
        before = self.seen()
        self._call()
        return before


def texts(app: App, *events: Event) -> list[str]:
    for event in events:
        app.observe(event)
    app.second()
    view = app.seen().view
    assert view is not None
    return [failure.text for failure in view.failures]


def retried(number: int) -> Retried:
    return Retried("shop", "app:settle", "orders", f"id-{number}", 1, 1.0, "ValueError")


def test_many_retries_do_not_drive_out_the_other_failures() -> None:
    found = texts(App(), COMMIT, *map(retried, range(100)), TopicMissing("shop", "orders"))
    assert len(found) == MOST_FAILURES + 1
    assert "offset of orders@broker-a:0 not committed: refused" in found[0]
    assert "id-99" in found[-1]


def test_a_blocked_loop_is_known_at_once_and_a_failure_when_it_is_over() -> None:
    app = App()
    assert texts(app) == []
    app.observe(BLOCKED)
    app.now += 2.0
    blocked = app.seen().blocked
    assert blocked is not None
    assert blocked.seconds == 6.0
    found = texts(app, LoopBlocked(6.5, "app.py:12", "app:settle"))
    assert app.seen().blocked is None
    assert "blocked the event loop for 6.5 s" in found[0]


def test_a_block_that_is_over_is_not_shown_of_a_process_that_still_starts() -> None:
    app, shown = App(), []
    for event in (BLOCKED, replace(BLOCKED, is_over=True)):
        app.observe(event)
        shown.append(app.seen().blocked is not None)
    assert shown == [True, False]


def test_a_view_that_takes_long_is_taken_less_often_and_never_so_late_that_the_loop_counts_as_blocked() -> None:
    quick, slow = App(), App(cost=0.2)
    ages = {app: [app.second().age for _ in range(20)] for app in (quick, slow)}
    assert max(ages[quick][1:]) <= 1.0
    assert 2.0 <= max(ages[slow][1:]) < LATE - 1.0
