"""Failure policies from the settings: an operator changes retries, delays and what exceptions mean without the code.

`[[failures.rules]]`: the first rule that fits a handler is used. It holds over what the code says. What it leaves out
stays as in the code. `failures.skip_messages`: a message that blocks its queue is done without a call.
"""

from __future__ import annotations

import builtins
import importlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from rocketapp import ConfigError, DeadLetter, Pause, Policy, Retry, Skip
from rocketapp.plugin import Override, Predicate, Subscription, Surface, hookimpl, option

log: logging.Logger = logging.getLogger("rocketapp.failures")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One entry of `[[failures.rules]]`."""

    topic: str = option("", "Handlers of this topic. Empty: of any.")
    group: str = option("", "Handlers of this consumer group. Empty: of any.")
    handler: str = option("", "The handler of this name, `module:function`. Empty: any.")
    retries: int | None = option(None, "Attempts after the first; -1 is unlimited (orderly only).", least=-1)
    delays: tuple[float, ...] = option((), "Seconds before the second attempt, the third, and so on.")
    retry: tuple[str, ...] = option((), "Exceptions that are retried, for one whose base class is not.")
    skip: tuple[str, ...] = option((), "Exceptions after which the message is done.")
    dead_letter: tuple[str, ...] = option((), "Exceptions that make a dead letter at once.")
    pause: tuple[str, ...] = option((), "Exceptions that pause the topic and keep the message.")

    @property
    def wanted(self) -> str:
        """Which handlers, in words."""
        wanted = (("topic", self.topic), ("group", self.group), ("handler", self.handler))
        return " and ".join(f"{name} {value!r}" for name, value in wanted if value) or "the app has none"

    def fits(self, subscription: Subscription) -> bool:
        return all(
            wanted in ("", is_)
            for wanted, is_ in (
                (self.topic, subscription.topic),
                (self.group, subscription.group),
                (self.handler, subscription.handler_name),
            )
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FailuresConfig:
    """The table `[failures]` of the settings."""

    rules: tuple[Rule, ...] = option(
        (), "What follows failed attempts, by topic, group and handler: the first that fits."
    )
    skip_messages: tuple[str, ...] = option((), "Ids of messages that no handler gets: they are done.")


class Failures:
    """The plugin. Without rules, handlers have what their code says."""

    def __init__(self) -> None:
        self._skipped: frozenset[str] = frozenset()

    @hookimpl
    def app_setup(self, app: Surface) -> None:
        self._skipped = frozenset(app.options(FailuresConfig).skip_messages)

    @hookimpl
    def message_filter(self) -> Predicate | None:
        skipped = self._skipped
        return (lambda message: message.message_id not in skipped) if skipped else None

    @hookimpl
    def options(self) -> tuple[str, type[FailuresConfig]]:
        return "failures", FailuresConfig

    @hookimpl
    def failure_policy(
        self, subscription: Subscription, options: Callable[[type[FailuresConfig]], FailuresConfig]
    ) -> Override | None:
        """Raises ConfigError for a name that is not an exception's, and a policy that cannot be."""
        for number, rule in enumerate(options(FailuresConfig).rules):
            if rule.fits(subscription):
                place = f"failures.rules[{number}]"
                return Override(retry=_policy(rule, subscription.retry, place), retries=rule.retries, said_by=place)
        return None

    @hookimpl
    async def app_startup(self, app: Surface) -> None:
        """A rule that fits no handler is probably misspelt; another app may share the settings."""
        for number, rule in enumerate(app.options(FailuresConfig).rules):
            if not any(map(rule.fits, app.subscriptions)):
                log.warning("failures.rules[%d] fits no handler: %s", number, rule.wanted)


def _policy(rule: Rule, own: Policy | None, place: str) -> Policy | None:
    """The handler's own policy with what the rule says; None where it says nothing of it."""
    on = dict(_answers(rule, place))
    if not on and not rule.delays:
        return None
    own = Policy() if own is None else own
    try:
        return replace(own, delays=rule.delays or own.delays, on={**own.on, **on})
    except (TypeError, ValueError) as error:
        raise ConfigError(place, str(error)) from error


def _answers(rule: Rule, place: str) -> Iterator[tuple[type[BaseException], Any]]:
    said: dict[type[BaseException], str] = {}
    for key, answer in (("retry", Retry), ("skip", Skip), ("dead_letter", DeadLetter), ("pause", Pause)):
        for name in getattr(rule, key):
            kind = _exception(name, f"{place}.{key}")
            if kind in said:
                raise ConfigError(f"{place}.{key}", f"{name} stands in {said[kind]} as well: remove one")
            said[kind] = key
            yield kind, answer


def _exception(name: str, place: str) -> type[BaseException]:
    """`ValueError`, or a class by its module: `sqlalchemy.exc.OperationalError`."""
    module, _, attribute = name.replace(":", ".").rpartition(".")
    try:
        found = getattr(importlib.import_module(module) if module else builtins, attribute)
    except (ImportError, AttributeError) as error:
        mend = "" if module else ": name its module too, as in `shop.errors.NotPaid`"
        raise ConfigError(place, f"{name} cannot be found ({error}){mend}") from error
    if not (isinstance(found, type) and issubclass(found, BaseException)):
        raise ConfigError(place, f"{name} is not an exception")
    return found
