"""Arguments that a container, a plugin or the settings provide, and the overrides of tests.

A provider that returns a generator, such as a Factory of a generator function, has the scope of one attempt: opened
before the handler, closed after it. A handler that fails or is cancelled throws its exception into the generator, as
into a context manager; the generator can change the exception, but not turn it into success.

dependency_injector is slow to import: functions here do it, for apps that have a container.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager, nullcontext
from functools import partial
from types import AsyncGeneratorType, GeneratorType
from typing import Any, NamedTuple, cast

from rocketapp.app.payloads import Payloads
from rocketapp.errors import SetupError
from rocketapp.hooks.hook_types import CheckedArgument
from rocketapp.hooks.manager import Plugins
from rocketapp.model.subscription import Subscription

Get = Callable[[Any], Any]


class Part(NamedTuple):
    """How one argument of a handler is filled.

    name: for a keyword argument.
    """

    name: str | None
    is_provided: bool
    get: Get


def async_call(function: Callable[..., Any], parts: Sequence[Part]) -> Callable[[Any], Any]:
    """Calls an async handler with provided arguments.

    A provider may be async or a generator, which shows when it is called.
    """

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


def sync_call(function: Callable[..., Any], parts: Sequence[Part]) -> Callable[[Any], Any]:
    """Calls a sync handler, in its thread, with provided arguments."""

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


def checked(name: str, provide: Callable[[], Any], subscription: Subscription) -> Callable[[], Any]:
    """The provider, after the check whether this handler can have the argument. Raises SetupError when it cannot."""
    if isinstance(provide, CheckedArgument):
        problem = provide.problem(subscription)
        if problem is not None:
            raise SetupError(subscription.place, f"{subscription.handler_name}: argument {name!r}: {problem}")
        return provide.provide
    return provide


def getter(
    name: str,
    provide: Callable[[], Any],
    *,
    is_async: bool,
    place: str,
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> Get:
    """A function from a message to the provided value. Raises SetupError for a provider that a thread cannot call.

    loop: of the running app: there an async provider is called for a function in a thread.
    """
    if is_scoped(provide):
        # Python 3.11 takes a generator for a coroutine, and the container would make a Future of whatever overrides it.
        cast(Any, provide).disable_async_mode()
    if is_async:
        return lambda _message: provide()
    must_be_async = f"argument {name!r}: its provider is asynchronous, so the function must be `async def`"
    if is_scoped(provide) and inspect.isasyncgenfunction(getattr(provide, "provides", None)):
        raise SetupError(place, must_be_async)
    if _needs_loop(provide):
        return lambda _message: _asked_on(loop(), provide)

    def get(_message: Any) -> Any:
        value = provide()
        if inspect.isawaitable(value) or isinstance(value, AsyncGeneratorType):
            if inspect.iscoroutine(value):
                value.close()
            raise SetupError(place, must_be_async)
        return value

    return get


def is_scoped(provider: Any) -> bool:
    """Whether a provider of a container returns a generator. A Resource is opened with the app instead."""
    made_by = getattr(provider, "provides", None)
    is_generator = inspect.isgeneratorfunction(made_by) or inspect.isasyncgenfunction(made_by)
    return is_generator and not _is_resource(provider)


def _is_resource(provider: Any) -> bool:
    return hasattr(provider, "init") and hasattr(provider, "shutdown")


def _needs_loop(provide: Any) -> bool:
    """Whether calling the provider, or one that it depends on, needs a running loop."""
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


class Providers:
    """Where arguments beside the message come from: the app's own settings, its container, its plugins."""

    def __init__(
        self,
        container: Any,
        options: type[Any] | None,
        values: Callable[[type[Any]], Any],
        plugins: Callable[[], Plugins],
        payloads: Payloads,
    ) -> None:
        """`container`: None when the app has none. `options`: the class of the app's own settings table; `values` gives
        it.

        `plugins`: called at each look-up. `payloads`: decodes bodies.
        """
        self.payloads: Payloads = payloads
        self._container, self._options, self._values, self._plugins = container, options, values, plugins

    @classmethod
    def none(cls, payloads: Payloads) -> Providers:
        """For a function that gets the message or its payload, and nothing else."""
        return cls(None, None, lambda kind: None, Plugins, payloads)

    @property
    def has_container(self) -> bool:
        return self._container is not None

    def marked(self, marker: Any) -> Callable[[], Any]:
        """The provider for `Provide["db"]` or `Provide[Shop.db]`; for `Provider[...]` the provider object itself.

        Raises LookupError with the reason.
        """
        if self._container is None:
            raise LookupError("the app has no container: give it one, RocketApp(container=...)")
        # A marker comes from this module, so it is imported already; it is slow, so apps without markers do without.
        from dependency_injector.wiring import Provider, ProvidersMap

        provider = ProvidersMap(self._container).resolve_provider(marker.provider, marker.modifier)
        if provider is None:
            known = _known_in(self._container)
            raise LookupError(f"the container has no provider {marker.provider!r}: it has {known}")
        _refuse_nested(provider, marker.provider)
        found = cast(Callable[[], Any], provider)
        return (lambda: found) if isinstance(marker, cast(type, Provider)) else found

    def of_type(self, kind: Any) -> Callable[[], Any] | None:
        """The provider of exactly this class, or the app's own settings table; None without one.

        Raises LookupError when there are several.
        """
        if self._options is not None and kind is self._options:
            return partial(self._values, kind)
        known = {} if self._container is None else self._container.providers
        named = {
            name: provider
            for name, provider in known.items()
            if isinstance(kind, type) and getattr(provider, "provides", None) is kind
        }
        if len(named) > 1:
            which = " and ".join(sorted(named))
            raise LookupError(
                f"{which} of the container all provide {kind.__qualname__}: choose one with = Provide[{min(named)!r}]"
            )
        if not named:
            return None
        ((name, provider),) = named.items()
        _refuse_nested(provider, name)
        return cast(Callable[[], Any], provider)

    def of_plugin(self, kind: Any) -> Callable[[], Any] | None:
        """The provider of a plugin for an annotation that nothing else fills, or None.

        Raises PluginError for an answer that cannot be called, LookupError when several plugins answer.
        """
        answers = self._plugins().ask_for_functions("argument_provider", kind=kind)
        if len(answers) > 1:
            raise LookupError(f"plugins {' and '.join(answer.plugin for answer in answers)} all provide {kind!r}")
        provide: Callable[[], Any] | None = answers[0].value if answers else None
        return provide


