"""The state of a broker as plain values, for pages and metrics.

Rule: read on the broker's loop, and changes nothing. What grows with the store is an iterator whose steps look at one
queue or one message, so that the caller lets others run between two steps.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from rocketapp.broker.core import Core
from rocketapp.broker.delays import restored
from rocketapp.broker.replication.master import Master
from rocketapp.broker.scrub import Scrub
from rocketapp.model.names import DELAY_SECONDS, SCHEDULE_TOPIC
from rocketapp.wire import properties as names
from rocketapp.wire.layout import Record, decode_record
from rocketapp.wire.requests.replication import SlaveStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerState:
    """The state of the broker as a whole."""

    cluster: str
    name: str
    address: str
    seconds: float
    """Since its start."""
    stored: int
    served: int
    """Messages since its start."""
    stored_rate: float
    served_rate: float
    """Messages a second, in the last minute."""
    log_begin: int
    log_end: int
    durable_end: int
    """Positions of the log. What lies behind the last of them is with the operating system, and not on disk yet."""
    scrub_position: int
    """Up to where the log was read in the present search for damage, or the last one; 0 before the first."""
    damaged: int
    """Messages that were found damaged in these searches."""
    mended: int
    """Entries of queues that were made again from the log since the start."""
    flush: str
    """`async` or `sync`, as the option says."""
    role: str
    """`async_master`, `sync_master` or `slave`, as the option says."""
    slaves: Sequence[SlaveStatus] | None
    """The slaves that copy the log now; None where nobody may."""
    copies_from: str | None
    """Where a slave copies the log; empty while it does not, None at a master."""
    problem: str
    """Why no message is stored; empty while they are."""
    topics: int
    delayed: int
    open_transactions: int


class QueueState(NamedTuple):
    """The offsets of one queue."""

    queue_id: int
    first_offset: int
    end_offset: int
    last_ms: int
    """When its last message was stored, in milliseconds since 1970; 0 without one."""


class Progress(NamedTuple):
    """The progress of a group in one queue."""

    topic: str
    queue_id: int
    committed_offset: int | None
    """None where it has committed nothing yet."""
    end_offset: int
    lag: int


class MemberState(NamedTuple):
    """One client of a group, on one connection."""

    client_id: str
    address: str
    language: str
    silent: float
    """Seconds since its last heartbeat."""


class WaitingMessage(NamedTuple):
    """A message that no consumer sees yet: delayed, or in an open transaction."""

    at_ms: int
    """When a delayed one is due; when one of a transaction was stored. In milliseconds since 1970."""
    topic: str
    """The one that it is for; empty when it cannot be read."""
    message_id: str
    keys: str
    group: str = ""
    """The producer's group, for a transaction."""
    checks: int = 0
    """How often that was asked how the transaction ended."""


