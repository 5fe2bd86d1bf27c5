"""Arguments that a container provides: opened and closed per message where they are generators.

A provider that gives a generator, such as a Factory of a generator function, has the scope of one attempt: it is
opened before the handler and closed after it. A handler that fails or is cancelled throws its exception into the
generator, as into a context manager; the generator can change the exception, but not turn it into success.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from types import AsyncGeneratorType, GeneratorType
from typing import Any, NamedTuple

from rocketapp.errors import SetupError
from rocketapp.hooks.answers import CheckedArgument
from rocketapp.model.subscription import Subscription

Get = Callable[[Any], Any]


class Part(NamedTuple):
    """How one argument of a handler is filled."""

    name: str | None
    """For an argument that is given by name."""
    is_provided: bool
    get: Get


def async_call(function: Callable[..., Any], parts: tuple[Part, ...]) -> Callable[[Any], Any]:
    """A provider of the container may be asynchronous or a generator; whether it is shows when it is asked."""

    async def call(message: Any) -> Any:
        positional: list[Any] = []
        named: dict[str, Any] = {}
        opened: AsyncExitStack | None = None
        try:
            for name, is_provided, get in parts:
                value = get(message)
                if is_provided:
                    if inspect.isawaitable(value):
                        value = await value
                    if isinstance(value, GeneratorType | AsyncGeneratorType):
                        opened = opened or AsyncExitStack()
                        value = await _entered(opened, value)
                if name is None:
                    positional.append(value)
                else:
                    named[name] = value
            result = await function(*positional, **named)
        except BaseException as error:
            if opened is not None:
                await opened.__aexit__(type(error), error, error.__traceback__)
            raise
        if opened is not None:
            await opened.aclose()
        return result

    return call


def sync_call(function: Callable[..., Any], parts: tuple[Part, ...]) -> Callable[[Any], Any]:
    """The same for a handler in a thread."""

    def call(message: Any) -> Any:
        positional: list[Any] = []
        named: dict[str, Any] = {}
        opened: ExitStack | None = None
        try:
            for name, is_provided, get in parts:
                value = get(message)
                if is_provided and isinstance(value, GeneratorType):
                    opened = opened or ExitStack()
                    value = opened.enter_context(_context_of(value))
                if name is None:
                    positional.append(value)
                else:
                    named[name] = value
            result = function(*positional, **named)
        except BaseException as error:
            if opened is not None:
                opened.__exit__(type(error), error, error.__traceback__)
            raise
        if opened is not None:
            opened.close()
        return result

    return call


def getter(
    name: str, provide: Callable[[], Any], subscription: Subscription, loop: Callable[[], asyncio.AbstractEventLoop]
) -> Get:
    """Message -> what the provider gives. Raises SetupError for one that this handler cannot have.

    loop: that of the running app. An asynchronous provider is asked there for a handler in a thread.
    """
    if isinstance(provide, CheckedArgument):
        problem = provide.problem(subscription)
        if problem is not None:
            raise SetupError(subscription.place, f"{subscription.handler_name}: argument {name!r}: {problem}")
        provide = provide.provide
    if subscription.is_async:
        return lambda _message: provide()
    if is_scoped(provide) and inspect.isasyncgenfunction(getattr(provide, "provides", None)):
        raise SetupError(subscription.place, f"argument {name!r}: {_MUST_BE_ASYNC.format('an async generator')}")
    if _needs_loop(provide):
        return lambda _message: _asked_on(loop(), provide)

    def get(_message: Any) -> Any:
        value = provide()
        if inspect.isawaitable(value) or isinstance(value, AsyncGeneratorType):
            if inspect.iscoroutine(value):
                value.close()
            raise SetupError(subscription.place, f"argument {name!r}: {_MUST_BE_ASYNC.format('asynchronous')}")
        return value

    return get


_MUST_BE_ASYNC = "its provider is {}, so the handler must be `async def`"


def is_scoped(provider: Any) -> bool:
    """Whether a provider of a container gives a generator. That of a Resource is opened with the app instead."""
    made_by = getattr(provider, "provides", None)
    is_generator = inspect.isgeneratorfunction(made_by) or inspect.isasyncgenfunction(made_by)
    return is_generator and not _is_resource(provider)


def _is_resource(provider: Any) -> bool:
    return hasattr(provider, "init") and hasattr(provider, "shutdown")


def _needs_loop(provide: Any) -> bool:
    """Whether asking the provider, or one that it depends on, needs a running loop."""
    traverse = getattr(provide, "traverse", None)
    return traverse is not None and any(_is_asynchronous(one) for one in (provide, *traverse()))


def _is_asynchronous(provider: Any) -> bool:
    made_by = getattr(provider, "provides", None)
    if _is_resource(provider):
        # A Resource wraps its generator function as a context manager.
        made_by = inspect.unwrap(made_by) if inspect.isfunction(made_by) else getattr(made_by, "init", made_by)
        if inspect.isasyncgenfunction(made_by):
            return True
    return inspect.iscoroutinefunction(made_by)


def _asked_on(loop: asyncio.AbstractEventLoop, provide: Callable[[], Any]) -> Any:
    async def ask() -> Any:
        value = provide()
        return await value if inspect.isawaitable(value) else value

    return asyncio.run_coroutine_threadsafe(ask(), loop).result()


async def _entered(opened: AsyncExitStack, value: Any) -> Any:
    if isinstance(value, AsyncGeneratorType):
        return await opened.enter_async_context(asynccontextmanager(lambda: value)())
    return opened.enter_context(_context_of(value))


def _context_of(value: Any) -> Any:
    return contextmanager(lambda: value)()
