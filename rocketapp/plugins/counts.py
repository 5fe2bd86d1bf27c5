"""Durations and sends, counted by the app itself: a few additions per message, read when metrics are collected."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any, Final, NamedTuple

from rocketapp.plugin import (
    AsyncCall,
    PublishCall,
    Sending,
    SendResult,
    Subscription,
    SyncCall,
    Wrapper,
    is_done,
)

BOUNDS: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
"""Seconds: the upper bounds of the buckets, as the semantic conventions advise them."""


class Histogram:
    """How often something took how long."""

    __slots__ = ("buckets", "total")

    def __init__(self) -> None:
        self.buckets: list[int] = [0] * (len(BOUNDS) + 1)
        """How many were at most as long as each bound and longer than the one before; the last: longer than all."""
        self.total: float = 0.0
        """Seconds of all together."""

    def __repr__(self) -> str:
        return f"<Histogram of {sum(self.buckets)}: {self.total:.3f} s>"

    def add(self, seconds: float) -> None:
        self.buckets[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds


class HandledKey(NamedTuple):
    """Whose calls a histogram has."""

    topic: str
    group: str
    handler: str
    error: str
    """What failed calls raised or returned: the name of its class; empty for calls that succeeded."""


class SentKey(NamedTuple):
    """Which sends are counted together."""

    topic: str
    error: str
    """The class of the error; empty for those that were stored."""


class Counts:
    """Of one app, since its start."""

    def __init__(self) -> None:
        self.process: dict[HandledKey, Histogram] = {}
        self.send: dict[SentKey, Histogram] = {}
        self.sent: dict[SentKey, int] = {}
        """Messages, where `send` counts calls."""
        self._lock = threading.Lock()
        """Threads of one handler may end at once, and additions in Python are not one step."""

    def __repr__(self) -> str:
        return f"<Counts of {len(self.process)} kinds of calls, {len(self.send)} of sends>"

    def handler(self, subscription: Subscription) -> Wrapper:
        """Measures the calls of one handler."""
        names = (subscription.topic, subscription.group, subscription.handler_name)
        done = self.process.setdefault(HandledKey(*names, ""), Histogram())
        lock, now = self._lock, perf_counter

        def count(is_success: bool, what: Any, seconds: float) -> None:
            with lock:
                if is_success:
                    done.add(seconds)
                else:
                    # An outcome may be returned as its class.
                    error = (what if isinstance(what, type) else type(what)).__qualname__
                    self.process.setdefault(HandledKey(*names, error), Histogram()).add(seconds)

        def judge(result: Any, seconds: float) -> None:
            count(is_done(result, subscription), result, seconds)

        def raised(error: BaseException, seconds: float) -> None:
            is_success = isinstance(error, Exception) and is_done(error, subscription, raised=True)
            count(is_success, error, seconds)

        return Wrapper(
            for_sync=_timed_sync(done, lock, judge, raised, now),
            for_async=_timed_async(done, judge, raised, now),
            polled=True,
        )

    def publishing(self, call: PublishCall) -> PublishCall:
        """Measures what is sent."""

        async def counted(sending: Sending) -> Sequence[SendResult]:
            began, error = perf_counter(), ""
            try:
                return await call(sending)
            except BaseException as raised:
                error = type(raised).__qualname__
                raise
            finally:
                if sending.messages:
                    which = SentKey(sending.messages[0].topic, error)
                    self.send.setdefault(which, Histogram()).add(perf_counter() - began)
                    self.sent[which] = self.sent.get(which, 0) + len(sending.messages)

        return counted


Judge = Callable[[Any, float], None]


def _timed_sync(
    done: Histogram, lock: threading.Lock, judge: Judge, raised: Judge, now: Callable[[], float]
) -> Callable[[SyncCall], SyncCall]:
    add = done.add

    def wrap(call: SyncCall) -> SyncCall:
        def timed(handed: Any) -> Any:
            began = now()
            try:
                result = call(handed)
            except BaseException as error:
                raised(error, now() - began)
                raise
            if result is None:
                seconds = now() - began
                with lock:
                    add(seconds)
            else:
                judge(result, now() - began)
            return result

        return timed

    return wrap


def _timed_async(
    done: Histogram, judge: Judge, raised: Judge, now: Callable[[], float]
) -> Callable[[AsyncCall], AsyncCall]:
    add = done.add

    def wrap(call: AsyncCall) -> AsyncCall:
        async def timed(handed: Any) -> Any:
            began = now()
            try:
                result = await call(handed)
            except BaseException as error:
                raised(error, now() - began)
                raise
            if result is None:
                add(now() - began)  # on the loop alone: no lock
            else:
                judge(result, now() - began)
            return result

        return timed

    return wrap
