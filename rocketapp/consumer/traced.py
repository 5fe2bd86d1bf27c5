"""Handlers whose calls are traced: one record when a call begins, one when it has ended, for each message.

What does not end by itself, because the process stops or the queue is given up, has only the first of them.
"""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any, NamedTuple

from rocketapp.client.traces import Traces
from rocketapp.consumer.handler import ConsumedTopic, Handler
from rocketapp.consumer.ways.outcomes import failure_of
from rocketapp.model.handler_kind import kind_of
from rocketapp.model.outcome import Outcome, outcomes_by_message
from rocketapp.model.subscription import Subscription
from rocketapp.wire import properties as names
from rocketapp.wire.record import Message
from rocketapp.wire.trace import REGION, CallCode, SubAfterRecord, SubBeforeRecord

_OFF = b"TRACE_ON\x01false"


class _Told(NamedTuple):
    """What the records need of a message, without its body."""

    message_id: str
    raw: bytes
    retries: int


class _Begun(NamedTuple):
    """A call that has begun. `number`: of the call, in this process."""

    at: float
    number: int
    messages: tuple[_Told, ...]


def traced(topics: Sequence[ConsumedTopic], group: str, traces: Traces, prefix: str) -> tuple[ConsumedTopic, ...]:
    """The same topics with handlers that are traced. `prefix`: makes the ids of calls unique."""
    calls = TracedCalls(group, traces, prefix)
    return tuple(
        topic if topic.topic == traces.topic else replace(topic, handlers=tuple(map(calls.around, topic.handlers)))
        for topic in topics
    )


