"""The plugin that writes down what a tested app does, with the hooks that any plugin has."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

from rocketapp.app.payloads.payloads import Payloads
from rocketapp.consumer.ways.outcomes import failure_of
from rocketapp.hooks.answers import PublishCall, PublishWrapper, Sending, Wrapper
from rocketapp.hooks.markers import hookimpl
from rocketapp.hooks.surface import Surface
from rocketapp.model import event as events
from rocketapp.model.outcome import Outcome, Skip
from rocketapp.model.outgoing import SendResult
from rocketapp.model.subscription import Subscription
from rocketapp.testing.outside import DrivenLoop
from rocketapp.testing.records import Dead, Done, Dropped, Handled, Published, Retried, outcomes_of, published_of
from rocketapp.wire.message import Message

BY_TEST: ContextVar[bool] = ContextVar("published by the test", default=False)
_Key = tuple[str, str, int]
"""Handler, message id and attempt."""
_Call = tuple[Message, int]
"""A message, and its attempt: an orderly one is the same object at the next attempt."""


class Recorder:
    """What happened since the start."""

    def __init__(self, loop: DrivenLoop, payloads: Payloads) -> None:
        """`payloads`: those of the app."""
        self._loop, self._payloads = loop, payloads
        self.handled: list[Handled] = []
        self.retried: list[Retried] = []
        self.dead: list[Dead] = []
        self.dropped: list[Dropped] = []
        self.published: list[Published] = []
        self._open: dict[str, Published] = {}
        """Messages of transactions that are not committed, by id."""
        self._begun: dict[_Key, list[tuple[Message, BaseException | None]]] = {}
        """Calls that have begun, until the engine says what becomes of their messages."""

    def committed(self, message_id: str) -> None:
        """A broker has committed the message of a transaction: now it is published."""
        if (one := self._open.pop(message_id, None)) is not None:
            self.published.append(replace(one, at=self._loop.time()))

    @hookimpl
    def observe_events(self, app: Surface) -> events.Observe:
        return self._observe

    @hookimpl(tryfirst=True)
    def handler_wrapper(self, subscription: Subscription) -> Wrapper:
        return Wrapper(
            for_sync=lambda call: self._recording(call, subscription),
            for_async=lambda call: self._recording_async(call, subscription),
            polled=True,
        )

    @hookimpl(trylast=True)
    def publish_wrapper(self, app: Surface) -> PublishWrapper:
        return self._recording_publish

    def _recording_publish(self, call: PublishCall) -> PublishCall:
        async def recording(sending: Sending) -> Sequence[SendResult]:
            results = await call(sending)
            if not BY_TEST.get():
                now = self._loop.time()
                for number, message in enumerate(sending.messages):
                    one = published_of(message, sending.cluster, now, self._payloads)
                    if message.half:
                        self._open[results[number].message_id] = one
                    else:
                        self.published.append(one)
            return results

        return recording

    def _recording(self, call: Callable[[Any], Any], subscription: Subscription) -> Callable[[Any], Any]:
        def recording(item: Any) -> Any:
            calls = self._begin(item, subscription)
            try:
                result = call(item)
            except BaseException as error:
                self._raised(calls or self._begin(item, subscription), error, subscription)
                raise
            self._returned(calls or self._begin(item, subscription), result, subscription)
            return result

        return recording

    def _recording_async(
        self, call: Callable[[Any], Awaitable[Any]], subscription: Subscription
    ) -> Callable[[Any], Awaitable[Any]]:
        loop = self._loop

        async def recording(item: Any) -> Any:
            calls = self._begin(item, subscription)
            loop.calls += 1
            try:
                result = await call(item)
            except BaseException as error:
                self._raised(calls or self._begin(item, subscription), error, subscription)
                raise
            finally:
                loop.calls -= 1
            self._returned(calls or self._begin(item, subscription), result, subscription)
            return result

        return recording

    def _begin(self, item: Any, subscription: Subscription) -> list[_Call]:
        """Of a polled call none at first: then again when it has pulled its messages."""
        is_single = subscription.batch is None and subscription.every is None
        calls = [(message, message.attempt) for message in ([item] if is_single else item)]
        for message, attempt in calls:
            self._begun.setdefault((subscription.handler_name, message.message_id, attempt), []).append((message, None))
        return calls

    def _raised(self, calls: list[_Call], error: BaseException, subscription: Subscription) -> None:
        if isinstance(error, Exception) and failure_of(error, True, policy=subscription.retry) is None:
            self._done(calls, [error if isinstance(error, Skip) else Skip(error)] * len(calls), subscription)
            return
        for message, attempt in calls:
            begun = self._begun.get((subscription.handler_name, message.message_id, attempt), [])
            begun[:] = [(one, error if one is message else why) for one, why in begun]

    def _returned(self, calls: list[_Call], result: Any, subscription: Subscription) -> None:
        # Plain results are done; only the others have to be judged.
        messages = [message for message, _ in calls]
        if subscription.batch is not None:
            outcomes = outcomes_of(result, False, messages, subscription)
        elif result is None:
            outcomes = [Done()] * len(calls)
        else:  # of a polled call all messages have the same
            outcomes = outcomes_of(result, False, messages[:1], subscription) * len(calls)
        self._done(calls, outcomes, subscription)

    def _done(self, calls: list[_Call], outcomes: Sequence[Done | Outcome], subscription: Subscription) -> None:
        for (message, attempt), outcome in zip(calls, outcomes, strict=True):
            if not isinstance(outcome, Done | Skip):
                continue  # the engine says what becomes of it
            self._taken(subscription.handler_name, message.message_id, attempt)
            self.handled.append(
                Handled(
                    handler=subscription.handler_name,
                    message=message,
                    attempt=attempt,
                    outcome=outcome,
                    at=self._loop.time(),
                )
            )

    def _taken(self, handler: str, message_id: str, attempt: int) -> tuple[Message | None, BaseException | None]:
        key = handler, message_id, attempt
        begun = self._begun.get(key)
        if not begun:
            return None, None
        one = begun.pop(0)
        if not begun:
            del self._begun[key]
        return one

    def _observe(self, event: events.Event) -> None:
        if not isinstance(event, events.Retried | events.DeadLettered | events.Dropped):
            return
        message, error = self._taken(event.handler, event.message_id, event.attempt)
        if message is None and not isinstance(event, events.Retried):
            message = event.message  # its handler was not called, for example because order_by= failed
        if message is None:
            return
        about: dict[str, Any] = {"handler": event.handler, "message": message, "error": error, "at": self._loop.time()}
        if isinstance(event, events.Retried):
            self.retried.append(Retried(attempt=event.attempt, delay=event.delay, reason=event.error, **about))
        elif isinstance(event, events.Dropped):
            self.dropped.append(Dropped(attempts=event.attempt, reason=event.reason, **about))
        else:
            self.dead.append(Dead(attempts=event.attempt, reason=event.reason, **about))
