"""Message trace of handler calls: one record at the begin and one at the end of a call, for each message.

A call that does not end, because the process stops or the queue is given up, has only the first record.
"""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import count
from random import Random
from typing import Any

from rocketapp.client.traces import Traces
from rocketapp.consumer.handler import ConsumedTopic, Handler, messages_of
from rocketapp.consumer.modes.outcomes import failure_of, failures_of
from rocketapp.model.outcome import Outcome
from rocketapp.model.subscription import Subscription, kind_of
from rocketapp.wire.message import Stub, stub_of
from rocketapp.wire.record import Message
from rocketapp.wire.trace import CallCode, Handled, Line, begun_line, ended_line, handled

_Begun = tuple[float, int, tuple[Stub, ...]]
"""A call that has begun: when, its number in this process, and its messages. Plain tuples: each call makes them."""
_Codes = Sequence[CallCode] | None
"""How a call has ended, by message; None is success of all, empty that the call was cut off."""
_Note = tuple[object, _Begun, float | None, _Codes]
"""The end of a call, and when; None at its begin."""


def traced(topics: Sequence[ConsumedTopic], group: str, traces: Traces, random: Random) -> tuple[ConsumedTopic, ...]:
    """The same topics, with traced handlers."""
    calls = TracedCalls(group, traces, prefix=f"{random.getrandbits(64):016X}")
    return tuple(
        topic if topic.topic == traces.topic else replace(topic, handlers=tuple(map(calls.around, topic.handlers)))
        for topic in topics
    )


class TracedCalls:
    """Wraps the handlers of one group so that each call is traced."""

    def __init__(self, group: str, traces: Traces, prefix: str) -> None:
        """`prefix`: makes the ids of calls unique."""
        self._group, self._prefix = group, prefix
        self._add, self._now, self._numbers = traces.add, traces.now, count(1)
        self._write = self._lines

    def around(self, handler: Handler) -> Handler:
        """The handler with tracing."""
        call, about = handler.call, handler.subscription
        by_message = kind_of(about).by_message

        def tracing(item: Any) -> Any:
            begun = self.begin(messages_of(item) if by_message else ())
            try:
                result = call(item)
            except BaseException as error:
                self.end(begun, item, about, error, raised=True)
                raise
            self.end(begun, item, about, result, raised=False)
            return result

        async def tracing_async(item: Any) -> Any:
            begun = self.begin(messages_of(item) if by_message else ())
            try:
                result = await call(item)
            except BaseException as error:
                self.end(begun, item, about, error, raised=True)
                raise
            self.end(begun, item, about, result, raised=False)
            return result

        return replace(handler, call=tracing_async if about.is_async else tracing)

    def begin(self, messages: Iterable[Message]) -> _Begun:
        """A call begins. A polled call knows its messages only at its end: both records are made then."""
        begun = self._now(), next(self._numbers), tuple(map(stub_of, messages))
        if begun[2]:
            self._add((self._write, begun, None, None))
        return begun

    def end(self, begun: _Begun, item: Any, about: Subscription, result: Any, *, raised: bool) -> None:
        """A call has ended, with a result or an exception."""
        at, number, stubs = begun
        if not stubs:
            begun = at, number, tuple(map(stub_of, item))
            if not begun[2]:
                return
            self._add((self._write, begun, None, None))
        codes: _Codes = None
        if raised:
            codes = self._codes_of_error(begun, result, about)
        elif result is not None:
            codes = _codes_of(result, item, about)
        if codes is None or codes:
            self._add((self._write, begun, self._now(), codes))

    def _codes_of_error(self, begun: _Begun, error: BaseException, subscription: Subscription) -> Sequence[CallCode]:
        if not isinstance(error, Exception):
            timeout, took = subscription.timeout, self._now() - begun[0]
            ended_by_us = isinstance(error, CancelledError) and timeout is not None and took >= timeout
            return [CallCode.TIMEOUT] * len(begun[2]) if ended_by_us else []
        if failure_of(error, True, "", subscription.retry) is None:
            code = CallCode.SUCCESS
        else:
            code = CallCode.FAILED if isinstance(error, Outcome) else CallCode.EXCEPTION
        return [code] * len(begun[2])

    def _lines(self, notes: Iterable[_Note]) -> list[Line]:
        """Of begins and ends. Most calls are short, so that both are among these notes."""
        group, prefix, success, lines = self._group, self._prefix, CallCode.SUCCESS, list[Line]()
        known: dict[int, tuple[str, list[Handled | None]]] = {}
        for _, (at, number, stubs), ended, codes in notes:
            told = known.get(number)
            if told is None:
                told = known[number] = f"{prefix}{number:016X}", [handled(stub) for stub in stubs]
            request, messages = told
            if ended is None:
                at_ms = int(at * 1000)
                for about in messages:
                    if about is not None:
                        lines.append(begun_line(about, at_ms, group, request))
                continue
            at_ms, cost_ms, code = int(ended * 1000), int(max(0.0, ended - at) * 1000) // len(messages), success
            for place, about in enumerate(messages):
                if about is not None:
                    if codes is not None:
                        code = codes[place]
                    lines.append(ended_line(about, at_ms, group, request, cost_ms=cost_ms, code=code))
        return lines


def _codes_of(result: object, item: Any, subscription: Subscription) -> _Codes:
    """What a returned value means for each message."""
    if kind_of(subscription).by_message:
        failures = failures_of(result, False, messages_of(item), subscription)
    else:
        failures = [failure_of(result, False)] * len(item)
    return [CallCode.SUCCESS if failure is None else CallCode.FAILED for failure in failures]