class TracedCalls:
    """The calls of one group's handlers."""

    def __init__(self, group: str, traces: Traces, prefix: str) -> None:
        self._group, self._prefix = group, prefix
        self._add, self._now, self._numbers = traces.add, traces.now, count(1)

    def around(self, handler: Handler) -> Handler:
        """The handler, whose calls leave notes."""
        call, subscription = handler.call, handler.subscription
        if not kind_of(subscription).by_message:
            return replace(handler, call=self._polled(call, subscription))
        begin = self._begin_one if subscription.batch is None else self._begin_batch
        around = self._async if subscription.is_async else self._sync
        return replace(handler, call=around(call, subscription, begin))

    def _sync(
        self, call: Callable[[Any], Any], subscription: Subscription, begin: Callable[[Any], _Begun]
    ) -> Callable[[Any], Any]:
        def tracing(item: Any) -> Any:
            begun = begin(item)
            try:
                result = call(item)
            except BaseException as error:
                self._end(begun, self._codes_of_error(begun, error, subscription))
                raise
            self._end(begun, None if result is None else _codes_of(result, item, subscription))
            return result

        return tracing

    def _async(
        self, call: Callable[[Any], Any], subscription: Subscription, begin: Callable[[Any], _Begun]
    ) -> Callable[[Any], Any]:
        async def tracing(item: Any) -> Any:
            begun = begin(item)
            try:
                result = await call(item)
            except BaseException as error:
                self._end(begun, self._codes_of_error(begun, error, subscription))
                raise
            self._end(begun, None if result is None else _codes_of(result, item, subscription))
            return result

        return tracing

    def _polled(self, call: Callable[[Any], Any], subscription: Subscription) -> Callable[[Any], Any]:
        """A call that pulls its messages: they are known when it has ended, so both records are made then."""

        async def tracing(pulled: Any) -> Any:
            with self._pulling(pulled, subscription) as results:
                results.append(await call(pulled))
            return results[0]

        def tracing_sync(pulled: Any) -> Any:
            with self._pulling(pulled, subscription) as results:
                results.append(call(pulled))
            return results[0]

        return tracing if subscription.is_async else tracing_sync

    @contextmanager
    def _pulling(self, pulled: Sequence[Message], subscription: Subscription) -> Iterator[list[object]]:
        """Within, a call adds to `pulled`; what it returns is put into the list."""
        at, results = self._now(), list[object]()
        try:
            yield results
        except BaseException as error:
            if pulled:
                begun = self._begin_batch(pulled, at)
                self._end(begun, self._codes_of_error(begun, error, subscription))
            raise
        if pulled:
            self._end(self._begin_batch(pulled, at), [_code_of(results[0])] * len(pulled))

    def _begin_one(self, message: Message) -> _Begun:
        told = _Told(message.message_id, message.raw_properties, message.reconsume_times)
        return self._begin((told,), self._now())

    def _begin_batch(self, messages: Sequence[Message], at: float | None = None) -> _Begun:
        told = tuple(_Told(one.message_id, one.raw_properties, one.reconsume_times) for one in messages)
        return self._begin(told, self._now() if at is None else at)

    def _begin(self, messages: tuple[_Told, ...], at: float) -> _Begun:
        begun = _Begun(at, next(self._numbers), messages)
        self._add(partial(self._before, begun))
        return begun

    def _end(self, begun: _Begun, codes: Sequence[CallCode] | None) -> None:
        """`codes`: one per message; None is success of all, empty that the call was cut off."""
        if codes is None or codes:
            self._add(partial(self._after, begun, self._now(), codes))

    def _codes_of_error(self, begun: _Begun, error: BaseException, subscription: Subscription) -> Sequence[CallCode]:
        if not isinstance(error, Exception):
            timeout, took = subscription.timeout, self._now() - begun.at
            ended_by_us = isinstance(error, CancelledError) and timeout is not None and took >= timeout
            return [CallCode.TIMEOUT] * len(begun.messages) if ended_by_us else []
        if failure_of(error, True, "", subscription.retry) is None:
            code = CallCode.SUCCESS
        else:
            code = CallCode.FAILED if isinstance(error, Outcome) else CallCode.EXCEPTION
        return [code] * len(begun.messages)

    def _before(self, begun: _Begun) -> Iterator[SubBeforeRecord]:
        at_ms, request = int(begun.at * 1000), self._request(begun.number)
        for message in begun.messages:
            if _OFF not in message.raw:
                region = _region_of(message.raw)
                yield SubBeforeRecord(
                    at_ms, region, self._group, request, message.message_id, message.retries, _keys_of(message.raw)
                )

    def _after(self, begun: _Begun, ended: float, codes: Sequence[CallCode] | None) -> Iterator[SubAfterRecord]:
        at_ms, request = int(ended * 1000), self._request(begun.number)
        cost_ms = max(0, int((ended - begun.at) * 1000)) // len(begun.messages)
        for number, message in enumerate(begun.messages):
            if _OFF not in message.raw:
                code = CallCode.SUCCESS if codes is None else codes[number]
                done = code is CallCode.SUCCESS
                yield SubAfterRecord(
                    request, message.message_id, cost_ms, done, _keys_of(message.raw), code, at_ms, self._group
                )

    def _request(self, number: int) -> str:
        return f"{self._prefix}{number:016X}"


def _codes_of(result: object, item: Any, subscription: Subscription) -> Sequence[CallCode] | None:
    """What a returned value says of each message; None: all are done."""
    if subscription.batch is None:
        return [_code_of(result)]
    try:
        single = outcomes_by_message(result, item)
    except TypeError:
        return [CallCode.FAILED] * len(item)
    return [_code_of(result if single is None else single.get(message)) for message in item]


def _code_of(result: object) -> CallCode:
    return CallCode.SUCCESS if failure_of(result, False) is None else CallCode.FAILED


def _region_of(raw: bytes) -> str:
    start = raw.find(b"MSG_REGION\x01")
    if start < 0:
        return REGION
    end = raw.find(b"\x02", start)
    return raw[start + 11 : end if end >= 0 else None].decode("utf-8", "replace") or REGION


def _keys_of(raw: bytes) -> str | None:
    keys = names.keys_of(raw)
    return None if keys is None else keys.decode("utf-8", "replace")
