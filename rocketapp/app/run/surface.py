"""An app as its plugins see it: `hooks.surface.Surface`, over the settings and the subscriptions of one run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, Unpack

from rocketapp.app.declare.phases import TwoPhases, declared_of
from rocketapp.app.inject.providers import ContainerProviders
from rocketapp.app.publish.publishing import Publishing
from rocketapp.app.run.periodic import Periodic
from rocketapp.app.run.plugin_failures import PluginFailures
from rocketapp.app.settings.settings import Settings
from rocketapp.errors import PluginError
from rocketapp.hooks.idempotency import IdempotencyStore
from rocketapp.hooks.manager import HookResult, Plugins
from rocketapp.hooks.metrics import ReadMetrics
from rocketapp.model.event import Event, Observe
from rocketapp.model.metric import Metric
from rocketapp.model.outgoing import SendResult
from rocketapp.model.publish_options import PublishOptions
from rocketapp.model.snapshot import AppSnapshot
from rocketapp.model.subscription import Subscription
from rocketapp.wire.record import Message

T = TypeVar("T")


class AppSurface:
    """One app, seen by its plugins."""

    def __init__(
        self,
        app: TwoPhases,
        settings: Settings,
        subscriptions: Sequence[Subscription],
        *,
        publishing: Publishing,
        periodic: Periodic,
        plugins: Plugins,
        snapshot: Callable[[], AppSnapshot],
    ) -> None:
        """Sets the plugins up and asks for their observers. Raises what they raise, and PluginError."""
        self._app, self._settings, self._publishing = app, settings, publishing
        self._periodic, self._plugins = periodic, plugins
        self.subscriptions: Sequence[Subscription] = tuple(subscriptions)
        self.snapshot = snapshot
        self._stores: list[HookResult] | None = None
        self._failures = PluginFailures()
        self._observers: list[tuple[str, Observe]] = []
        self._metrics: list[tuple[str, ReadMetrics]] = []
        for hook in plugins.hooks("app_setup"):
            hook.call(app=self)
        for answer in plugins.ask("observe_events", app=self):
            if not callable(answer.value):
                raise PluginError(
                    answer.plugin, f"observe_events returned {answer.value!r}: return a function, or None"
                )
            self._observers.append((answer.plugin, answer.value))
        for answer in plugins.ask("metrics", app=self):
            if not callable(answer.value):
                raise PluginError(answer.plugin, f"metrics returned {answer.value!r}: return a function, or None")
            self._metrics.append((answer.plugin, answer.value))

    @property
    def name(self) -> str:
        return self._app.name

    @property
    def version(self) -> str:
        return self._settings.app.version

    def options(self, table: type[T]) -> T:
        return self._settings.options(table)

    def provider(self, what: type[Any] | str) -> Callable[[], Any]:
        container = declared_of(self._app).container
        if container is None:
            raise LookupError(f"{what!r}: the app has no container, RocketApp(container=...)")
        return ContainerProviders(container).provider(what)

    def every(self, seconds: float, call: Callable[[], None]) -> None:
        self._periodic.add(seconds, call)

    def observe(self, event: Event) -> None:
        """To every observer; none of them can disturb the engine or another one."""
        for plugin, observer in self._observers:
            try:
                observer(event)
            except Exception as error:
                self._failures.tell(f"plugin {plugin}", f"the event {type(event).__name__}", error)

    def halt(self) -> None:
        """In a forked child: what happens there is told to no observer, as it is not what becomes of the messages."""
        self._observers.clear()

    def metrics(self, now: AppSnapshot) -> tuple[Metric, ...]:
        """What the plugins measure, beside this snapshot."""
        found: list[Metric] = []
        for plugin, read in self._metrics:
            try:
                found += read(now)
            except Exception as error:
                self._failures.tell(f"plugin {plugin}", "its metrics", error)
        return tuple(found)

    def idempotency_store(self) -> IdempotencyStore | None:
        if self._stores is None:
            self._stores = self._plugins.ask("idempotency_store", app=self)
        return self._stores[-1].value if self._stores else None

    def encode(self, body: Any, content_type: str | None = None) -> tuple[bytes, Mapping[str, str]]:
        return declared_of(self._app).payloads.encode(body, content_type)

    def reader(self, kind: Any, content_type: str | None = None) -> Callable[[Message], Any]:
        return declared_of(self._app).payloads.reading(kind, content_type)

    async def publish(self, topic: str, body: Any, **options: Unpack[PublishOptions]) -> SendResult:
        return await self._publishing.publish(topic, body, **options)
