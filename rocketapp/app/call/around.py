"""What an app and its routers put around handlers: middlewares, and what becomes of exceptions.

From outside to inside: the plugins' wrappers, then for the app and after it for each router its exception handlers
and its middlewares, the first declared outermost, then the handler. Folded once, at start: what an app has not declared
is not there.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rocketapp.app.places import is_async, is_generator, name_of_function, place_of_function, takes
from rocketapp.errors import SetupError
from rocketapp.model.outcome import Outcome, is_outcome
from rocketapp.model.subscription import Subscription

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
