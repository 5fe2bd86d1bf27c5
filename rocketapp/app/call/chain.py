"""What stands around a handler: layers in one order, folded into one callable once, at start.

Everything that stands there names its layer. Of several in one layer those of plugins are outside, with the last
registered first; then come those of the app and of each router, the first declared outermost. What nobody declared is
not there. Around a polled handler stand the wrappers that say so, and nothing else.
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
    """One of the things that stand around a handler.

    name: where: one of ORDER.
    of: what stands there, for people: a plugin, a middleware, a topic.
    build: makes of the next callable the one in front of it.
    plugin: whose it is; empty for what is the app's own.
    write: of a transaction: writes a message that is sent when it is committed, into its outbox.
    """

    name: str
    of: str
    build: Callable[[Call], Call]
    plugin: str = ""
    write: Write | None = None


def in_order(layers: Iterable[Layer]) -> list[Layer]:
    """Outermost first. Within one layer they stay as they were found."""
    return sorted(layers, key=lambda layer: ORDER.index(layer.name))


def fold(function: Call, layers: Sequence[Layer], owners: dict[CodeType, str]) -> Call:
    """The callable that a consumer calls per message. Raises PluginError for what a plugin's wrapper cannot build.

    `layers`: outermost first. `owners`: is told which code is whose, for errors.
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
    """A function of the user's that stands around handlers: a middleware, or what maps exceptions of one class."""

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
    """What one handler says of itself, or a router or an app for its handlers. It grows until the app starts.

    what: `handler`, `Router` or `RocketApp`.
    options: for handlers that do not say otherwise; what is absent is inherited, at last from settings.
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
    """`scopes`: innermost first. Raises SetupError for what cannot stand in front of this handler."""
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
    """Those that serve this handler. Raises SetupError when none of several does: it would run without."""
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


def _mapped(call: Call, handlers: Mapping[type[Exception], Wrapping], subscription: Subscription) -> Call:
    """The handler of the nearest class decides; outcomes that are raised pass."""
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
    """None for an outcome: it says itself what follows."""
    kinds = () if isinstance(error, Outcome) else type(error).__mro__
    return next((handlers[kind] for kind in kinds if kind in handlers), None)


def _because(outcome: Any, error: Exception, handler: Wrapping, *, single: bool) -> Any:
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


def _wrapping(function: Any, names: tuple[str, str], what: str, place: str) -> Wrapping:
    """Raises SetupError unless it is a function of these two."""
    if callable(function):
        place = place_of_function(function, place)
    if (problem := function_problem(function, *names)) is not None:
        raise SetupError(place, f"{what} is a function of ({', '.join(names)}): {problem}")
    return Wrapping(function, place)


def plugin_layers(
    subscription: Subscription, plugins: Plugins, owners: dict[CodeType, str] | None, stats: HandlerStats
) -> list[Layer]:
    """What plugins put around one handler, and its filters. Raises PluginError for an answer that cannot stand there.

    `owners`: is told whose filter is which code. `stats`: counts what filters refuse.
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
    """Refused messages are done, and counted. A batch keeps what every predicate wants."""
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
    """A callable for all messages of a batch, made of one for those that `sift` lets through.

    What is known of the others is noted for `beside_others`, which stands further outside: what is between the two sees
    an exception of the handler as if the others were not there.
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
    """What `call` says of a batch, with the outcomes in it that `sifted` has noted."""

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
    """The outcome that an exception comes to."""
    return error if isinstance(error, Outcome) else outcome_of(error, subscription, raised=True) or Skip(error)


def _of_all(said: Any, messages: list[Any], others: Outcomes, subscription: Subscription) -> Any:
    """The outcome of the whole batch. `said`: of those that went on; what is known of the others holds."""
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
