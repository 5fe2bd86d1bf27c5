"""A plugin of the shop's own: one line for each attempt of the handlers that the settings name.

It is asked once per handler, at the start: a handler that it declines has nothing of it in its way.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter

from rocketapp import Message
from rocketapp.plugin import AsyncCall, Subscription, Surface, SyncCall, Wrapper, hookimpl, option, outcome_of

log = logging.getLogger("shop.audit")


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditOptions:
    """The table `[audit]` of the settings."""

    handlers: tuple[str, ...] = option((), "Names of handler functions whose attempts are noted.")
    slow: float = option(1.0, "Seconds from which an attempt is a warning.", least=0.0)


class Audit:
    """One for each app: `RocketApp(plugins=[Audit()])`."""

    def __init__(self) -> None:
        self._options = AuditOptions()

    @hookimpl
    def options(self) -> tuple[str, type[AuditOptions]]:
        return "audit", AuditOptions

    @hookimpl
    def app_setup(self, app: Surface) -> None:
        """The settings are complete, and no handler is wrapped yet."""
        self._options = app.options(AuditOptions)

    @hookimpl
    def handler_wrapper(self, subscription: Subscription) -> Wrapper | None:
        name = subscription.handler_name.rpartition(":")[2]
        if name not in self._options.handlers or subscription.batch is not None:
            return None

        def for_sync(call: SyncCall) -> SyncCall:
            def audited(message: Message) -> object:
                with self._noted(name, message, subscription) as note:
                    note.result = call(message)
                return note.result

            return audited

        def for_async(call: AsyncCall) -> AsyncCall:
            async def audited(message: Message) -> object:
                with self._noted(name, message, subscription) as note:
                    note.result = await call(message)
                return note.result

            return audited

        # Outside of the transaction and of the mark: "done" is said of what is committed, and a copy has a line too.
        return Wrapper(for_sync=for_sync, for_async=for_async, layer="telemetry")

    @contextmanager
    def _noted(self, name: str, message: Message, subscription: Subscription) -> Iterator[_Note]:
        note, began, outcome = _Note(), perf_counter(), "cut off"
        try:
            yield note
            outcome = _said(note.result, subscription)
        except Exception as error:
            outcome = f"{_said(error, subscription, raised=True)} ({type(error).__name__})"
            raise
        finally:
            seconds = perf_counter() - began
            level = logging.WARNING if seconds >= self._options.slow else logging.INFO
            told = name, message.attempt, outcome, 1000 * seconds, message.message_id
            log.log(level, "%s, attempt %d: %s, %.0f ms, message %s", *told)


class _Note:
    """What a handler returned."""

    result: object = None


def _said(result: object, subscription: Subscription, *, raised: bool = False) -> str:
    """In words: the handler's policy included."""
    outcome = outcome_of(result, subscription, raised=raised)
    return "done" if outcome is None else type(outcome).__name__
