"""The layers around a handler, in one fixed order, folded into one callable at start.

Each wrapper names its layer. Within a layer, wrappers of plugins are outermost, the last registered first; then come
those of the app and of each router, the first declared outermost. Around a polled handler stand only the wrappers that
ask for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from types import CodeType
from typing import Any, Final, NamedTuple

from rocketapp.app.places import function_problem, is_async, name_of_function, place_of_function
from rocketapp.errors import PluginError, SetupError
from rocketapp.hooks.hook_types import Predicate, Wrapper, Write
from rocketapp.hooks.manager import HookResult, Plugins, code_of
from rocketapp.hooks.outcomes import outcome_of
from rocketapp.model.outcome import (
    FILTERED,
    Outcome,
    Outcomes,
    Skip,
    is_outcome,
    is_unawaited,
    outcomes_by_message,
)
from rocketapp.model.snapshot import HandlerStats
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
    """One wrapper around a handler.

    name: its layer, one of ORDER.
    of: what it belongs to, for people: a plugin, a middleware, a topic.
    build: takes the next callable and returns the one in front of it.
    plugin: the plugin's name; empty for the app's own.
    write: for a transaction: writes a message into its outbox, to be sent after the commit.
    """

    name: str
    of: str
    build: Callable[[Call], Call]
    plugin: str = ""
    write: Write | None = None


def in_order(layers: Iterable[Layer]) -> list[Layer]:
    """Sort outermost first. Within one layer the given order stays."""
    return sorted(layers, key=lambda layer: ORDER.index(layer.name))


def fold(function: Call, layers: Sequence[Layer], owners: dict[CodeType, str]) -> Call:
    """The callable that a consumer calls per message. Raises PluginError for a plugin's wrapper that fails to build.

    `layers`: outermost first. `owners`: filled with which code belongs to whom, for errors.
    """
    call = function
    for layer in reversed(layers):
        call = layer.build(call)
        _own(call, layer.plugin, owners)
    return call


def _own(call: Call, plugin: str, owners: dict[CodeType, str]) -> None:
    code = code_of(call)
    if code is not None:
        owners.setdefault(code, plugin)


@dataclass(frozen=True, slots=True)
class Wrapping:
    """A function of the user around handlers: a middleware or an exception handler."""

    function: Callable[..., Any]
    place: str

    @property
    def name(self) -> str:
        return name_of_function(self.function)

    @property
    def is_async(self) -> bool:
        return is_async(self.function)


@dataclass(frozen=True, slots=True)
class Scope:
    """The options of a handler, a router or an app. It grows until the app starts.

    what: `handler`, `Router` or `RocketApp`.
    options: for handlers that do not set their own; what is absent is inherited, at last from settings.
    """

    what: str
    place: str
    options: Mapping[str, Any] = field(default_factory=dict)
    middlewares: list[Wrapping] = field(default_factory=list)
    exception_handlers: dict[type[Exception], Wrapping] = field(default_factory=dict)

    def add_middleware(self, function: Any, place: str) -> None:
        """Raises SetupError unless the function is a middleware."""
        self.middlewares.append(_wrapping(function, ("message", "call_next"), "a middleware", place))

    def check_kind(self, kind: Any, place: str) -> None:
        """Raises SetupError unless it is a class of exceptions that handlers raise."""
        if not (isinstance(kind, type) and issubclass(kind, Exception)) or issubclass(kind, Outcome):
            mend = "give a class of exceptions that handlers raise, @app.exception_handler(ValueError)"
            raise SetupError(place, f"exception_handler({kind!r}): {mend}")

    def add_exception_handler(self, kind: Any, function: Any, place: str) -> None:
        """Raises SetupError unless it is a class of exceptions without a handler yet."""
        found = _wrapping(function, ("message", "error"), "an exception handler", place)
        if kind in self.exception_handlers:
            other = self.exception_handlers[kind]
            raise SetupError(place, f"exception_handler({kind.__name__}): {other.name} at {other.place} is it already")
        self.exception_handlers[kind] = found


def around_layers(scopes: Sequence[Scope], subscription: Subscription) -> list[Layer]:
    """The layers of middlewares and exception handlers. `scopes`: innermost first. Raises SetupError."""
    found = list[Layer]()
    for scope in reversed(scopes):
        if scope.exception_handlers:
            names = ", ".join(kind.__name__ for kind in scope.exception_handlers)
            for kind, one in scope.exception_handlers.items():
                if one.is_async and not subscription.is_async:
                    raise SetupError(
                        one.place,
                        f"exception_handler({kind.__name__}) {one.name} is async, and {subscription.handler_name} "
                        f"({subscription.place}) runs in a thread: make it a plain `def`, which serves both",
                    )
            build = partial(_mapped, handlers=scope.exception_handlers, subscription=subscription)
            found.append(Layer("exceptions", names, build))
        for one in _of_its_kind(scope.middlewares, subscription):
            build = partial(_behind, one.function, is_async=subscription.is_async)
            found.append(Layer("middleware", one.name, build))
    return found


def _of_its_kind(middlewares: Sequence[Wrapping], subscription: Subscription) -> list[Wrapping]:
    """The middlewares for this kind of handler. Raises SetupError when there are some, but none of its kind."""
    found = [one for one in middlewares if one.is_async == subscription.is_async]
    if middlewares and not found:
        own, other, mend = ("async", "sync", "def") if middlewares[0].is_async else ("sync", "async", "async def")
        raise SetupError(
            middlewares[0].place,
            f"middleware {middlewares[0].name} is {own}, and {subscription.handler_name} ({subscription.place}) is "
            f"{other}: add a second middleware, a `{mend}`, which serves {other} handlers",
        )
    return found


def _behind(middleware: Callable[..., Any], call: Call, *, is_async: bool) -> Call:
    """The middleware in front of the next callable.

    When it returns None, the result of the next callable counts: a forgotten `return` must not turn a Retry into done.
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


