"""Calls of handlers and sends, counted and timed by the app itself: a few additions each, read at a collection."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from time import perf_counter
from typing import Any, Final, NamedTuple, TypeVar

from rocketapp import Message, SendResult
from rocketapp.plugin import Metric, PublishCall, Sending, Subscription, Wrapper, conventions, is_done
from rocketapp.plugins.handling import around

BOUNDS: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
"""Seconds: the upper bounds of the buckets, as the semantic conventions advise them."""


class Histogram:
    """How often something took how long."""

    __slots__ = ("buckets", "messages", "total")

    def __init__(self) -> None:
        self.buckets: list[int] = [0] * (len(BOUNDS) + 1)
        """How many were at most as long as each bound and longer than the one before; the last: longer than all."""
        self.total: float = 0.0
        """Seconds of all together."""
        self.messages: int = 0
        """How many messages these were, where a call or a send may have several."""

    def __repr__(self) -> str:
        return f"<Histogram of {sum(self.buckets)}: {self.total:.3f} s>"

    def add(self, seconds: float, messages: int = 1) -> None:
        self.buckets[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds
        self.messages += messages


class HandledKey(NamedTuple):
    """Whose calls a histogram has."""

    topic: str
    group: str
    handler: str
    error: str
    """What failed calls raised or returned: the name of its class; empty for calls that succeeded."""
    broker: str = ""
    """Which broker has stored the messages, as its ids of messages begin; empty when that is not known."""
    cluster: str = ""
    """The name of the cluster; empty for the unnamed one."""


class SentKey(NamedTuple):
    """Which sends are counted together."""

    topic: str
    error: str
    """The class of the error; empty for those that were stored."""
    broker: str = ""
    """Which broker has stored them, as its ids of messages begin; empty when that is not known, or several did."""


K = TypeVar("K", HandledKey, SentKey)


class Counts:
    """Of one app, since its start."""

    def __init__(self, histogram: Callable[[HandledKey | SentKey], Histogram] | None = None) -> None:
        """`histogram`: makes those of new keys."""
        self._histogram = histogram or (lambda _key: Histogram())
        self.process: dict[HandledKey, Histogram] = {}
        self.send: dict[SentKey, Histogram] = {}
        self._lock = threading.Lock()
        """Threads of one handler may end at once, and additions in Python are not one step."""

    def __repr__(self) -> str:
        return f"<Counts of {len(self.process)} kinds of calls, {len(self.send)} of sends>"

    def _of(self, histograms: dict[K, Histogram], which: K) -> Histogram:
        return histograms.get(which) or histograms.setdefault(which, self._histogram(which))

    def handler(self, subscription: Subscription) -> Wrapper:
        """Measures the calls of one handler."""
        names = subscription.topic, subscription.group, subscription.handler_name
        unknown = HandledKey(*names, error="", cluster=subscription.cluster)
        done: dict[str, tuple[HandledKey, Histogram]] = {}
        """By name of the broker: its address is read of one message."""
        is_single = subscription.batch is None and subscription.every is None
        lock, now = self._lock, perf_counter

        def begin(handed: Any) -> tuple[float, Any]:
            # The list of a batch is the handler's, and that of a polled call grows.
            return now(), handed if subscription.batch is None else handed[:]

        def known(message: Message | None) -> tuple[HandledKey, Histogram]:
            broker = "" if message is None or message.queue is None else message.queue.broker_name
            found = done.get(broker)
            if found is None:
                stored = "" if message is None else broker_of([message.offset_message_id])
                which = unknown._replace(broker=stored)
                found = done[broker] = which, self._of(self.process, which)
            return found

        def ended(began: tuple[float, Any], result: Any, error: BaseException | None) -> None:
            seconds, handed = now() - began[0], began[1]
            message, count = (handed, 1) if is_single else (handed[0] if handed else None, len(handed))
            which, histogram = known(message)
            if error is not None or result is not None:
                what = result if error is None else error
                is_cancelled = isinstance(what, BaseException) and not isinstance(what, Exception)
                if is_cancelled or not is_done(what, subscription, raised=error is not None):
                    # An outcome may be returned as its class.
                    name = (what if isinstance(what, type) else type(what)).__qualname__
                    histogram = self._of(self.process, which._replace(error=name))
            with lock:
                histogram.add(seconds, count)

        return around(begin, ended, polled=True)

    def publishing(self, call: PublishCall) -> PublishCall:
        """Measures what is sent."""

        async def counted(sending: Sending) -> Sequence[SendResult]:
            began, error, broker = perf_counter(), "", ""
            try:
                results = await call(sending)
                broker = broker_of(one.offset_message_id for one in results)
                return results
            except BaseException as raised:
                error = type(raised).__qualname__
                raise
            finally:
                if sending.messages:
                    which = SentKey(sending.messages[0].topic, error, broker)
                    self._of(self.send, which).add(perf_counter() - began, len(sending.messages))

        return counted


def broker_of(ids: Iterable[str]) -> str:
    """How the ids begin that one broker gave these messages; empty when there are none, or of several brokers."""
    brokers = {one[:-16] for one in ids}
    return brokers.pop() if len(brokers) == 1 else ""


_HOSTS = (4, 16)
"""Bytes of an address; the port follows."""


def server_of(broker: str) -> dict[str, str | int]:
    """The address and the port that the ids of a broker begin with; empty when they cannot be read."""
    try:
        raw = bytes.fromhex(broker)
    except ValueError:
        raw = b""
    if len(raw) - 4 not in _HOSTS:
        return {}
    return {conventions.SERVER: str(ip_address(raw[:-4])), conventions.PORT: int.from_bytes(raw[-4:], "big")}


Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Distribution:
    """One metric with a histogram of seconds per set of labels."""

    name: str
    meaning: str
    read: Callable[[Counts], Iterator[tuple[Labels, Histogram]]]


def labels_of(which: HandledKey | SentKey) -> dict[str, str]:
    """Those of one histogram."""
    place = {name: str(value) for name, value in server_of(which.broker).items()}
    found = {conventions.DESTINATION: which.topic, **place}
    if which.error:
        found[conventions.ERROR] = which.error
    if isinstance(which, SentKey):
        return {**conventions.OF_SEND, **found}
    if which.cluster:
        found[conventions.CLUSTER] = which.cluster
    return {**conventions.OF_PROCESS, **found, conventions.GROUP: which.group, conventions.HANDLER: which.handler}


def _process(counts: Counts) -> Iterator[tuple[Labels, Histogram]]:
    return ((labels_of(which), histogram) for which, histogram in counts.process.copy().items())


def _operation(counts: Counts) -> Iterator[tuple[Labels, Histogram]]:
    return ((labels_of(which), histogram) for which, histogram in counts.send.copy().items())


DISTRIBUTIONS: Final = (
    Distribution(conventions.PROCESS_DURATION, "How long calls of handlers took.", _process),
    Distribution(conventions.OPERATION_DURATION, "How long sends took.", _operation),
)


_MESSAGES: Final = (
    (conventions.CONSUMED_MESSAGES, "Messages that were given to handlers, each attempt counted.", _process),
    (conventions.SENT_MESSAGES, "Messages that the app tried to send.", _operation),
)


def messages_by(counts: Counts) -> list[Metric]:
    """Messages that were handled and sent, as metrics beside those of a snapshot."""
    return [
        Metric(
            name=name,
            kind="counter",
            unit="{message}",
            meaning=meaning,
            samples=tuple((labels, histogram.messages) for labels, histogram in read(counts)),
        )
        for name, meaning, read in _MESSAGES
    ]
