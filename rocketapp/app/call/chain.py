"""What stands around a handler: layers in one order, folded into one callable once, at start.

Everything that stands there names its layer. Of several in one layer those of plugins are outside, with the last
registered first; then come those of the app and of each router, the first declared outermost. What nobody declared is
not there. Around a polled handler stand the wrappers that say so, and nothing else.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import CodeType
from typing import Any, Final, NamedTuple

from rocketapp.app.places import is_async, is_generator, name_of_function, place_of_function, takes
from rocketapp.errors import PluginError, SetupError
from rocketapp.hooks.answers import Predicate, Wrapper, Write
from rocketapp.hooks.manager import HookResult, Plugins, code_of
from rocketapp.model.outcome import Outcome, Skip, is_outcome
from rocketapp.model.subscription import Subscription, kind_of

Call = Callable[..., Any]
ORDER: Final = (
    "telemetry",
    "filter",
    "idempotency",
    "answer",
    "exceptions",
    "database",
    "outbox",
    "middleware",
    "arguments",
    "timeout",
)
"""The layers around a handler, outermost first.

A mark in an outside store is kept when what is inside has ended well, also the answer or the publication. These leave
the process when the transaction has been committed; a publication that an outbox takes is part of the transaction.
Exceptions are mapped outside of the transaction, so that they roll it back.
"""


class Layer(NamedTuple):
    """One of the things that stand around a handler."""

    name: str
    """Where: one of ORDER."""
    of: str
    """What stands there, for people: a plugin, a middleware, a topic."""
    build: Callable[[Call], Call]
    """Makes of the next callable the one in front of it."""
    plugin: str = ""
    """Whose it is; empty for what is the app's own."""
    write: Write | None = None
    """Of a transaction: writes a message that is sent when it is committed, into its outbox."""


def in_order(layers: Iterable[Layer]) -> list[Layer]:
    """Outermost first. Within one layer they stay as they were found."""
    return sorted(layers, key=lambda layer: ORDER.index(layer.name))


def fold(function: Call, layers: Sequence[Layer], owners: dict[CodeType, str] | None = None) -> Call:
    """The callable that a consumer calls per message. Raises PluginError for what a plugin's wrapper cannot build.

    `layers`: outermost first. `owners`: is told which code is whose, for errors.
    """
    call = function
    for layer in reversed(layers):
        call = layer.build(call)
        if owners is not None:
            _own(call, layer.plugin, owners)
    return call


def _own(call: Call, plugin: str, owners: dict[CodeType, str]) -> None:
    code = code_of(call)
    if code is not None:
        owners.setdefault(code, plugin)


@dataclass(frozen=True, slots=True)
class Middleware:
    """One middleware: a function for async handlers, one for sync handlers, or both."""

    name: str
    place: str
    for_async: Callable[..., Any] | None
    for_sync: Callable[..., Any] | None


@dataclass(frozen=True, slots=True)
class ExceptionHandler:
    """What maps exceptions of one class to an outcome."""

    name: str
    place: str
    function: Callable[..., Any]
    is_async: bool


@dataclass(frozen=True, slots=True)
class Around:
    """What one app, or one router, puts around its handlers. It grows until the app starts."""

    middlewares: list[Middleware] = field(default_factory=list)
    exception_handlers: dict[type[Exception], ExceptionHandler] = field(default_factory=dict)

    def add_middleware(self, function: Any, also: Any, place: str) -> None:
        """Raises SetupError unless the functions are middlewares."""
        halves: dict[bool, Callable[..., Any]] = {}
        for one in (function, also):
            if one is None:
                continue
            _check_takes(one, ("message", "call_next"), "a middleware", place)
            if is_async(one) in halves:
                kind = "async" if is_async(one) else "sync"
                raise SetupError(
                    place, f"middleware: both functions are {kind}: also= is for handlers of the other kind"
                )
            halves[is_async(one)] = one
        place = place_of_function(function, place)
        self.middlewares.append(Middleware(name_of_function(function), place, halves.get(True), halves.get(False)))

    def check_kind(self, kind: Any, place: str) -> None:
        """Raises SetupError unless it is a class of exceptions that handlers raise."""
        if not isinstance(kind, type) and callable(kind):
            raise SetupError(place, "exception_handler: name the class: write @app.exception_handler(ValueError)")
        if not (isinstance(kind, type) and issubclass(kind, Exception)) or issubclass(kind, Outcome):
            raise SetupError(place, f"exception_handler({kind!r}): give a class of exceptions that handlers raise")

    def add_exception_handler(self, kind: Any, function: Any, place: str) -> None:
        """Raises SetupError unless it is a class of exceptions without a handler yet."""
        _check_takes(function, ("message", "error"), "an exception handler", place)
        if kind in self.exception_handlers:
            other = self.exception_handlers[kind]
            raise SetupError(place, f"exception_handler({kind.__name__}): {other.name} at {other.place} is it already")
        place = place_of_function(function, place)
        self.exception_handlers[kind] = ExceptionHandler(
            name_of_function(function), place, function, is_async(function)
        )


