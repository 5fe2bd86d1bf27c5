"""Runs what users and plugins do at start and stop; knows what ran, so that only that is undone.

A lifespan lives in a task of its own from enter to exit: task groups and timeouts
inside it need that, and start and stop are called from different tasks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from rocketapp.app.declare.lifecycle_hooks import HookFunction, LifecycleHook
from rocketapp.app.declare.phases import TwoPhases, declared_of
from rocketapp.errors import ConfigError, PluginError, SetupError
from rocketapp.hooks.manager import Hook, Plugins
from rocketapp.hooks.surface import Surface
from rocketapp.tasks import Tasks, scope

log: logging.Logger = logging.getLogger("rocketapp.app")


class UserCode:
    """The start and stop functions of one run of one app."""

    def __init__(self, app: TwoPhases, plugins: Plugins, surface: Surface, *, patience: float) -> None:
        """`patience`: seconds that each function gets while the app stops."""
        self._app, self._all_plugins, self._surface, self._patience = app, plugins, surface, patience
        self._plugins: list[str] = []
        """Those whose start was completed."""
        self._lifespans: list[Lifespan] = []
        self._is_started = False

    async def start(self) -> None:
        """Plugins, then functions and lifespans in the order of declaration. Raises what the first of them raised."""
        await self.start_plugins()
        for one in declared_of(self._app).lifecycle_hooks:
            if one.hook is LifecycleHook.STARTUP:
                await one.run(self._app)
            elif one.hook is LifecycleHook.LIFESPAN:
                lifespan = Lifespan(one)
                await lifespan.enter(self._app)
                self._lifespans.append(lifespan)
        self._is_started = True

    async def start_plugins(self) -> None:
        """The plugins alone, in their order."""
        plugins = self._all_plugins
        with_startup = {hook.plugin: hook for hook in plugins.hooks("app_startup")}
        for name in plugins.names():
            if name in with_startup:
                await self._run_hook(with_startup[name])
            self._plugins.append(name)

    async def stop(self, cut: asyncio.Event) -> bool:
        """The reverse of what was started; what fails or takes too long is logged. True when all went well."""
        clean = True
        if self._is_started:
            for one in reversed(declared_of(self._app).lifecycle_hooks):
                if one.hook is LifecycleHook.SHUTDOWN:
                    clean &= await self._patiently(one.run(self._app), cut, one.place)
        while self._lifespans:
            lifespan = self._lifespans.pop()
            clean &= await self._patiently(lifespan.leave(), cut, lifespan.place)
        shutdown = {hook.plugin: hook for hook in self._all_plugins.hooks("app_shutdown")}
        while self._plugins:
            hook = shutdown.get(self._plugins.pop())
            if hook is not None:
                clean &= await self._patiently(self._run_hook(hook), cut, f"plugin {hook.plugin}")
        self._is_started = False
        return clean

    async def _run_hook(self, hook: Hook) -> None:
        waiting = hook.call(app=self._surface)
        if waiting is not None:
            try:
                await waiting
            except (ConfigError, SetupError, PluginError):
                raise  # it names its place
            except (Exception, SystemExit) as error:
                raise hook.failed(error) from error

    async def _patiently(self, work: Coroutine[Any, Any, None], cut: asyncio.Event, who: str) -> bool:
        """Do it, unless `cut` is set or patience is over first; False, and a line, when it did not end well."""
        async with scope(work, cut.wait()) as (doing, cutting):
            await asyncio.wait({doing, cutting}, timeout=self._patience, return_when=asyncio.FIRST_COMPLETED)
        if doing.cancelled():
            log.error("%s: cut off while the app stopped", who)
            return False
        error = doing.exception()
        if error is not None:
            log.error("%s", error)
            log.debug("%s", who, exc_info=error)
        return error is None


class Lifespan:
    """One async context manager, held open by a task."""

    def __init__(self, function: HookFunction) -> None:
        self._function = function
        self._leaving = asyncio.Event()
        self._tasks = Tasks()
        self._task: asyncio.Task[None]

    @property
    def place(self) -> str:
        return self._function.place

    async def enter(self, app: TwoPhases) -> None:
        """Raises SetupError with the place of what it raised."""
        entered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = self._tasks.start(self._live(app, entered), f"lifespan {self.place}")
        try:
            await asyncio.wait({self._task, entered}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self._tasks.close()
            raise
        if not entered.done():
            await self._task

    async def leave(self) -> None:
        """Raises SetupError with the place of what it raised; cancelling cuts it off."""
        self._leaving.set()
        await self._task

    async def _live(self, app: TwoPhases, entered: asyncio.Future[None]) -> None:
        try:
            async with self._function.context(app):
                entered.set_result(None)
                await self._leaving.wait()
        except (Exception, SystemExit) as error:
            raise self._function.failed(error) from error
