"""The metrics of an app: names, units and meanings, and where each is read in a snapshot.

Names and labels follow OpenTelemetry's semantic conventions for messaging where these have one; the others begin with
`rocketapp.`. OpenTelemetry and Prometheus are given the same figures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from rocketapp.plugin import AppSnapshot, GroupSnapshot, HandlerSnapshot, LeaseState, QueueSnapshot
from rocketapp.plugins.counts import Counts, Histogram

Labels = Mapping[str, str]
Samples = Iterator[tuple[Labels, float]]

DESTINATION, PARTITION, GROUP = (
    "messaging.destination.name",
    "messaging.destination.partition.id",
    "messaging.consumer.group.name",
)
HANDLER, LEASE, ERROR = "rocketapp.handler", "rocketapp.lease.state", "error.type"
_SYSTEM = {"messaging.system": "rocketmq"}
_PROCESS = {**_SYSTEM, "messaging.operation.name": "process", "messaging.operation.type": "process"}
_SEND = {**_SYSTEM, "messaging.operation.name": "send", "messaging.operation.type": "send"}
_LEASES: tuple[LeaseState, ...] = ("wanted", "held", "uncertain")


@dataclass(frozen=True, slots=True)
class Figure:
    """One metric with one number per set of labels."""

    name: str
    kind: Literal["counter", "gauge"]
    unit: str
    """As UCUM says it: `By`, `s`, or a word in braces."""
    meaning: str
    read: Callable[[AppSnapshot, Counts], Samples]


@dataclass(frozen=True, slots=True)
class Distribution:
    """One metric with a histogram of seconds per set of labels."""

    name: str
    meaning: str
    read: Callable[[Counts], Iterator[tuple[Labels, Histogram]]]


def _handlers(read: Callable[[HandlerSnapshot], float]) -> Callable[[AppSnapshot, Counts], Samples]:
    def samples(app: AppSnapshot, _counts: Counts) -> Samples:
        for group in app.groups:
            for one in group.handlers:
                yield {**_PROCESS, DESTINATION: one.topic, **_of(group), HANDLER: one.name}, read(one)

    return samples


def _groups(read: Callable[[GroupSnapshot], float]) -> Callable[[AppSnapshot, Counts], Samples]:
    def samples(app: AppSnapshot, _counts: Counts) -> Samples:
        for group in app.groups:
            yield _of(group), read(group)

    return samples


def _queues(read: Callable[[QueueSnapshot], float | None]) -> Callable[[AppSnapshot, Counts], Samples]:
    """Queues whose figure is not known are left out."""

    def samples(app: AppSnapshot, _counts: Counts) -> Samples:
        for group in app.groups:
            for one in group.queues:
                value = read(one)
                if value is not None:
                    partition = f"{one.queue.broker_name}:{one.queue.queue_id}"
                    yield {DESTINATION: one.queue.topic, PARTITION: partition, **_of(group)}, value

    return samples


def _of(group: GroupSnapshot) -> dict[str, str]:
    found = {**_SYSTEM, GROUP: group.group}
    return {**found, "rocketapp.cluster": group.cluster} if group.cluster else found


def _unmatched(app: AppSnapshot, _counts: Counts) -> Samples:
    for group in app.groups:
        for topic, count in group.unmatched.items():
            yield {DESTINATION: topic, **_of(group)}, count


def _leases(app: AppSnapshot, _counts: Counts) -> Samples:
    for group in app.groups:
        states = [queue.lease for queue in group.queues]
        for state in _LEASES:
            yield {**_of(group), LEASE: state}, states.count(state)


def _sent(_app: AppSnapshot, counts: Counts) -> Samples:
    for which, count in counts.sent.copy().items():
        yield {**_SEND, DESTINATION: which.topic, **_error(which.error)}, count


def _process(counts: Counts) -> Iterator[tuple[Labels, Histogram]]:
    for which, histogram in counts.process.copy().items():
        names = {DESTINATION: which.topic, GROUP: which.group, HANDLER: which.handler}
        yield {**_PROCESS, **names, **_error(which.error)}, histogram


def _operation(counts: Counts) -> Iterator[tuple[Labels, Histogram]]:
    for which, histogram in counts.send.copy().items():
        yield {**_SEND, DESTINATION: which.topic, **_error(which.error)}, histogram


def _error(name: str) -> dict[str, str]:
    return {ERROR: name} if name else {}


FIGURES: Final = (
    Figure(
        "messaging.client.consumed.messages",
        "counter",
        "{message}",
        "Messages that were given to handlers, each attempt counted.",
        _handlers(lambda one: one.stats.handled + one.stats.retried + one.stats.dead_lettered + one.stats.dropped),
    ),
    Figure(
        "messaging.client.sent.messages",
        "counter",
        "{message}",
        "Messages that the app tried to send.",
        _sent,
    ),
    Figure(
        "rocketapp.handler.done",
        "counter",
        "{message}",
        "Messages that a handler finished.",
        _handlers(lambda one: one.stats.handled),
    ),
    Figure(
        "rocketapp.handler.retries",
        "counter",
        "{message}",
        "Failed attempts that are tried again.",
        _handlers(lambda one: one.stats.retried),
    ),
    Figure(
        "rocketapp.handler.dead_letters",
        "counter",
        "{message}",
        "Messages that became dead letters.",
        _handlers(lambda one: one.stats.dead_lettered),
    ),
    Figure(
        "rocketapp.handler.dropped",
        "counter",
        "{message}",
        "Failed messages that a broadcast group dropped.",
        _handlers(lambda one: one.stats.dropped),
    ),
    Figure(
        "rocketapp.handler.slow",
        "counter",
        "{call}",
        "Calls of a handler that ran for longer than consumer.handler_warning.",
        _handlers(lambda one: one.slow),
    ),
    Figure(
        "rocketapp.group.unmatched",
        "counter",
        "{message}",
        "Messages whose tag no handler of the group takes.",
        _unmatched,
    ),
    Figure(
        "rocketapp.group.forwarded",
        "counter",
        "{message}",
        "Messages that no handler here takes and another member has done.",
        _groups(lambda group: group.forwarded),
    ),
    Figure(
        "rocketapp.group.pulls",
        "counter",
        "{pull}",
        "Pulls that brokers have answered.",
        _groups(lambda group: group.pulls),
    ),
    Figure(
        "rocketapp.group.members",
        "gauge",
        "{member}",
        "Members of the group, as this one knows them.",
        _groups(lambda group: group.members),
    ),
    Figure(
        "rocketapp.group.queues",
        "gauge",
        "{queue}",
        "Queues that this member owns.",
        _groups(lambda group: len(group.queues)),
    ),
    Figure(
        "rocketapp.group.queues_standing_still",
        "gauge",
        "{queue}",
        "Owned queues that make no progress.",
        _groups(lambda group: sum(bool(queue.standing_still) for queue in group.queues)),
    ),
    Figure(
        "rocketapp.group.leases",
        "gauge",
        "{queue}",
        "Locks of orderly queues, by state.",
        _leases,
    ),
    Figure(
        "rocketapp.queue.lag",
        "gauge",
        "{message}",
        "Messages of the queue that the group has not finished, when the broker last answered a pull.",
        _queues(lambda queue: queue.lag),
    ),
    Figure(
        "rocketapp.queue.unfinished",
        "gauge",
        "{message}",
        "Messages that were pulled and are not finished.",
        _queues(lambda queue: queue.unfinished),
    ),
    Figure(
        "rocketapp.cache.usage",
        "gauge",
        "By",
        "Bytes of pulled messages that are not finished.",
        lambda app, _counts: iter([({}, app.cache_bytes)]),
    ),
    Figure(
        "rocketapp.cache.limit",
        "gauge",
        "By",
        "The most that may be pulled ahead: consumer.cache_max_bytes.",
        lambda app, _counts: iter([({}, app.cache_limit_bytes)]),
    ),
)

DISTRIBUTIONS: Final = (
    Distribution("messaging.process.duration", "How long calls of handlers took.", _process),
    Distribution("messaging.client.operation.duration", "How long sends took.", _operation),
)
