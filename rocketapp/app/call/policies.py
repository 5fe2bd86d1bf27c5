"""Failure policies of plugins: for subscriptions whose code has none, and those that hold over the code."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from rocketapp.errors import PluginError
from rocketapp.hooks.manager import Hook, Plugins
from rocketapp.model.handler_kind import kind_of
from rocketapp.model.policy import Override, Policy, unfit_for_concurrent
from rocketapp.model.subscription import Subscription

Options = Callable[[type[Any]], Any]
"""The class of a table of settings -> the table."""


def with_policies(subscriptions: Iterable[Subscription], plugins: Plugins, options: Options) -> list[Subscription]:
    """The subscriptions with their policies, and where these come from.

    Raises PluginError for an answer that a subscription cannot have.
    """
    hooks = plugins.hooks("failure_policy")
    found = [_completed(one, hooks, options) for one in subscriptions]
    _check_agreement(found)
    return found


def _completed(one: Subscription, hooks: list[Hook], options: Options) -> Subscription:
    """What the first answer in the order of plugins that is used makes of it."""
    for hook in hooks if kind_of(one).by_message else ():  # a polled call has neither a last attempt nor a breaker
        answer = hook.call(subscription=one, options=options)
        if answer is None or (isinstance(answer, Policy) and one.retry is not None):
            continue
        if not isinstance(answer, Policy | Override):
            raise _refused(hook, one, answer, "return a Policy, an Override, or None to decline")
        new = _with_answer(one, answer, f"plugin {hook.plugin}")
        problem = _problem(new)
        if problem is not None:
            raise _refused(hook, one, answer, problem)
        return new
    return one


def _with_answer(one: Subscription, answer: Policy | Override, plugin: str) -> Subscription:
    if isinstance(answer, Policy):
        return replace(one, retry=answer, retry_from=plugin)
    source = f"{answer.said_by} ({plugin})" if answer.said_by else plugin
    if answer.retry is not None:
        one = replace(one, retry=answer.retry, retry_from=source)
    if answer.retries is not None:
        one = replace(one, retries=answer.retries, retries_from=source)
    return one


def _problem(one: Subscription) -> str | None:
    """Why a subscription cannot have its policy or its retries, or None."""
    is_concurrent = not kind_of(one).in_order
    if isinstance(one.retries, bool) or not isinstance(one.retries, int) or one.retries < -1:
        return f"retries={one.retries!r}: give a whole number, 0 or more, or -1 for unlimited"
    if one.retries < 0 and is_concurrent:
        return "retries=-1 (unlimited) needs an orderly handler"
    return unfit_for_concurrent(one.retry) if is_concurrent and one.retry is not None else None


def _check_agreement(subscriptions: Iterable[Subscription]) -> None:
    """Retries belong to the queues of a topic: an answer for one of its handlers is one for all."""
    first: dict[tuple[str, str, str], Subscription] = {}
    for one in subscriptions:
        other = first.setdefault((one.cluster, one.group, one.topic), one)
        if one.retries != other.retries:
            told = (
                f"topic {one.topic!r} of group {one.group!r}: {one.handler_name} has retries={one.retries} "
                f"({one.retries_from}) and {other.handler_name} {other.retries} ({other.retries_from}): handlers of "
                "one topic and group agree in it"
            )
            raise PluginError("failure_policy", told)


def _refused(hook: Hook, one: Subscription, answer: object, problem: str) -> PluginError:
    if isinstance(answer, Override) and answer.said_by:
        return PluginError(hook.plugin, f"{answer.said_by} for {one.handler_name} ({one.place}): {problem}")
    return PluginError(
        hook.plugin, f"failure_policy for {one.handler_name} ({one.place}) returned {answer!r}: {problem}"
    )
