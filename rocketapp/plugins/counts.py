"""Counts and times handler calls and sends: a few additions each, read when metrics are collected."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from time import perf_counter
from typing import Any, Final, NamedTuple

from rocketapp import Message, SendResult
from rocketapp.plugin import Metric, PublishCall, Sending, Subscription, Wrapper, conventions, is_done
from rocketapp.plugins.current_message import around

BOUNDS: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
"""Seconds: the upper bounds of the buckets, as the semantic conventions advise them."""


class Histogram:
    """A histogram of durations."""

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


class CallKey(NamedTuple):
    """What a histogram measures: calls of one handler, or sends to one topic."""

    topic: str
    group: str = ""
    """Empty for sends, as the handler is."""
    handler: str = ""
    error: str = ""
    """What failed calls raised or returned, or sends raised: the name of its class; empty for those that succeeded."""
    broker: str = ""
    """Which broker has stored the messages, as its ids begin; empty when that is not known, or several did."""
    cluster: str = ""
    """The name of a handler's cluster; empty for the unnamed one."""


class Counts:
    """The histograms of one app since its start."""

    def __init__(self, histogram: Callable[[CallKey], Histogram] | None = None) -> None:
        """`histogram`: makes a histogram for a new key."""
        self._histogram = histogram or (lambda _which: Histogram())
        self.histograms: dict[CallKey, Histogram] = {}
        self._lock = threading.Lock()
        """Threads of one handler may end at once, and additions in Python are not one step."""

    def __repr__(self) -> str:
        return f"<Counts of {len(self.histograms)} kinds of calls and sends>"

    def _of(self, which: CallKey) -> Histogram:
        return self.histograms.get(which) or self.histograms.setdefault(which, self._histogram(which))

    def handler(self, subscription: Subscription) -> Wrapper:
        """A wrapper that measures the calls of one handler."""
        names = subscription.topic, subscription.group, subscription.handler_name
        unknown = CallKey(*names, cluster=subscription.cluster)
        done: dict[str, tuple[CallKey, Histogram]] = {}
        """By name of the broker: its address is read of one message."""
        is_single = subscription.batch is None and subscription.every is None
        lock, now = self._lock, perf_counter

        def begin(handed: Any) -> tuple[float, Any]:
            # The list of a batch is the handler's, and that of a polled call grows.
            return now(), handed if subscription.batch is None else handed[:]

        def known(message: Message | None) -> tuple[CallKey, Histogram]:
            broker = "" if message is None or message.queue is None else message.queue.broker_name
            found = done.get(broker)
            if found is None:
                stored = "" if message is None else broker_of([message.offset_message_id])
                which = unknown._replace(broker=stored)
                found = done[broker] = which, self._of(which)
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
                    histogram = self._of(which._replace(error=name))
            with lock:
                histogram.add(seconds, count)

        return around(begin, ended, polled=True)

    def publishing(self, call: PublishCall) -> PublishCall:
        """A wrapper that measures sends."""

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
                    which = CallKey(sending.messages[0].topic, error=error, broker=broker)
                    self._of(which).add(perf_counter() - began, len(sending.messages))

        return counted


def broker_of(ids: Iterable[str]) -> str:
    """The common prefix of these message ids, which identifies their broker; empty for none or for several brokers."""
    brokers = {one[:-16] for one in ids}
    return brokers.pop() if len(brokers) == 1 else ""


_HOSTS = (4, 16)
"""Bytes of an address; the port follows."""


def server_of(broker: str) -> dict[str, str | int]:
    """The address and port of a broker from the prefix of its message ids; empty when it cannot be read."""
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
    """A metric of durations: a histogram in seconds for each set of labels."""

    name: str
    meaning: str
    counter: str
    """The name of the metric that counts their messages."""
    counted: str
    """The meaning of that metric."""
    of_handlers: bool

    def read(self, counts: Counts) -> Iterator[tuple[Labels, Histogram]]:
        """All histograms so far, with their labels."""
        known = counts.histograms.copy().items()
        return ((labels_of(which), histogram) for which, histogram in known if bool(which.handler) is self.of_handlers)


def labels_of(which: CallKey) -> dict[str, str]:
    """The labels of one histogram."""
    place = {name: str(value) for name, value in server_of(which.broker).items()}
    found = {conventions.DESTINATION: which.topic, **place}
    if which.error:
        found[conventions.ERROR] = which.error
    if not which.handler:
        return {**conventions.OF_SEND, **found}
    if which.cluster:
        found[conventions.CLUSTER] = which.cluster
    return {**conventions.OF_PROCESS, **found, conventions.GROUP: which.group, conventions.HANDLER: which.handler}


DISTRIBUTIONS: Final = (
    Distribution(
        conventions.PROCESS_DURATION,
        "How long calls of handlers took.",
        conventions.CONSUMED_MESSAGES,
        "Messages that were given to handlers, each attempt counted.",
        of_handlers=True,
    ),
    Distribution(
        conventions.OPERATION_DURATION,
        "How long sends took.",
        conventions.SENT_MESSAGES,
        "Messages that the app tried to send.",
        of_handlers=False,
    ),
)


def messages_by(counts: Counts) -> list[Metric]:
    """Handled and sent messages, as metrics beside those of a snapshot."""
    return [
        Metric(
            name=one.counter,
            kind="counter",
            unit="{message}",
            meaning=one.counted,
            samples=tuple((labels, histogram.messages) for labels, histogram in one.read(counts)),
        )
        for one in DISTRIBUTIONS
    ]
