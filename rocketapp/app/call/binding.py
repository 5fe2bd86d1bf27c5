"""Your function -> the one callable that takes a message (or, with `batch=`, a list of them).

Nothing is inspected per message: the shape of the function is known at start, and for
each shape there is one closure. For a plain `(message)` handler the callable is the
function itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

from rocketapp.app.call.chain import Call, Layer, beside_others, sifted
from rocketapp.app.call.context import context_of, publisher_of
from rocketapp.app.call.provided import Part, async_call, checked, getter, sync_call
from rocketapp.app.call.returned import decided
from rocketapp.app.call.signature import Argument, Kind
from rocketapp.app.payloads import problem_of
from rocketapp.app.publishing import Publishing
from rocketapp.model.outcome import DeadLetter, Decisions, Outcomes
from rocketapp.model.subscription import Subscription


class Decoded(NamedTuple):
    """The messages of a batch that could be decoded, and their payloads in the same order."""

    messages: list[Any]
    payloads: list[Any]


def _sift(messages: list[Any], decode: Callable[[Any], Any]) -> tuple[Decoded, Outcomes]:
    """`decode` takes a message and returns its payload or raises DeadLetter."""
    good, bad = Decoded([], []), Outcomes()
    for message in messages:
        try:
            payload = decode(message)
        except DeadLetter as dead:
            bad[message] = dead
        else:
            good.messages.append(message)
            good.payloads.append(payload)
    return good, bad


Get = Callable[[Any], Any]


def inner_layers(
    function: Callable[..., Any],
    arguments: tuple[Argument, ...],
    subscription: Subscription,
    publishing: Publishing,
    decisions: Decisions | None,
) -> list[Layer]:
    """What fills the arguments of the function, and ends a call that takes too long. `publishing`: the running app's.

    decisions: where its contexts note down what it says of commits; None for a handler whose returning commits.
    """

    def bind(function: Call) -> Call:
        call = _bare_call(function, arguments, subscription, publishing, decisions)
        return call if decisions is None else decided(call, decisions, subscription)

    layers = [Layer("arguments", ", ".join(argument.name for argument in arguments), bind)]
    if subscription.batch is not None and any(argument.kind is Kind.PAYLOAD for argument in arguments):
        # Outside of what maps exceptions and commits: an undecodable message hides nothing from it.
        layers.append(Layer("answer", "undecodable bodies", partial(beside_others, subscription=subscription)))
    if subscription.timeout is not None:
        layers.append(Layer("timeout", f"{subscription.timeout:g} s", partial(timed, seconds=subscription.timeout)))
    return layers


def timed(function: Callable[..., Any], seconds: float) -> Callable[..., Any]:
    """The function, cancelled after this time: nothing of what stands around it is cut."""

    async def within_time(*positional: Any, **named: Any) -> Any:
        async with asyncio.timeout(seconds):
            return await function(*positional, **named)

    return within_time


def _bare_call(
    function: Callable[..., Any],
    arguments: tuple[Argument, ...],
    subscription: Subscription,
    publishing: Publishing,
    decisions: Decisions | None,
) -> Call:
    if len(arguments) == 1 and arguments[0].kind is Kind.MESSAGE and not arguments[0].by_name:
        return function
    payload = next((argument for argument in arguments if argument.kind is Kind.PAYLOAD), None)
    own = publisher_of(subscription, publishing)
    get = partial(_getter, subscription=subscription, publisher=own, publishing=publishing, decisions=decisions)
    if subscription.batch is None or payload is None:
        if len(arguments) == 1 and payload is not None and not payload.by_name:
            return _payload(payload, subscription, then=function)
        gets = [get(argument) for argument in arguments]
        return _call_of(function, arguments, gets, subscription.is_async)
    gets = [_of_decoded(argument, get) for argument in arguments]
    call = _call_of(function, arguments, gets, subscription.is_async)
    sift = partial(_sift, decode=_payload(payload, subscription))
    return sifted(call, sift, subscription)


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


def _by_name(function: Callable[..., Any], arguments: tuple[Argument, ...], gets: list[Get]) -> Call:
    positional = [get for argument, get in zip(arguments, gets, strict=True) if not argument.by_name]
    named = [(argument.name, get) for argument, get in zip(arguments, gets, strict=True) if argument.by_name]
    return lambda message: function(
        *[get(message) for get in positional], **{name: get(message) for name, get in named}
    )


def _getter(
    argument: Argument, subscription: Subscription, publisher: Get, publishing: Publishing, decisions: Decisions | None
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
        provide, place = checked(argument.name, argument.provide, subscription), subscription.place
        return getter(argument.name, provide, is_async=subscription.is_async, place=place, loop=publishing.loop)
    return _payload(argument, subscription)


def _of_decoded(argument: Argument, get: Callable[[Argument], Get]) -> Get:
    """The same for a batch with payloads: taken from what could be decoded."""
    if argument.kind is Kind.PAYLOAD:
        return attrgetter("payloads")
    if argument.kind is Kind.MESSAGE:
        return _own_messages
    of_messages, messages = get(argument), attrgetter("messages")
    return lambda decoded: of_messages(messages(decoded))


def _own_messages(decoded: Any) -> list[Any]:
    """The handler's list is its own: what it takes out of it is still part of what failed."""
    return list(decoded.messages)


def _itself(message: Any) -> Any:
    return message


def _payload(argument: Argument, subscription: Subscription, then: Callable[[Any], Any] | None = None) -> Get:
    assert argument.getter is not None, "a payload's argument has its getter"
    return argument.getter(wrong=partial(undecodable, subscription, argument), then=then)
