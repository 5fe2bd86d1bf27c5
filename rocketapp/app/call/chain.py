"""What stands around a handler, folded into one callable once, at start: what nobody declared is not there.

From outside to inside: filters of plugins, their wrappers with the last registered first, then for the app and after
it for each router its exception handlers and its middlewares, the first declared outermost, then the bound function.
Around a polled handler stand the wrappers that say so, and nothing else.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

from rocketapp.app.places import is_async, is_generator, name_of_function, place_of_function, takes
from rocketapp.errors import PluginError, SetupError
from rocketapp.hooks.answers import Predicate, Wrapper
from rocketapp.hooks.manager import HookResult, Plugins, code_of
from rocketapp.model.outcome import Outcome, Skip, is_outcome
from rocketapp.model.subscription import Subscription, kind_of

Call = Callable[[Any], Any]


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


def fold_around(call: Call, subscription: Subscription, arounds: Sequence[Around]) -> Call:
    """`arounds`: innermost first. Raises SetupError for what cannot stand in front of this handler."""
    for around in arounds:
        for middleware in reversed(around.middlewares):
            call = _behind(_half(middleware, subscription), call, is_async=subscription.is_async)
        if around.exception_handlers:
            call = _mapped(call, _usable(around.exception_handlers, subscription), subscription)
    return call


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
        problem = f"returned {outcome!r}: return Retry, Skip, DeadLetter or Stop, or None for done"
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


def fold(call: Call, subscription: Subscription, plugins: Plugins, owners: dict[CodeType, str] | None = None) -> Call:
    """The callable that a consumer calls per message. Raises PluginError for an answer that cannot be folded.

    `owners`: is told which code is whose, for errors.
    """
    owners = {} if owners is None else owners
    by_message = kind_of(subscription).by_message
    for answer in plugins.ask("handler_wrapper", subscription=subscription):
        wrapper = answer.value
        if not isinstance(wrapper, Wrapper):
            answer.refuse("a Wrapper")
        if by_message or wrapper.polled:
            call = answer.around(_builder(wrapper, answer, subscription), call)
            _own(call, answer, owners)
    if not by_message:
        return call
    predicates = []
    for answer in plugins.ask_for_functions("message_filter", subscription=subscription):
        if is_async(answer.value):
            why = "message_filter returned an async function, of which every answer is true: write a plain `def`"
            raise PluginError(answer.plugin, why)
        predicates.append(answer.value)
        _own(answer.value, answer, owners)
    return _filtered(call, predicates, subscription) if predicates else call


def _own(call: Call, answer: HookResult, owners: dict[CodeType, str]) -> None:
    code = code_of(call)
    if code is not None:
        owners.setdefault(code, answer.plugin)


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