def around_layers(arounds: Sequence[Around], subscription: Subscription) -> list[Layer]:
    """`arounds`: innermost first. Raises SetupError for what cannot stand in front of this handler."""
    found = list[Layer]()
    for around in reversed(arounds):
        if around.exception_handlers:
            names = ", ".join(kind.__name__ for kind in around.exception_handlers)
            handlers = _usable(around.exception_handlers, subscription)
            found.append(Layer("exceptions", names, partial(_mapped, handlers=handlers, subscription=subscription)))
        for middleware in around.middlewares:
            half, is_async = _half(middleware, subscription), subscription.is_async
            found.append(Layer("middleware", middleware.name, partial(_behind, half, is_async=is_async)))
    return found


def _half(middleware: Middleware, subscription: Subscription) -> Callable[..., Any]:
    half = middleware.for_async if subscription.is_async else middleware.for_sync
    if half is None:
        own, other = ("async", "sync") if middleware.for_async else ("sync", "async")
        raise SetupError(
            middleware.place,
            f"middleware {middleware.name} is {own}, and {subscription.handler_name} ({subscription.place}) is "
            f"{other}: give it a function for {other} handlers too, @app.middleware(also=...)",
        )
    return half


def _behind(middleware: Callable[..., Any], call: Call, *, is_async: bool) -> Call:
    """The middleware in front of the next callable.

    When it returns None the outcome stays what the next one said: a forgotten `return` must not make a message done
    whose handler returned Retry.
    """

    async def one_async(message: Any) -> Any:
        said = None

        async def call_next(changed: Any) -> Any:
            nonlocal said
            said = await call(changed)
            return said

        result = await middleware(message, call_next)
        return said if result is None else result

    def one(message: Any) -> Any:
        said = None

        def call_next(changed: Any) -> Any:
            nonlocal said
            said = call(changed)
            return said

        result = middleware(message, call_next)
        return said if result is None else result

    return one_async if is_async else one


def _usable(
    handlers: Mapping[type[Exception], ExceptionHandler], subscription: Subscription
) -> dict[type[Exception], ExceptionHandler]:
    if not subscription.is_async:
        for kind, handler in handlers.items():
            if handler.is_async:
                raise SetupError(
                    handler.place,
                    f"exception_handler({kind.__name__}) {handler.name} is async, and {subscription.handler_name} "
                    f"({subscription.place}) runs in a thread: make it a plain `def`, which serves both",
                )
    return dict(handlers)


def _mapped(call: Call, handlers: Mapping[type[Exception], ExceptionHandler], subscription: Subscription) -> Call:
    """The handler of the nearest class decides; outcomes that are raised pass."""
    single = subscription.batch is None

    async def one_async(message: Any) -> Any:
        try:
            return await call(message)
        except Outcome:
            raise
        except Exception as error:
            handler = _nearest(handlers, error)
            if handler is None:
                raise
            result = handler.function(message, error)
            return _because(await result if handler.is_async else result, error, handler, single=single)

    def one(message: Any) -> Any:
        try:
            return call(message)
        except Outcome:
            raise
        except Exception as error:
            handler = _nearest(handlers, error)
            if handler is None:
                raise
            return _because(handler.function(message, error), error, handler, single=single)

    return one_async if subscription.is_async else one


def _nearest(handlers: Mapping[type[Exception], ExceptionHandler], error: Exception) -> ExceptionHandler | None:
    return next((handlers[kind] for kind in type(error).__mro__ if kind in handlers), None)


