"""Functions of the user, and of plugins, that run when the app starts and stops.

Started in the order of declaration and stopped in the reverse; what ran is remembered, so that only that is undone. A
sync function runs in a thread, so that it may block and use `publish_sync`. A lifespan lives in a task of its own from
enter to exit: task groups and timeouts inside it need that, and start and stop are called from different tasks.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from rocketapp.app.call.arguments import Argument, UnresolvedError, read_lifecycle_signature
from rocketapp.app.call.provided import Part, Providers, async_call, getter, sync_call
from rocketapp.app.places import function_problem, is_async, name_of_function, place_of_function, plain_function
from rocketapp.errors import ConfigError, PluginError, SetupError
from rocketapp.hooks.manager import Hook, Plugins
from rocketapp.hooks.surface import Surface
from rocketapp.tasks import Tasks, scope

_LIFESPAN_NEEDS = "lifespan needs an async generator function, or one under @asynccontextmanager"


When = Literal["on_startup", "on_shutdown", "lifespan"]
"""When a function runs: the name of what declares it."""


@dataclass(frozen=True, slots=True)
class HookFunction:
    """One function, what fills its arguments, and where it stands.

    read: its arguments; `is_last`: what an annotation names has to be there by now.
    """

    hook: When
    function: Callable[..., Any]
    place: str
    read: Callable[..., tuple[Argument, ...]]

    async def run(self, app: object) -> None:
        """Call the function. Raises SetupError with its place and its error."""
        runs_here = is_async(self.function)
        parts = self._parts(runs_here)
        try:
            if runs_here:
                await async_call(self.function, parts)(app)
            else:
                await asyncio.to_thread(sync_call(self.function, parts), app)
        except (Exception, SystemExit) as error:
            # sys.exit() would end the loop past everything that has to be stopped, without a word.
            raise self.failed(error) from error

    async def live(self, app: object, entered: asyncio.Future[None], leaving: asyncio.Event) -> None:
        """Enter the lifespan's context manager, say so, and leave it when `leaving` is set; its arguments live as long.

        Raises SetupError with its place and its error.
        """
        parts = self._parts(True)

        async def live(*positional: Any, **named: Any) -> None:
            async with self._context(self.function(*positional, **named)):
                entered.set_result(None)
                await leaving.wait()

        try:
            await async_call(live, parts)(app)
        except (Exception, SystemExit) as error:
            raise self.failed(error) from error

    def failed(self, error: BaseException) -> SetupError:
        name = name_of_function(self.function)
        return SetupError(self.place, f"{self.hook} function {name} raised {type(error).__name__}: {error}")

    def _context(self, made: Any) -> AbstractAsyncContextManager[Any]:
        if inspect.isasyncgen(made):
            made = contextlib.asynccontextmanager(lambda: made)()
        if not hasattr(made, "__aenter__"):
            raise SetupError(self.place, _LIFESPAN_NEEDS)
        context: AbstractAsyncContextManager[Any] = made
        return context

    def _parts(self, runs_here: bool) -> tuple[Part, ...]:
        """What fills the arguments, for one call. Raises SetupError for what nothing can fill."""
        return tuple(self._part(argument, runs_here) for argument in self.read(is_last=True))

    def _part(self, argument: Argument, runs_here: bool) -> Part:
        if argument.provide is None:
            return argument.part(lambda app: app)  # which is a Publisher, too
        loop = asyncio.get_running_loop()
        get = getter(argument.name, argument.provide, is_async=runs_here, place=self.place, loop=lambda: loop)
        return argument.part(get)


def read_hook(
    hook: When, function: Callable[..., Any], app_class: type[Any], place: str, providers: Providers
) -> HookFunction:
    """Raises SetupError unless something fills its arguments: the app, a Publisher, the container or a plugin."""
    place = place_of_function(function, place)
    if hook != "lifespan" or not callable(function):
        if (problem := function_problem(function)) is not None:
            raise SetupError(place, f"{hook} decorates functions, and app.lifespan those with a yield: {problem}")
    elif inspect.iscoroutinefunction(plain_function(function)):
        raise SetupError(place, f"{_LIFESPAN_NEEDS}: put a yield where the app runs")
    what = f"an {hook} function" if hook != "lifespan" else "a lifespan"
    read = partial(read_lifecycle_signature, function, what, app_class, place, providers)
    with contextlib.suppress(UnresolvedError):
        read(is_last=False)
    return HookFunction(hook, function, place, read)


log: logging.Logger = logging.getLogger("rocketapp.app")


class UserCode:
    """The start and stop functions of one app, from one start to the stop."""

    def __init__(
        self, app: object, functions: Sequence[HookFunction], plugins: Plugins, surface: Surface, *, patience: float
    ) -> None:
        """`patience`: seconds that each function gets while the app stops."""
        self._app, self._functions, self._patience = app, functions, patience
        self._plugins, self._surface = plugins, surface
        self._lifespans = Tasks()
        self._undoing: list[tuple[Callable[[], Coroutine[Any, Any, None]], str]] = []
        """What stops what was started, each with whose it is, in the order of starting."""

    async def start(self) -> None:
        """Plugins, then functions and lifespans in the order of declaration. Raises what the first of them raised."""
        await self.start_plugins()
        for one in self._functions:
            if one.hook == "on_startup":
                await one.run(self._app)
            elif one.hook == "lifespan":
                self._undoing.append((await self._entered(one), one.place))
        shutdown = [one for one in self._functions if one.hook == "on_shutdown"]
        self._undoing += ((partial(one.run, self._app), one.place) for one in shutdown)

    async def start_plugins(self) -> None:
        """The plugins alone, in their order."""
        plugins = self._plugins
        startup = {hook.plugin: hook for hook in plugins.hooks("app_startup")}
        shutdown = {hook.plugin: hook for hook in plugins.hooks("app_shutdown")}
        for name in plugins.names():
            if name in startup:
                await self._run_hook(startup[name])
            if name in shutdown:
                self._undoing.append((partial(self._run_hook, shutdown[name]), f"plugin {name}"))

    async def stop(self, cut: asyncio.Event) -> bool:
        """The reverse of what was started; what fails or takes too long is logged. True when all went well."""
        clean = True
        while self._undoing:
            undo, who = self._undoing.pop()
            clean &= await self._patiently(undo(), cut, who)
        return clean

    async def _entered(self, lifespan: HookFunction) -> Callable[[], Coroutine[Any, Any, None]]:
        """Enter it, in a task that holds it open. Gives what leaves it; cancelling that cuts it off.

        Both raise SetupError with the place of what it raised.
        """
        entered, leaving = asyncio.get_running_loop().create_future(), asyncio.Event()
        task = self._lifespans.start(lifespan.live(self._app, entered, leaving), f"lifespan {lifespan.place}")
        try:
            await asyncio.wait({task, entered}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self._lifespans.end([task])
            raise
        if not entered.done():
            await task

        async def leave() -> None:
            leaving.set()
            await task

        return leave

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
