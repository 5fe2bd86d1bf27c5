"""The metrics of an app: names, units and meanings, and where each is read in a snapshot.

Names and labels follow OpenTelemetry's semantic conventions for messaging where these have one; the others begin with
`rocketapp.`. Every exporter is given the same metrics: they are read from counters, and cost a message nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeVar

from rocketapp.model.conventions import (
    CLUSTER,
    DESTINATION,
    GROUP,
    HANDLER,
    LEASE,
    OF_PROCESS,
    PARTITION,
    ROCKETMQ,
    SYSTEM,
)
from rocketapp.model.snapshot import AppSnapshot, GroupSnapshot, HandlerSnapshot, LeaseState, Metric, QueueSnapshot

T = TypeVar("T")
Kind = Literal["counter", "gauge"]
Labels = Mapping[str, str]
Samples = Iterator[tuple[Labels, float]]
Read = Callable[[AppSnapshot], Samples]
Rows = tuple[tuple[str, Kind, str, str, Callable[[T], float | None]], ...]
"""Figures of the same things: the end of the name, kind, unit, meaning, and how it is read of one of them."""

_LEASES: tuple[LeaseState, ...] = ("wanted", "held", "uncertain")


@dataclass(frozen=True, slots=True)
class Figure:
    """One metric with one number per set of labels."""

    name: str
    kind: Kind
    unit: str
    """As UCUM says it: `By`, `s`, or a word in braces."""
    meaning: str
    read: Read


def _of_each(
    items: Callable[[GroupSnapshot], Iterable[T]],
    labels: Callable[[T], Labels],
    read: Callable[[T], float | None],
) -> Read:
    """Of each handler or queue of a group, or of the group itself. What is not known is left out."""

    def samples(app: AppSnapshot) -> Samples:
        for group in app.groups:
            for one in items(group):
                value = read(one)
                if value is not None:
                    yield {**labels(one), **_of(group)}, value

    return samples


def _of_handler(one: HandlerSnapshot) -> Labels:
    return {**OF_PROCESS, DESTINATION: one.topic, HANDLER: one.name}


def _of_queue(one: QueueSnapshot) -> Labels:
    return {DESTINATION: one.queue.topic, PARTITION: f"{one.queue.broker_name}:{one.queue.queue_id}"}


def _of(group: GroupSnapshot) -> dict[str, str]:
    found = {SYSTEM: ROCKETMQ, GROUP: group.group}
    return {**found, CLUSTER: group.cluster} if group.cluster else found


def _unmatched(app: AppSnapshot) -> Samples:
    for group in app.groups:
        for topic, count in group.unmatched.items():
            yield {DESTINATION: topic, **_of(group)}, count


def _leases(app: AppSnapshot) -> Samples:
    for group in app.groups:
        states = [queue.lease for queue in group.queues]
        for state in _LEASES:
            yield {**_of(group), LEASE: state}, states.count(state)


_HANDLERS: Rows[HandlerSnapshot] = (
    ("done", "counter", "{message}", "Messages that a handler finished.", lambda one: one.stats.handled),
    ("retries", "counter", "{message}", "Failed attempts that are tried again.", lambda one: one.stats.retried),
    ("dead_letters", "counter", "{message}", "Messages that became dead letters.", lambda one: one.stats.dead_lettered),
    (
        "dropped",
        "counter",
        "{message}",
        "Failed messages that a broadcast group dropped.",
        lambda one: one.stats.dropped,
    ),
    ("filtered", "counter", "{message}", "Messages done that a filter refused.", lambda one: one.stats.filtered),
    (
        "slow",
        "counter",
        "{call}",
        "Calls of a handler that ran for longer than consumer.handler_warning.",
        lambda one: one.slow,
    ),
)
_GROUPS: Rows[GroupSnapshot] = (
    (
        "forwarded",
        "counter",
        "{message}",
        "Messages that no handler here takes and another member has done.",
        lambda one: one.forwarded,
    ),
    ("pulls", "counter", "{pull}", "Pulls that brokers have answered.", lambda one: one.pulls),
    ("members", "gauge", "{member}", "Members of the group, as this one knows them.", lambda one: one.members),
    ("queues", "gauge", "{queue}", "Queues that this member owns.", lambda one: len(one.queues)),
    (
        "queues_blocked",
        "gauge",
        "{queue}",
        "Owned queues that make no progress.",
        lambda one: sum(bool(queue.blocked) for queue in one.queues),
    ),
)
_QUEUES: Rows[QueueSnapshot] = (
    (
        "lag",
        "gauge",
        "{message}",
        "Messages of the queue that the group has not finished, when the broker last answered a pull.",
        lambda one: one.lag,
    ),
    ("unfinished", "gauge", "{message}", "Messages that were pulled and are not finished.", lambda one: one.unfinished),
)


def _figures(
    prefix: str, rows: Rows[T], items: Callable[[GroupSnapshot], Iterable[T]], labels: Callable[[T], Labels]
) -> Iterator[Figure]:
    for name, kind, unit, meaning, read in rows:
        yield Figure(f"rocketapp.{prefix}.{name}", kind, unit, meaning, _of_each(items, labels, read))


FIGURES: Final = (
    *_figures("handler", _HANDLERS, lambda group: group.handlers, _of_handler),
    Figure(
        "rocketapp.group.unmatched",
        "counter",
        "{message}",
        "Messages whose tag no handler of the group takes.",
        _unmatched,
    ),
    *_figures("group", _GROUPS, lambda group: (group,), lambda group: {}),
    Figure("rocketapp.group.leases", "gauge", "{queue}", "Locks of orderly queues, by state.", _leases),
    *_figures("queue", _QUEUES, lambda group: group.queues, _of_queue),
    Figure(
        "rocketapp.cache.usage",
        "gauge",
        "By",
        "Bytes of pulled messages that are not finished.",
        lambda app: iter([({}, app.cache_bytes)]),
    ),
    Figure(
        "rocketapp.cache.limit",
        "gauge",
        "By",
        "The most that may be pulled ahead: consumer.cache_max_bytes.",
        lambda app: iter([({}, app.cache_limit_bytes)]),
    ),
)


def metrics_of(app: AppSnapshot) -> list[Metric]:
    """Every metric of a snapshot: the app's own, and behind them what its plugins measure.

    For exporters. Sends, calls and durations are not among them: who wants those wraps publishing and handlers.
    """
    own = [
        Metric(name=one.name, kind=one.kind, unit=one.unit, meaning=one.meaning, samples=tuple(one.read(app)))
        for one in FIGURES
    ]
    measured: dict[str, Metric] = {}
    for one in app.metrics:
        known = measured.get(one.name)
        measured[one.name] = one if known is None else replace(one, samples=(*known.samples, *one.samples))
    return [*own, *measured.values()]
