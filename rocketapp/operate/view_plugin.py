"""The plugin behind `--http`: takes a view of its process every second and keeps the last failures."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from rocketapp.clock import SystemClock
from rocketapp.model.event import (
    CommitFailed,
    DeadLettered,
    DrainCut,
    Dropped,
    Event,
    HandlerSlow,
    LoopBlocked,
    LoopFailed,
    Observe,
    Retried,
    SendAttemptFailed,
    SendBackFailed,
)
from rocketapp.operate.aggregate import durations_of
from rocketapp.operate.app_state import DeadLetterLine, FailureLine, ProcessView
from rocketapp.operate.stalls import Stalls
from rocketapp.plugin import PublishWrapper, Subscription, Surface, Wrapper, hookimpl
from rocketapp.plugins.counts import Counts
from rocketapp.plugins.log_lines import line_of

INTERVAL = 1.0
"""Seconds between two views."""
LONGEST_INTERVAL = 3.0
_SHARE = 0.02
"""The most of its time that a process spends on views: with thousands of queues they are taken less often."""
MOST_FAILURES = 20
LONGEST_REASON = 1000
"""Characters of a dead letter's reason that are shown."""
_FAILURES = (CommitFailed, DrainCut, Dropped, HandlerSlow, LoopFailed, Retried, SendAttemptFailed, SendBackFailed)


class ViewPlugin:
    """Reports views of this process, taken on its event loop, and what blocks that loop."""

    def __init__(
        self,
        *,
        durations: bool = False,
        viewed: Callable[[ProcessView], None],
        blocked: Callable[[LoopBlocked], None],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`durations`: measure handlers and sends.

        `viewed` is called on the loop with each view; `blocked` from a thread, when the loop is found blocked, and
        on the loop when that is over.
        """
        self._viewed, self._blocked, self._now = viewed, blocked, now
        self._clock = SystemClock()
        self._counts = Counts() if durations else None
        self._app: Surface | None = None
        self._stalls = Stalls()
        self._failures: deque[FailureLine] = deque(maxlen=MOST_FAILURES)
        self._retries: deque[FailureLine] = deque(maxlen=MOST_FAILURES)
        """Apart, because they may come by the hundred: other failures stay to be seen."""
        self._dead_letters: deque[DeadLetterLine] = deque(maxlen=MOST_FAILURES)
        self._next = float("-inf")

    def __repr__(self) -> str:
        return f"<ViewPlugin: {len(self._failures)} failures>"

    @hookimpl
    def observe_events(self, app: Surface) -> Observe:
        self._app = app
        app.every(INTERVAL, self.take)
        return self._observe

    @hookimpl
    def handler_wrapper(self, subscription: Subscription) -> Wrapper | None:
        return None if self._counts is None else self._counts.handler(subscription)

    @hookimpl(trylast=True)
    def publish_wrapper(self) -> PublishWrapper | None:
        return None if self._counts is None else self._counts.publishing

    def take(self) -> None:
        """Take a view, on the loop. Left out when the last one took long and is recent enough."""
        began = self._now()
        if self._app is None or began < self._next:
            return
        snapshot = self._app.snapshot()
        stalls = self._stalls.look(began, snapshot)
        failures = tuple(sorted((*self._failures, *self._retries), key=lambda one: one.at))
        durations = () if self._counts is None else durations_of(self._counts)
        view = ProcessView(
            app=self._app.name,
            snapshot=snapshot,
            stalls=stalls,
            unassigned=self._stalls.look_at_groups(began, snapshot),
            failures=failures,
            dead_letters=tuple(self._dead_letters),
            durations=durations,
        )
        self._viewed(view)
        took = self._now() - began
        self._next = began + min(LONGEST_INTERVAL, took / _SHARE) - INTERVAL / 2

    def joined(self) -> None:
        """Every group knows its queues: take a view at once, before the app is reported as consuming."""
        self._next = float("-inf")
        self.take()

    def _observe(self, event: Event) -> None:
        if isinstance(event, LoopBlocked):
            self._blocked(event)
            if not event.is_over:
                return
        elif isinstance(event, DeadLettered):
            self._dead_letters.append(_line_of_dead(event, self._clock.now()))
            return
        elif not isinstance(event, _FAILURES):
            return
        kept = self._retries if isinstance(event, Retried) else self._failures
        kept.append(FailureLine(at=self._clock.now(), text=line_of(event).text))


def _line_of_dead(event: DeadLettered, at: float) -> DeadLetterLine:
    return DeadLetterLine(
        at=at,
        group=event.group,
        handler=event.handler,
        topic=event.topic,
        message_id=event.message_id,
        attempt=event.attempt,
        reason=event.reason[:LONGEST_REASON],
    )