def _because(outcome: Any, error: Exception, handler: ExceptionHandler, *, single: bool) -> Any:
    """A dead letter and a retry carry the exception as their reason, unless they have one.

    Raises TypeError for what is not an outcome: the message has failed, and something else must not make it done. Of a
    batch the engine judges it.
    """
    if single and outcome is not None and not is_outcome(outcome):
        problem = f"returned {outcome!r}: return Retry, Skip, DeadLetter or Pause, or None for done"
        raise TypeError(f"exception_handler {handler.name} ({handler.place}) {problem}") from error
    if isinstance(outcome, Outcome) and outcome.__cause__ is None:
        outcome.__cause__ = error
    return outcome


def _check_takes(function: Any, names: tuple[str, str], what: str, place: str) -> None:
    wanted = f"{what} is a function of ({', '.join(names)})"
    if not callable(function) or inspect.isclass(function):
        raise SetupError(place, f"{wanted}, not {function!r}")
    place = place_of_function(function, place)
    if not takes(function, *names):
        raise SetupError(place, f"{wanted}: {name_of_function(function)} is not")
    if is_generator(function):
        problem = "cannot be a generator: its code would never run; remove the yield"
        raise SetupError(place, f"{what} {problem}")


def plugin_layers(subscription: Subscription, plugins: Plugins, owners: dict[CodeType, str] | None) -> list[Layer]:
    """What plugins put around one handler. Raises PluginError for an answer that cannot stand there.

    `owners`: is told whose filter is which code.
    """
    found, by_message = list[Layer](), kind_of(subscription).by_message
    for answer in reversed(plugins.ask("handler_wrapper", subscription=subscription)):
        wrapper = answer.value
        if not isinstance(wrapper, Wrapper):
            answer.refuse("a Wrapper")
        if by_message or wrapper.polled:
            build = partial(answer.around, _builder(wrapper, answer, subscription))
            found.append(Layer(wrapper.layer, answer.plugin, build, answer.plugin, wrapper.write))
    if by_message:
        found += _filter_layers(subscription, plugins, owners)
    return found


def _filter_layers(subscription: Subscription, plugins: Plugins, owners: dict[CodeType, str] | None) -> list[Layer]:
    answers = plugins.ask_for_functions("message_filter", subscription=subscription)
    for answer in answers:
        if is_async(answer.value):
            why = "message_filter returned an async function, of which every answer is true: write a plain `def`"
            raise PluginError(answer.plugin, why)
        if owners is not None:
            _own(answer.value, answer.plugin, owners)
    if not answers:
        return []
    names = ", ".join(answer.plugin for answer in answers)
    build = partial(_filtered, predicates=[answer.value for answer in answers], subscription=subscription)
    return [Layer("filter", names, build)]


def _builder(wrapper: Wrapper, answer: HookResult, subscription: Subscription) -> Callable[[Call], Call]:
    build: Callable[[Call], Call] | None = wrapper.for_async if subscription.is_async else wrapper.for_sync
    if build is None:
        kind = "an async" if subscription.is_async else "a sync"
        raise PluginError(
            answer.plugin,
            f"handler_wrapper: its wrapper supports {wrapper.kinds()} handlers, and {subscription.handler_name} "
            f"({subscription.place}) is {kind} one: the handler must change, or the plugin decline it",
        )
    return build


def _filtered(call: Call, predicates: Sequence[Predicate], subscription: Subscription) -> Call:
    """Refused messages are done. A batch keeps what every predicate wants."""
    wanted = predicates[0] if len(predicates) == 1 else _all_of(predicates)
    skip = Skip("filtered")

    def one(message: Any) -> Any:
        if wanted(message):
            return call(message)
        return skip

    async def one_async(message: Any) -> Any:
        if wanted(message):
            return await call(message)
        return skip

    def many(messages: list[Any]) -> Any:
        left = list(filter(wanted, messages))
        return call(left) if left else skip

    async def many_async(messages: list[Any]) -> Any:
        left = list(filter(wanted, messages))
        return await call(left) if left else skip

    if subscription.batch is None:
        return one_async if subscription.is_async else one
    return many_async if subscription.is_async else many


def _all_of(predicates: Sequence[Predicate]) -> Predicate:
    return lambda message: all(predicate(message) for predicate in predicates)