class BrokerFacts:
    """Reads the tables and the store of one broker."""

    def __init__(self, core: Core, started: float, master: Master | None, scrub: Scrub) -> None:
        """`started`: the start time by `core.monotonic`. `master`: knows the slaves."""
        self._core, self._started, self._master, self._scrub = core, started, master, scrub

    def __repr__(self) -> str:
        return f"<BrokerFacts of {self._core.config.name}>"

    def state(self) -> BrokerState:
        core, now = self._core, self._core.monotonic()
        return BrokerState(
            cluster=core.config.cluster,
            name=core.config.name,
            address=core.address,
            seconds=now - self._started,
            stored=core.traffic.put,
            served=core.traffic.got,
            stored_rate=core.traffic.put_rates(now)[1],
            served_rate=core.traffic.got_rates(now)[1],
            log_begin=core.store.begin_position,
            log_end=core.store.end_position,
            durable_end=core.store.durable_position,
            flush=core.config.flush,
            role=core.config.role,
            scrub_position=self._scrub.position,
            damaged=self._scrub.damaged,
            mended=core.store.repair.mended,
            slaves=None if self._master is None else self._master.status(),
            copies_from=core.copies_from,
            problem=core.store.problem or core.store.refusal or "",
            topics=len(core.topics),
            delayed=sum(len(core.delays.waiting(level)) for level in _LEVELS) + len(core.timers),
            open_transactions=len(core.halves),
        )

    def topics(self) -> list[str]:
        """The names of all topics, sorted; those of retries, dead letters and the broker are among them."""
        return sorted(self._core.topics.by_name)

    def queues(self, topic: str) -> Iterator[QueueState]:
        """The queues of a topic; none for an unknown topic."""
        store, config = self._core.store, self._core.topics.get(topic)
        for queue_id in range(max(config.read_queues, config.write_queues) if config is not None else 0):
            first, end = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
            last_ms = store.stored_ms_at(topic, queue_id, end - 1) if end > first else None
            yield QueueState(queue_id, first, end, last_ms or 0)

    def groups(self) -> dict[str, set[str]]:
        """Every group with the topics it subscribes or has committed offsets of."""
        found = {config.name: set[str]() for config in self._core.groups}
        for group, topics in self._core.offsets.topics_by_group().items():
            found.setdefault(group, set()).update(topics)
        for consumers in self._core.consumers:
            found.setdefault(consumers.name, set()).update(consumers.subscriptions)
        return found

    def progress(self, group: str, topic: str) -> Iterator[Progress]:
        """Progress queue by queue. Without a commit, lag counts from the queue's first offset."""
        core, config = self._core, self._core.topics.get(topic)
        for queue_id in range(config.read_queues if config is not None else 0):
            end = core.store.max_offset(topic, queue_id)
            committed = core.offsets.committed(group, topic, queue_id)
            lag = end - core.done_to(group, topic, queue_id)
            yield Progress(topic, queue_id, committed, end, lag)

    def members(self, group: str) -> list[MemberState]:
        """The members of a group."""
        members, now = self._core.consumers.members(group).values(), self._core.monotonic()
        return [MemberState(one.client_id, one.address, one.language, now - one.heard) for one in members]

    def subscriptions(self, group: str) -> list[tuple[str, str]]:
        """Topics and the expressions that choose from them, as the last heartbeat of any member said."""
        found = self._core.consumers.group(group).subscriptions.values()
        return sorted((one.topic, one.expression) for one in found)

    def record(self, position: int) -> bytes | None:
        """The stored message at this position of the log; None where none begins."""
        return self._core.store.record_at(position)

    def delayed(self, most: int) -> Iterator[WaitingMessage]:
        """The next delayed messages, at most `most`."""
        timed = (_waiting(record, due_ms) for due_ms, record in self._core.timers.waiting(most))
        return islice(heapq.merge(timed, *(self._of_level(level) for level in _LEVELS)), most)

    def _of_level(self, level: int) -> Iterator[WaitingMessage]:
        store = self._core.store
        for offset in self._core.delays.waiting(level):
            entry = store.entry(SCHEDULE_TOPIC, level - 1, offset)
            if entry is not None:
                yield _waiting(_restored(store.record_at(entry[0])), entry[2])

    def open_transactions(self, most: int) -> Iterator[WaitingMessage]:
        """The oldest open half messages, at most `most`."""
        for half in self._core.halves.oldest(most):
            record = _restored(self._core.store.record_at(half.physical))
            yield _waiting(record, half.stored_ms)._replace(group=half.group, checks=half.checks)


_LEVELS = range(1, len(DELAY_SECONDS) + 1)


def _restored(data: bytes | None) -> Record | None:
    return None if data is None else restored(decode_record(data))


def _waiting(record: Record | None, at_ms: int) -> WaitingMessage:
    if record is None:
        return WaitingMessage(at_ms, "", "", "")
    found = names.decode(record.raw_properties)
    return WaitingMessage(at_ms, record.topic, found.get(names.UNIQ_KEY, ""), found.get(names.KEYS, ""))
