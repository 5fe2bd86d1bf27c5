"""Fold filters, the plugins' wrappers and the handler into one callable, once, at start.

From outside to inside: filters, then the wrappers with the last registered first, then
the bound function. What no plugin asked for is not there: without plugins the callable
is the bound function itself. Around a polled handler stand the wrappers that say so, and no filters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any

from rocketapp.app.places import is_async
from rocketapp.errors import PluginError
from rocketapp.hooks.blame import code_of
from rocketapp.hooks.manager import HookResult, Plugins
from rocketapp.hooks.wrapper import Predicate, Wrapper
from rocketapp.model.handler_kind import kind_of
from rocketapp.model.outcome import Skip
from rocketapp.model.subscription import Subscription

Call = Callable[[Any], Any]


def fold(call: Call, subscription: Subscription, plugins: Plugins, owners: dict[CodeType, str] | None = None) -> Call:
    """The callable that a consumer calls per message. Raises PluginError for an answer that cannot be folded.

    `owners`: is told which code is whose, for errors.
    """
    owners = {} if owners is None else owners
    by_message = kind_of(subscription).by_message
    for answer in plugins.ask("handler_wrapper", subscription=subscription):
        wrapper = _wrapper(answer)
        if by_message or wrapper.polled:
            call = _wrapped(call, wrapper, answer, subscription)
            _own(call, answer, owners)
    if not by_message:
        return call
    predicates = []
    for answer in plugins.ask("message_filter", subscription=subscription):
        predicates.append(_predicate(answer))
        _own(answer.value, answer, owners)
    return _filtered(call, predicates, subscription) if predicates else call


def _own(call: Call, answer: HookResult, owners: dict[CodeType, str]) -> None:
    code = code_of(call)
    if code is not None:
        owners.setdefault(code, answer.plugin)


def _wrapper(answer: HookResult) -> Wrapper:
    wrapper = answer.value
    if not isinstance(wrapper, Wrapper):
        raise PluginError(answer.plugin, f"handler_wrapper returned {wrapper!r}: return a Wrapper, or None to decline")
    return wrapper


def _wrapped(call: Call, wrapper: Wrapper, answer: HookResult, subscription: Subscription) -> Call:
    build: Callable[[Call], Call] | None = wrapper.for_async if subscription.is_async else wrapper.for_sync
    if build is None:
        kind = "an async" if subscription.is_async else "a sync"
        raise PluginError(
            answer.plugin,
            f"handler_wrapper: its wrapper supports {wrapper.kinds()} handlers, and {subscription.handler_name} "
            f"({subscription.place}) is {kind} one: the handler must change, or the plugin decline it",
        )
    try:
        built = build(call)
    except Exception as error:
        raise PluginError(
            answer.plugin, f"handler_wrapper: its wrapper raised {type(error).__name__}: {error}"
        ) from error
    if not callable(built):
        raise PluginError(answer.plugin, f"handler_wrapper: its wrapper built {built!r}, which cannot be called")
    return built


def _predicate(answer: HookResult) -> Predicate:
    if not callable(answer.value):
        raise PluginError(
            answer.plugin, f"message_filter returned {answer.value!r}: return a function, or None to decline"
        )
    if is_async(answer.value):
        raise PluginError(
            answer.plugin,
            "message_filter returned an async function, of which every answer is true: write a plain `def`",
        )
    predicate: Predicate = answer.value
    return predicate


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
