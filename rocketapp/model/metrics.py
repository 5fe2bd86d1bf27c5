"""The metrics of an app: names, units and meanings, and where each is read in a snapshot.

Names and labels follow OpenTelemetry's semantic conventions for messaging where these have one; the others begin with
`rocketapp.`. Every exporter is given the same metrics: they are read from counters, and cost a message nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal, TypeVar

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
Rows = tuple[tuple[str, str, str, Callable[[T], float | None]], ...]
"""Figures of one kind: the end of the name, unit, meaning, and how it is read of one handler, group or queue."""

_LEASES: tuple[LeaseState, ...] = ("wanted", "held", "uncertain")


def _of_handler(one: HandlerSnapshot) -> Labels:
    return {**OF_PROCESS, DESTINATION: one.topic, HANDLER: one.name}


def _of_queue(one: QueueSnapshot) -> Labels:
    return {DESTINATION: one.queue.topic, PARTITION: f"{one.queue.broker_name}:{one.queue.queue_id}"}


def _of(group: GroupSnapshot) -> dict[str, str]:
    found = {SYSTEM: ROCKETMQ, GROUP: group.group}
    return {**found, CLUSTER: group.cluster} if group.cluster else found


_HANDLERS: Rows[HandlerSnapshot] = (
    ("done", "{message}", "Messages that a handler finished.", lambda one: one.stats.handled),
    ("retries", "{message}", "Failed attempts that are tried again.", lambda one: one.stats.retried),
    ("dead_letters", "{message}", "Messages that became dead letters.", lambda one: one.stats.dead_lettered),
    ("dropped", "{message}", "Failed messages that a broadcast group dropped.", lambda one: one.stats.dropped),
    ("filtered", "{message}", "Messages done that a filter refused.", lambda one: one.stats.filtered),
    ("slow", "{call}", "Calls of a handler that ran for longer than consumer.handler_warning.", lambda one: one.slow),
)
_WORK_OF_GROUPS: Rows[GroupSnapshot] = (
    (
        "forwarded",
        "{message}",
        "Messages that no handler here takes and another member has done.",
        lambda one: one.forwarded,
    ),
    ("pulls", "{pull}", "Pulls that brokers have answered.", lambda one: one.pulls),
)
_GROUPS: Rows[GroupSnapshot] = (
    ("members", "{member}", "Members of the group, as this one knows them.", lambda one: one.members),
    ("queues", "{queue}", "Queues that this member owns.", lambda one: len(one.queues)),
    ("queues_blocked", "{queue}", "Owned queues that make no progress.", lambda one: len(one.blocked)),
)
_QUEUES: Rows[QueueSnapshot] = (
    (
        "lag",
        "{message}",
        "Messages of the queue that the group has not finished, when the broker last answered a pull.",
        lambda one: one.lag,
    ),
    ("unfinished", "{message}", "Messages that were pulled and are not finished.", lambda one: one.unfinished),
)


def _own(app: AppSnapshot) -> Iterator[Metric]:
    groups = [(_of(group), group) for group in app.groups]
    handlers = [({**_of_handler(one), **labels}, one) for labels, group in groups for one in group.handlers]
    queues = [({**_of_queue(one), **labels}, one) for labels, group in groups for one in group.queues]
    unmatched = [
        ({DESTINATION: topic, **labels}, count) for labels, group in groups for topic, count in group.unmatched.items()
    ]
    leases = [
        ({**labels, LEASE: state}, sum(queue.lease == state for queue in group.queues))
        for labels, group in groups
        for state in _LEASES
    ]
    yield from _of_each("handler", "counter", _HANDLERS, handlers)
    meaning = "Messages whose tag no handler of the group takes."
    yield Metric(
        name="rocketapp.group.unmatched", kind="counter", unit="{message}", meaning=meaning, samples=tuple(unmatched)
    )
    yield from _of_each("group", "counter", _WORK_OF_GROUPS, groups)
    yield from _of_each("group", "gauge", _GROUPS, groups)
    meaning = "Locks of orderly queues, by state."
    yield Metric(name="rocketapp.group.leases", kind="gauge", unit="{queue}", meaning=meaning, samples=tuple(leases))
    yield from _of_each("queue", "gauge", _QUEUES, queues)
    for name, meaning, count in (
        ("usage", "Bytes of pulled messages that are not finished.", app.cache_bytes),
        ("limit", "The most that may be pulled ahead: consumer.cache_max_bytes.", app.cache_limit_bytes),
    ):
        yield Metric(name=f"rocketapp.cache.{name}", kind="gauge", unit="By", meaning=meaning, samples=(({}, count),))


def _of_each(prefix: str, kind: Kind, rows: Rows[T], found: Sequence[tuple[Labels, T]]) -> Iterator[Metric]:
    """Of each of these handlers, groups or queues. What is not known is left out."""
    for name, unit, meaning, read in rows:
        samples = tuple((labels, value) for labels, one in found if (value := read(one)) is not None)
        yield Metric(name=f"rocketapp.{prefix}.{name}", kind=kind, unit=unit, meaning=meaning, samples=samples)


def metrics_of(app: AppSnapshot) -> list[Metric]:
    """Every metric of a snapshot: the app's own, and behind them what its plugins measure.

    For exporters. Sends, calls and durations are not among them: who wants those wraps publishing and handlers.
    """
    measured: dict[str, Metric] = {}
    for one in app.metrics:
        known = measured.get(one.name)
        measured[one.name] = one if known is None else replace(one, samples=(*known.samples, *one.samples))
    return [*_own(app), *measured.values()]
