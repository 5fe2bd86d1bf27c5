"""An app with its plugins started, for calls of its handlers: no broker is there, and the app does not run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from rocketapp.app.app import RocketApp
from rocketapp.app.declare.phases import declared_of, is_running, kept
from rocketapp.app.run.inside import Unconnected
from rocketapp.app.run.reading import policed_subscriptions
from rocketapp.app.run.surface import AppSurface, Periodic
from rocketapp.app.run.user_code import UserCode
from rocketapp.app.settings.settings import Settings
from rocketapp.model.outgoing import Outgoing
from rocketapp.model.snapshot import AppSnapshot
from rocketapp.model.subscription import Subscription
from rocketapp.testing.records import Published, published_of
from rocketapp.testing.stage import settings_of


@dataclass(slots=True)
class _Started:
    """The plugins of one app, started once for all calls at this moment."""

    calls: int = 0
    code: UserCode | None = None


@asynccontextmanager
async def prepared(app: RocketApp) -> AsyncIterator[list[Subscription]]:
    """Within: the plugins of the app know its settings and are started. Gives its complete subscriptions.

    Plugins of an app that runs, under TestApp for example, are started already. Raises what plugins raise.
    """
    settings, declared = settings_of(app, {}, None), declared_of(app)
    subscriptions = policed_subscriptions(app, settings, declared.plugins)
    if is_running(app):
        yield subscriptions
        return
    started = kept(app, _Started)
    started.calls += 1
    try:
        if started.code is None:
            started.code = _plugins_of(app, settings, subscriptions)
            declared.settings_in_use = settings
            await started.code.start_plugins()
        yield subscriptions
    finally:
        started.calls -= 1
        if not started.calls and started.code is not None:
            code, started.code = started.code, None
            await code.stop(asyncio.Event())
            declared.settings_in_use = None


def _plugins_of(app: RocketApp, settings: Settings, subscriptions: Sequence[Subscription]) -> UserCode:
    """Observers are asked here, so that plugins see the settings before they wrap a handler."""
    snapshot = AppSnapshot(cache_limit_bytes=settings.consumer.cache_max_bytes, groups=())
    plugins = declared_of(app).plugins
    surface = AppSurface(
        app,
        settings,
        subscriptions,
        publishing=Collecting(app, []).publishing,
        periodic=Periodic(),
        plugins=plugins,
        snapshot=lambda: snapshot,
    )
    return UserCode(app, plugins, surface, patience=settings.app.drain_timeout)


class Collecting(Unconnected):
    """Keeps what is published as records."""

    def __init__(self, app: RocketApp, published: list[Published]) -> None:
        super().__init__(app)
        self._published, self._payloads = published, declared_of(app).payloads

    def keep(self, message: Outgoing, cluster: str) -> int:
        self._published.append(published_of(message, cluster, self.loop.time(), self._payloads))
        return len(self._published)