def _mapped(call: Call, handlers: Mapping[type[Exception], Wrapping], subscription: Subscription) -> Call:
    """Maps exceptions by the exception handler of the nearest class. Outcomes that are raised pass."""
    single = subscription.batch is None

    async def one_async(message: Any) -> Any:
        try:
            return await call(message)
        except Exception as error:
            handler = _nearest(handlers, error)
            if handler is None:
                raise
            result = handler.function(message, error)
            return _because(await result if handler.is_async else result, error, handler, single=single)

    def one(message: Any) -> Any:
        try:
            return call(message)
        except Exception as error:
            handler = _nearest(handlers, error)
            if handler is None:
                raise
            return _because(handler.function(message, error), error, handler, single=single)

    return one_async if subscription.is_async else one


def _nearest(handlers: Mapping[type[Exception], Wrapping], error: Exception) -> Wrapping | None:
    """The exception handler of the nearest class; None if there is none, or for an outcome."""
    kinds = () if isinstance(error, Outcome) else type(error).__mro__
    return next((handlers[kind] for kind in kinds if kind in handlers), None)


def _because(outcome: Any, error: Exception, handler: Wrapping, *, single: bool) -> Any:
    """Add the exception as the reason to a dead letter or a retry that has none.

    Raises TypeError for anything but an outcome: the message has failed, and must not become done by mistake. For a
    batch the engine checks that.
    """
    if single and outcome is not None and not is_outcome(outcome):
        problem = f"returned {outcome!r}: return Retry, Skip, DeadLetter or Pause, or None for done"
        raise TypeError(f"exception_handler {handler.name} ({handler.place}) {problem}") from error
    if isinstance(outcome, Outcome) and outcome.__cause__ is None:
        outcome.__cause__ = error
    return outcome


def _wrapping(function: Any, names: tuple[str, str], what: str, place: str) -> Wrapping:
    """Check that this is a function of two arguments. Raises SetupError."""
    if callable(function):
        place = place_of_function(function, place)
    if (problem := function_problem(function, *names)) is not None:
        raise SetupError(place, f"{what} is a function of ({', '.join(names)}): {problem}")
    return Wrapping(function, place)