def _known_in(container: Any) -> str:
    """The names of the user's own providers, for error messages."""
    names = [] if container is None else [name for name in container.providers if not name.startswith("__")]
    return ", ".join(sorted(names)) or "none"


def _refuse_nested(provider: Any, name: object) -> None:
    """Refuse a generator as an argument of another provider: it would never be opened."""
    nested = next((one for one in provider.traverse() if is_scoped(one)), None)
    if nested is not None:
        raise LookupError(
            f"{name!r} of the container depends on the generator {nested.provides.__qualname__}, which only a handler "
            "can ask for: make both one generator function"
        )


def instance_of(container: object, place: str) -> Any:
    """The container, or an instance of a container class. Raises SetupError for anything else."""
    from dependency_injector import containers

    if isinstance(container, type) and issubclass(container, containers.DeclarativeContainer):
        container = container()
    if not containers.is_container(container):
        raise SetupError(place, f"container={container!r} is not a dependency_injector container")
    return container


@contextmanager
def overridden(container: Any, overrides: Mapping[str, object], place: str) -> Iterator[None]:
    """Context manager in which providers of the app's container give these values, or what these providers give.

    container: None when the app has none. place: of the app. Raises SetupError for a name that the container lacks.
    """
    if missing := sorted(overrides.keys() - (set() if container is None else container.providers.keys())):
        problem = f"the app's container has no such provider: it has {_known_in(container)}"
        raise SetupError(place, f"overrides={missing[0]!r}: {problem}")
    with container.override_providers(**overrides) if overrides else nullcontext():
        yield
