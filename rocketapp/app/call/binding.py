"""Your function -> the one callable that takes a message (or, with `batch=`, a list of them).

Nothing is inspected per message: the shape of the function is known at start, and for
each shape there is one closure. For a plain `(message)` handler the callable is the
function itself.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

from rocketapp.app.call.context import Pull, SyncPull, context_of, publisher_of
from rocketapp.app.call.provided import Part, async_call, getter, sync_call
from rocketapp.app.call.returned import Publication, answering, answers, decided, published
from rocketapp.app.call.signature import Argument, Kind, Providers, UnresolvedError, read_signature
from rocketapp.app.payloads.payloads import MARK, Payloads, Reader, cause_of, problem_of
from rocketapp.app.places import is_async, name_of_function, place_of_function, plain_function
from rocketapp.app.publish.publishing import Publishing
from rocketapp.errors import SetupError
from rocketapp.model.decisions import Decisions
from rocketapp.model.handler_kind import kind_of
from rocketapp.model.outcome import DeadLetter, Outcome, Outcomes, Retry, outcomes_by_message
from rocketapp.model.subscription import Subscription


class Decoded(NamedTuple):
    """The messages of a batch that could be decoded, and their payloads in the same order."""

    messages: list[Any]
    payloads: list[Any]


def sifted(
    call: Callable[[Decoded], Any], decode: Callable[[Any], Any], *, is_async: bool
) -> Callable[[list[Any]], Any]:
    """A callable for a list of messages, made of one for decoded ones.

    `decode` takes a message and returns its payload or raises DeadLetter.
    """

    def sift(messages: list[Any]) -> tuple[Decoded, Outcomes]:
        good = Decoded([], [])
        bad = Outcomes()
        for message in messages:
            try:
                payload = decode(message)
            except DeadLetter as dead:
                bad[message] = dead
            else:
                good.messages.append(message)
                good.payloads.append(payload)
        return good, bad

    async def call_async(messages: list[Any]) -> Any:
        good, bad = sift(messages)
        if not bad:
            return await call(good)
        if not good.messages:
            return bad
        try:
            outcome = await call(good)
        except Exception as error:
            outcome = error
        return _merged(bad, good.messages, outcome)

    def call_sync(messages: list[Any]) -> Any:
        good, bad = sift(messages)
        if not bad:
            return call(good)
        if not good.messages:
            return bad
        try:
            outcome = call(good)
        except Exception as error:
            outcome = error
        return _merged(bad, good.messages, outcome)

    return call_async if is_async else call_sync


def _merged(bad: Outcomes, good: list[Any], outcome: Any) -> Outcomes:
    """What the handler said of its messages, beside the dead letters that it never saw."""
    try:
        single = outcomes_by_message(outcome, good)
    except TypeError as error:
        single, outcome = None, error
    if single is not None:
        return Outcomes({**bad, **single})
    if isinstance(outcome, Exception) and not isinstance(outcome, Outcome):
        failed = Retry()
        failed.__cause__ = outcome
        outcome = failed
    if isinstance(outcome, Outcome):
        return Outcomes({**bad, **dict.fromkeys(good, outcome)})
    return bad


Call = Callable[[Any], Any]
Get = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Binding:
    """A function and what fills its arguments, or a reason why that is not known before start."""

    function: Callable[..., Any]
    name: str
    place: str
    is_async: bool
    batch: bool
    arguments: tuple[Argument, ...] | None

    def resolved(self, providers: Providers | None, payloads: Payloads) -> Binding:
        """The same with every argument known. Raises SetupError for what is still unknown."""
        if self.arguments is not None:
            return self
        try:
            return bind(
                self.function,
                batch=self.batch,
                place=self.place,
                providers=providers,
                payloads=payloads,
                at_start=True,
            )
        except UnresolvedError as error:
            raise SetupError(
                self.place, f"{error}: import or define it outside of `if TYPE_CHECKING`, at the top of the module"
            ) from error

    def call(
        self,
        subscription: Subscription,
        publishing: Publishing,
        publication: Publication | None = None,
        decisions: Decisions | None = None,
    ) -> Call:
        """The callable for this subscription. `resolved` comes first; `publishing`: the running app's.

        publication: what becomes of the value that it returns. decisions: where its contexts note down what it says of
        commits; None for a handler whose returning commits.
        """
        if not kind_of(subscription).by_message:
            return self._polled_call(subscription, publishing)
        call = self._bare_call(subscription, publishing, decisions)
        if decisions is not None:
            call = decided(call, decisions, subscription)
        if publication is not None:
            own = publisher_of(subscription, publishing)
            call = published(call, publication, own, is_async=self.is_async)
        elif not self.batch and answers(self.function):
            call = answering(call, publishing.to(subscription.cluster), is_async=self.is_async)
        return call

    def _polled_call(self, subscription: Subscription, publishing: Publishing) -> Call:
        """Called with a PolledBatch."""
        arguments, own = self.arguments or (), publishing.to(subscription.cluster)
        gets = [_getter(argument, subscription, lambda _: own, publishing, None) for argument in arguments]
        return _call_of(self.function, arguments, gets, self.is_async)

    def _bare_call(self, subscription: Subscription, publishing: Publishing, decisions: Decisions | None) -> Call:
        arguments = self.arguments or ()
        if len(arguments) == 1 and arguments[0].kind is Kind.MESSAGE and not arguments[0].by_name:
            return self.function
        payload = next((argument for argument in arguments if argument.kind is Kind.PAYLOAD), None)
        own = publisher_of(subscription, publishing)
        if not self.batch or payload is None:
            if len(arguments) == 1 and payload is not None and not payload.by_name:
                return _call_with_payload(self.function, payload, subscription)
            gets = [_getter(argument, subscription, own, publishing, decisions) for argument in arguments]
            return _call_of(self.function, arguments, gets, self.is_async)
        gets = [_getter_of_decoded(argument, subscription, own, publishing, decisions) for argument in arguments]
        call = _call_of(self.function, arguments, gets, self.is_async)
        return sifted(call, _decoded(payload, subscription), is_async=self.is_async)


def bind(
    function: Callable[..., Any],
    *,
    batch: bool,
    place: str,
    providers: Providers | None,
    payloads: Payloads,
    names: Mapping[str, Any] | None = None,
    at_start: bool = False,
) -> Binding:
    """Read a handler's arguments. Raises SetupError with the function's line.

    An annotation that names something not defined yet is asked for again at start.
    """
    if not callable(function):
        raise SetupError(place, f"a handler is a function, and {function!r} cannot be called")
    if inspect.isclass(function):
        raise SetupError(
            place, f"a handler is a function, and {function.__qualname__} is a class: give an instance of it"
        )
    place = place_of_function(function, place)
    plain = plain_function(function)
    if inspect.isgeneratorfunction(plain) or inspect.isasyncgenfunction(plain):
        raise SetupError(place, "a handler cannot be a generator: its code would never run; remove the yield")
    arguments = None
    try:
        arguments = read_signature(
            function, batch=batch, place=place, providers=providers, payloads=payloads, names=names or {}
        )
    except UnresolvedError:
        if at_start:
            raise
    return Binding(function, name_of_function(function), place, is_async(function), batch, arguments)


def pull_problem(binding: Binding, *, is_polled: bool) -> str | None:
    """Why a polled handler (or another one) cannot have these arguments; or None."""
    pulls = [one for one in binding.arguments or () if one.kind is Kind.PULL]
    if not is_polled:
        mend = "declare it with @app.poll(topic, every=...), or ask for the Message"
        return f"argument {pulls[0].name!r} is a {pulls[0].type.__name__}: {mend}" if pulls else None
    wanted = Pull if binding.is_async else SyncPull
    if not pulls:
        return f"a polled handler pulls its messages: add an argument `pull: {wanted.__name__}`"
    if pulls[0].type is not wanted:
        kind = "an async" if binding.is_async else "a sync"
        return f"argument {pulls[0].name!r}: {kind} handler pulls with a {wanted.__name__}: annotate it so"
    other = next((one for one in binding.arguments or () if one.kind not in _OF_POLLED), None)
    if other is None:
        return None
    return f"argument {other.name!r} is of one message, and a polled handler pulls many: remove it, and use the pull"


_OF_POLLED = frozenset({Kind.PULL, Kind.PUBLISHER, Kind.PROVIDER})
"""What fills the arguments of a polled handler."""


def undecodable(subscription: Subscription, argument: Argument, error: Exception) -> DeadLetter:
    """Trying again cannot help: to the dead letters, with everything needed to see why."""
    return DeadLetter(
        f"{subscription.handler_name}: the body cannot be read as {argument.type_name}: {problem_of(error)}"
    )


def _call_of(function: Callable[..., Any], arguments: tuple[Argument, ...], gets: list[Get], is_async: bool) -> Call:
    """One closure for each shape; the common ones without a loop over arguments."""
    if not arguments:
        return lambda _message: function()
    if any(argument.kind is Kind.PROVIDER for argument in arguments):
        parts = tuple(
            Part(argument.name if argument.by_name else None, argument.kind is Kind.PROVIDER, get)
            for argument, get in zip(arguments, gets, strict=True)
        )
        return async_call(function, parts) if is_async else sync_call(function, parts)
    if any(argument.by_name for argument in arguments):
        return _by_name(function, arguments, gets)
    first = gets[0]
    if len(arguments) == 1:
        return lambda message: function(first(message))
    second = gets[1]
    if len(arguments) == 2:
        return lambda message: function(first(message), second(message))
    return lambda message: function(*[get(message) for get in gets])


def _call_with_payload(function: Callable[..., Any], argument: Argument, subscription: Subscription) -> Call:
    """The commonest typed shape, without a call between."""
    decode, read = _reader(argument)
    if decode is None:
        get = _decoded(argument, subscription)
        return lambda message: function(get(message))

    def call(message: Any) -> Any:
        try:
            # `partition` finds MARK in a third of the time of `in`, which tries it as a number first.
            payload = read(message) if message.raw_properties.partition(MARK)[1] else decode(message.body)
        except MemoryError:
            raise
        except Exception as error:
            raise undecodable(subscription, argument, error) from cause_of(error)
        return function(payload)

    return call


def _by_name(function: Callable[..., Any], arguments: tuple[Argument, ...], gets: list[Get]) -> Call:
    positional = [get for argument, get in zip(arguments, gets, strict=True) if not argument.by_name]
    named = [(argument.name, get) for argument, get in zip(arguments, gets, strict=True) if argument.by_name]
    return lambda message: function(
        *[get(message) for get in positional], **{name: get(message) for name, get in named}
    )


def _getter(
    argument: Argument,
    subscription: Subscription,
    publisher: Get,
    publishing: Publishing,
    decisions: Decisions | None,
) -> Get:
    """Message -> the value of one argument."""
    if argument.kind is Kind.MESSAGE:
        return _itself
    if argument.kind is Kind.CONTEXT:
        return context_of(subscription, publisher, publishing.options, decisions)
    if argument.kind is Kind.PUBLISHER:
        return publisher
    if argument.kind is Kind.PULL:
        return lambda one: argument.type(one, subscription.group)
    if argument.kind is Kind.PROVIDER:
        assert argument.provide is not None, "a provider's argument has its provider"
        return getter(argument.name, argument.provide, subscription, publishing.loop)
    return _decoded(argument, subscription)


def _getter_of_decoded(
    argument: Argument,
    subscription: Subscription,
    publisher: Get,
    publishing: Publishing,
    decisions: Decisions | None,
) -> Get:
    """The same for a batch with payloads: taken from what could be decoded."""
    if argument.kind is Kind.PAYLOAD:
        return attrgetter("payloads")
    get, messages = _getter(argument, subscription, publisher, publishing, decisions), attrgetter("messages")
    # The handler's list is its own: what it takes out of it is still part of what failed.
    return _own_messages if argument.kind is Kind.MESSAGE else lambda decoded: get(messages(decoded))


def _own_messages(decoded: Any) -> list[Any]:
    return list(decoded.messages)


def _itself(message: Any) -> Any:
    return message


def _decoded(argument: Argument, subscription: Subscription) -> Get:
    decode, read = _reader(argument)

    def get(message: Any) -> Any:
        try:
            if decode is None or message.raw_properties.partition(MARK)[1]:
                return read(message)
            return decode(message.body)
        except MemoryError:
            raise
        except Exception as error:
            raise undecodable(subscription, argument, error) from cause_of(error)

    return get


def _reader(argument: Argument) -> Reader:
    assert argument.reader is not None, "a payload's argument has its reader"
    return argument.reader()