def plugin_layers(
    subscription: Subscription, plugins: Plugins, owners: dict[CodeType, str] | None, stats: HandlerStats
) -> list[Layer]:
    """The wrappers and filters of plugins around one handler. Raises PluginError for an invalid answer of a plugin.

    `owners`: filled with which code belongs to which plugin. `stats`: counts the messages that filters refuse.
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
        found += _filter_layers(subscription, plugins, owners, stats)
    return found


def _filter_layers(
    subscription: Subscription, plugins: Plugins, owners: dict[CodeType, str] | None, stats: HandlerStats
) -> list[Layer]:
    answers = plugins.ask_for_functions("message_filter", subscription=subscription)
    for answer in answers:
        if is_async(answer.value):
            why = "message_filter returned an async function, of which every answer is true: write a plain `def`"
            raise PluginError(answer.plugin, why)
        if owners is not None:
            _own(answer.value, answer.plugin, owners)
    predicates: list[Predicate] = [answer.value for answer in answers]
    names = [answer.plugin for answer in answers]
    if subscription.filter is not None:
        predicates, names = [*predicates, subscription.filter], [*names, "filter="]
    if not predicates:
        return []
    build = partial(_filtered, predicates=predicates, subscription=subscription, stats=stats)
    return [Layer("filter", ", ".join(names), build)]


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


def _filtered(call: Call, predicates: Sequence[Predicate], subscription: Subscription, stats: HandlerStats) -> Call:
    """Messages that a predicate refuses are done, and counted. A batch keeps what every predicate accepts."""
    wanted = _all_of(predicates)
    counting = threading.Lock()

    def refused() -> Skip:
        with counting:  # a sync handler has several threads
            stats.filtered += 1
        return FILTERED

    def one(message: Any) -> Any:
        return call(message) if wanted(message) else refused()

    async def one_async(message: Any) -> Any:
        return await call(message) if wanted(message) else refused()

    def sift(messages: list[Any]) -> tuple[list[Any], Outcomes]:
        left, others = list[Any](), Outcomes()
        for message in messages:
            try:
                if wanted(message):
                    left.append(message)
                else:
                    others[message] = refused()
            except Exception as error:
                others[message] = _in_place_of(error, subscription)
        return left, others

    if subscription.batch is None:
        return one_async if subscription.is_async else one
    return beside_others(sifted(call, sift, subscription), subscription)


Sift = Callable[[list[Any]], tuple[Any, Outcomes]]
"""The messages of a batch -> what the next callable is called with, and what is known of those that do not go on."""
_OTHERS: ContextVar[Outcomes] = ContextVar("rocketapp.others")
"""What is known of messages of the batch that is handled now and that the handler does not get."""


def sifted(call: Call, sift: Sift, subscription: Subscription) -> Call:
    """Call `call` with only the part of a batch that `sift` lets through.

    The outcomes of the other messages are kept for `beside_others`, which is a layer further outside: layers between
    the two see an exception of the handler as if the other messages did not exist.
    """

    async def many_async(messages: list[Any]) -> Any:
        given, others = sift(messages)
        _OTHERS.get().update(others)
        return _of_all(await call(given) if given else None, messages, others, subscription)

    def many(messages: list[Any]) -> Any:
        given, others = sift(messages)
        _OTHERS.get().update(others)
        return _of_all(call(given) if given else None, messages, others, subscription)

    return many_async if subscription.is_async else many


def beside_others(call: Call, subscription: Subscription) -> Call:
    """The result of `call` for a batch, plus the outcomes that `sifted` has kept."""

    async def many_async(messages: list[Any]) -> Any:
        others = Outcomes()
        before = _OTHERS.set(others)
        try:
            said = await call(messages)
        except Exception as error:
            if not others:
                raise
            said = _in_place_of(error, subscription)
        finally:
            _OTHERS.reset(before)
        return _of_all(said, messages, others, subscription)

    def many(messages: list[Any]) -> Any:
        others = Outcomes()
        before = _OTHERS.set(others)
        try:
            said = call(messages)
        except Exception as error:
            if not others:
                raise
            said = _in_place_of(error, subscription)
        finally:
            _OTHERS.reset(before)
        return _of_all(said, messages, others, subscription)

    return many_async if subscription.is_async else many


def _in_place_of(error: Exception, subscription: Subscription) -> Outcome:
    """The outcome that follows from an exception."""
    if isinstance(error, Outcome):
        return error
    outcome = outcome_of(error, subscription, raised=True) or Skip(error)
    outcome.in_place_of = error
    return outcome


def _of_all(said: Any, messages: list[Any], others: Outcomes, subscription: Subscription) -> Any:
    """The outcome of the whole batch.

    `said`: the result for the messages that went on; kept outcomes take precedence.
    """
    if not others or is_unawaited(said):
        return said
    single = None
    try:
        single = outcomes_by_message(said, messages)
    except TypeError as error:
        said = _in_place_of(error, subscription)
    if single is None:
        single = dict.fromkeys(messages, said) if is_outcome(said) else {}
    return Outcomes({**single, **others})


def _all_of(predicates: Sequence[Predicate]) -> Predicate:
    if len(predicates) == 1:
        return predicates[0]
    return lambda message: all(predicate(message) for predicate in predicates)
