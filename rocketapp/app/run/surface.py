"""An app as its plugins see it: `hooks.surface.Surface`, over the settings and the subscriptions of one start."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from traceback import extract_tb
from typing import Any, TypeVar, Unpack

from rocketapp.app.declare.declaration import Declaration
from rocketapp.app.declare.phases import TwoPhases, declared_of, handlers_of, publishing_of
from rocketapp.app.places import is_async
from rocketapp.app.settings import Settings
from rocketapp.app.user_code import UserCode
from rocketapp.clock import Clock
from rocketapp.hooks.idempotency import IdempotencyStore
from rocketapp.hooks.manager import HookResult, Plugins
from rocketapp.model.event import Event
from rocketapp.model.outgoing import PublishOptions, SendResult
from rocketapp.model.snapshot import AppSnapshot, Metric
from rocketapp.model.subscription import Subscription
from rocketapp.user_line import line_of_error
from rocketapp.wire.record import Message

log: logging.Logger = logging.getLogger("rocketapp.app")


class PluginFailures:
    """Logs errors of the plugins of one app."""

    def __init__(self) -> None:
        self._told: set[tuple[str, str, str, type[Exception]]] = set()

    def tell(self, who: str, doing: str, error: Exception) -> None:
        """Log an error. `doing`: what the plugin was asked for, in the same words each time."""
        place = _place(error)
        log.debug("%s failed at %s", who, doing, exc_info=error)
        failure = (who, doing, place, type(error))
        if failure in self._told:
            return
        self._told.add(failure)
        text = " ".join(f"{type(error).__name__}: {error}".split())
        log.error("%s: %s failed at %s: %s: further failures like this are not told", place, who, doing, text)


def _place(error: Exception) -> str:
    """The line in the plugin that raised; in an installed plugin the innermost line."""
    if (found := line_of_error(error)) is not None:
        return str(found)
    innermost = extract_tb(error.__traceback__)[-1]
    return f"{Path(innermost.filename).name}:{innermost.lineno}"


class Periodic:
    """Timers for `Surface.every`. They are no tasks, so `stop` need not be awaited."""

    def __init__(self) -> None:
        self._calls: list[tuple[float, Callable[[], None]]] = []
        self._timers: dict[int, asyncio.TimerHandle] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._failures = PluginFailures()

    def add(self, seconds: float, call: Callable[[], None]) -> None:
        """Call this every `seconds`, from the start on, or from now if the app runs already."""
        if seconds <= 0:
            raise ValueError(f"every({seconds}): seconds are more than 0")
        if is_async(call):
            raise TypeError(f"every({seconds}, {call!r}): an async function would never run: give a plain `def`")
        self._calls.append((seconds, call))
        self._arm(len(self._calls) - 1)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        for number in range(len(self._calls)):
            self._arm(number)

    def stop(self) -> None:
        """Stop the timers after one last call of each."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._loop = None
        for _, call in self._calls:
            self._call(call)
        self._calls.clear()

    def _arm(self, number: int) -> None:
        if self._loop is not None:
            self._timers[number] = self._loop.call_later(self._calls[number][0], self._due, number)

    def _due(self, number: int) -> None:
        self._call(self._calls[number][1])
        self._arm(number)

    def _call(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception as error:
            self._failures.tell("a plugin", "a periodic call", error)


T = TypeVar("T")


class AppSurface:
    """One app, as its plugins see it.

    handlers: every handler of the app, complete.
    periodic: the timers of `every`; its owner starts and stops them.
    """

    def __init__(
        self,
        app: TwoPhases,
        settings: Settings,
        *,
        clock: Clock,
        plugins: Plugins | None = None,
        snapshot: Callable[[], AppSnapshot] | None = None,
    ) -> None:
        """Sets the plugins up and asks for their observers. `plugins`: None is those of the app. `snapshot`: None where
        nothing is connected.

        Raises what the plugins raise, PluginError, and SetupError for handlers that cannot be.
        """
        self._app, self._settings, self._clock = app, settings, clock
        self.plugins: Plugins = declared_of(app).plugins if plugins is None else plugins
        self.handlers: Sequence[Declaration] = handlers_of(app, settings)
        self.periodic: Periodic = Periodic()
        self.subscriptions: Sequence[Subscription] = tuple(one.subscription for one in self.handlers)
        nothing = AppSnapshot(cache_limit_bytes=settings.consumer.cache_max_bytes, groups=())
        self.snapshot: Callable[[], AppSnapshot] = snapshot or (lambda: nothing)
        self._stores: list[HookResult] | None = None
        self._failures = PluginFailures()
        self._observers: list[HookResult] = []
        for hook in self.plugins.hooks("app_setup"):
            hook.call(app=self)
        self._observers = self.plugins.ask_for_functions("observe_events", app=self)
        self._metrics: list[HookResult] = self.plugins.ask_for_functions("metrics", app=self)

    @property
    def name(self) -> str:
        return self._app.name

    @property
    def version(self) -> str:
        return self._settings.app.version

    def options(self, table: type[T]) -> T:
        return self._settings.options(table)

    def now(self) -> datetime:
        return datetime.fromtimestamp(self._clock.now(), UTC)

    def every(self, seconds: float, call: Callable[[], None]) -> None:
        self.periodic.add(seconds, call)

    def observe(self, event: Event) -> None:
        """Pass an event to every observer. An observer that fails disturbs neither the engine nor the others."""
        for one in self._observers:
            try:
                one.value(event)
            except Exception as error:
                self._failures.tell(f"plugin {one.plugin}", f"the event {type(event).__name__}", error)

    def user_code(self) -> UserCode:
        """The functions of plugins and of the app that run at start and stop."""
        functions, patience = declared_of(self._app).lifecycle_hooks, self._settings.app.drain_timeout
        return UserCode(self._app, functions, self.plugins, self, patience=patience)

    def halt(self) -> None:
        """In a forked child: report no more events."""
        self._observers.clear()

    def metrics(self, now: AppSnapshot) -> tuple[Metric, ...]:
        """The metrics of plugins for this snapshot."""
        found: list[Metric] = []
        for one in self._metrics:
            try:
                found += one.value(now)
            except Exception as error:
                self._failures.tell(f"plugin {one.plugin}", "its metrics", error)
        return tuple(found)

    def idempotency_store(self) -> IdempotencyStore | None:
        if self._stores is None:
            self._stores = self.plugins.ask("idempotency_store", app=self)
        return self._stores[-1].value if self._stores else None

    def reader(self, kind: Any, content_type: str | None = None) -> Callable[[Message], Any]:
        return declared_of(self._app).payloads.reading(kind, content_type)

    async def publish(self, topic: str, body: Any, **options: Unpack[PublishOptions]) -> SendResult:
        return await publishing_of(self._app).publish(topic, body, **options)
