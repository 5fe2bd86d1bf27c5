"""Functions of the user that run when the app starts and stops.

Started in the order of declaration and stopped in the reverse. A sync function runs in
a thread, so that it may block and use `publish_sync`.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import typing
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from enum import Enum
from typing import Any

from rocketapp.app.places import is_async, name_of_function, place_of_function, plain_function
from rocketapp.errors import SetupError

_LIFESPAN_NEEDS = "lifespan needs an async generator function, or one under @asynccontextmanager"


class LifecycleHook(Enum):
    """When a function runs."""

    STARTUP = "on_startup"
    SHUTDOWN = "on_shutdown"
    LIFESPAN = "lifespan"


@dataclass(frozen=True, slots=True)
class HookFunction:
    """One function, what it is given, and where it stands."""

    hook: LifecycleHook
    function: Callable[..., Any]
    takes_app: bool
    place: str

    async def run(self, app: object) -> None:
        """Call the function. Raises SetupError with its place and its error."""
        try:
            if is_async(self.function):
                await self.function(*self._arguments(app))
            else:
                await asyncio.to_thread(self.function, *self._arguments(app))
        except (Exception, SystemExit) as error:
            # sys.exit() would end the loop past everything that has to be stopped, without a word.
            raise self.failed(error) from error

    def context(self, app: object) -> AbstractAsyncContextManager[Any]:
        """The lifespan's context manager."""
        try:
            made = self.function(*self._arguments(app))
        except Exception as error:
            raise self.failed(error) from error
        if inspect.isasyncgen(made):
            made = contextlib.asynccontextmanager(lambda: made)()
        if not hasattr(made, "__aenter__"):
            raise SetupError(self.place, _LIFESPAN_NEEDS)
        context: AbstractAsyncContextManager[Any] = made
        return context

    def failed(self, error: BaseException) -> SetupError:
        name = name_of_function(self.function)
        return SetupError(self.place, f"{self.hook.value} function {name} raised {type(error).__name__}: {error}")

    def _arguments(self, app: object) -> tuple[object, ...]:
        return (app,) if self.takes_app else ()


def read_hook(hook: LifecycleHook, function: Callable[..., Any], app_class: type[Any], place: str) -> HookFunction:
    """Raises SetupError unless the function takes nothing, or the app alone."""
    if not callable(function):
        raise SetupError(
            place, f"{hook.value} decorates functions, and {function!r} cannot be called: write it without brackets"
        )
    place = place_of_function(function, place)
    _check_kind(hook, plain_function(function), place)
    signature = inspect.signature(function)
    required = [
        parameter
        for parameter in signature.parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    if len(required) > 1 or any(parameter.kind is parameter.KEYWORD_ONLY for parameter in required):
        raise SetupError(
            place, f"{hook.value} functions take nothing, or the app alone: give the other arguments defaults"
        )
    if required and not _may_be_app(function, required[0], app_class):
        wanted = f"argument {required[0].name!r} of an {hook.value} function can only be the app"
        raise SetupError(place, f"{wanted}: annotate it as {app_class.__name__}, or remove it")
    return HookFunction(hook, function, bool(required), place)


def _check_kind(hook: LifecycleHook, plain: Any, place: str) -> None:
    if hook is LifecycleHook.LIFESPAN:
        if inspect.iscoroutinefunction(plain):
            raise SetupError(place, f"{_LIFESPAN_NEEDS}: put a yield where the app runs")
    elif inspect.isgeneratorfunction(plain) or inspect.isasyncgenfunction(plain):
        raise SetupError(
            place, f"{hook.value} functions cannot be generators: their code would never run; use app.lifespan"
        )


def _may_be_app(function: Callable[..., Any], parameter: inspect.Parameter, app_class: type[Any]) -> bool:
    annotation = parameter.annotation
    if annotation is parameter.empty:
        return True
    if isinstance(annotation, str):
        # Only this annotation is resolved: the others of the signature may name what does not exist yet.
        names = getattr(plain_function(function), "__globals__", {})
        try:
            meant: object = eval(annotation, names)  # the user's own annotation, in its own module
        except Exception:
            return str(annotation).rpartition(".")[2] == app_class.__name__
        annotation = meant
    is_base = isinstance(annotation, type) and issubclass(app_class, annotation)
    return is_base or annotation is typing.Any
