"""What a running app is doing, as it stands at one moment: its groups, queues, counters and metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from rocketapp.model.message_queue import MessageQueue


@dataclass(slots=True)
class HandlerStats:
    """Counters of messages, of a handler, a topic or a group."""

    handled: int = 0
    """Messages that are done: the handler returned, said that it skips them, or a filter refused them."""
    retried: int = 0
    """Send-backs, and retries in place of orderly handlers."""
    dead_lettered: int = 0
    """Messages that were sent to the dead-letter topic."""
    unmatched: int = 0
    """Messages whose tag no handler of the group subscribes to: they are done without a call."""
    dropped: int = 0
    """Messages of a broadcast group whose handler failed: they are not tried again by sending them back."""
    filtered: int = 0
    """Of those handled, the messages that a filter refused: `filter=`, or a plugin's."""
    uncommitted: int = field(default=0, compare=False)
    """Messages that a handler which commits by hand has handled and not committed: they count as no failures."""

    @property
    def went_well(self) -> int:
        """Messages whose call has ended well, committed or not."""
        return self.handled + self.uncommitted

    def __add__(self, other: HandlerStats) -> HandlerStats:
        return HandlerStats(*(getattr(self, name) + getattr(other, name) for name in self.__slots__))


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric with one number per set of labels: for OpenTelemetry and Prometheus, beside those of the app."""

    name: str
    """Words with dots: `shop.cache.hits`. What begins with `rocketapp.` and `messaging.` is ours."""
    kind: Literal["counter", "gauge"]
    """A counter only grows while the app runs."""
    unit: str
    """As UCUM says it: `By`, `s`, or a word in braces, such as `{row}`."""
    meaning: str
    samples: tuple[tuple[Mapping[str, str], float], ...] = ()
    """Labels and their number; without any while there is nothing to say."""


LeaseState = Literal["none", "wanted", "held", "uncertain"]
"""The lock of an orderly queue: not needed, asked for, ours, or uncertain since a disturbance and asked for again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSnapshot:
    """A queue that this member owns: how far it is, and what holds it up."""

    queue: MessageQueue
    """Its topic, broker and number."""
    committed: int | None
    """The offset that the broker is known to hold for the group; None while that is not known."""
    position: int | None
    """The offset of the next pull; None while the queue is not consumed."""
    end: int | None
    """Where the queue ended when the broker last answered a pull; None before that. A paused queue asks for nothing."""
    unfinished: int
    """Messages that were pulled and are not finished."""
    unfinished_bytes: int
    """Bytes of their stored records."""
    blocked: str
    """Why it makes no progress; empty when it does."""
    lease: LeaseState
    """The state of its lock; `none` where it needs none."""
    oldest_ms: int | None = None
    """When the broker stored the oldest of the unfinished messages, in milliseconds since 1970; None without any."""
    rest: int | None = None
    """Of a popped topic: what the broker had left when it last answered, as of all members; None of a pulled queue."""
    finished: int | None = None
    """Grows by one with each message that is finished, from the offset on where it was opened; None while it is not
    consumed. Messages that its broker passes over do not count.
    """
    corrected: str = ""
    """Why its offset was corrected last, beyond the queue's end or below its first message; empty when it never was."""

    @property
    def lag(self) -> int | None:
        """Messages of the queue that the group has not finished, as of `end`; None while that is not known.

        Counts messages of all tags, as brokers count them.
        """
        if self.rest is not None:
            return self.rest + self.unfinished
        if self.end is None or self.position is None:
            return None
        return max(0, self.end - self.position) + self.unfinished


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerSnapshot:
    """What became of the messages of one handler since the start."""

    name: str
    """`module:function`, as log lines have it."""
    topic: str
    stats: HandlerStats
    """What became of its messages."""
    slow: int = 0
    """Calls that have been running for longer than `consumer.handler_warning`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSnapshot:
    """One consumer group of the app on one cluster."""

    group: str
    """Its name."""
    cluster: str
    """The name of the cluster; empty for the unnamed one."""
    client_id: str
    """The app as brokers of this cluster know it."""
    members: int
    """Members of the group, as far as the last rebalance knows."""
    pulls: int
    """Pulls that brokers have answered, since the start."""
    handlers: tuple[HandlerSnapshot, ...]
    """Every handler of the group in this app."""
    unmatched: Mapping[str, int]
    """By topic the messages whose tag no handler takes, since the start."""
    queues: tuple[QueueSnapshot, ...]
    """In their order."""
    roll_out: str = ""
    """Which members subscribe otherwise, and what is pulled meanwhile; empty when all members subscribe alike."""
    forwarded: int = 0
    """Messages that no handler here takes and another member has done, since the start."""
    unassigned: str = ""
    """Why queues of a topic could not be assigned at the last rebalance; empty when all were."""
    adjusted: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """By topic the limits that `app.adjust` has changed, where they are not as at the start."""
    paused: Mapping[str, str] = field(default_factory=dict)
    """By topic that is paused: why."""
    has_assigned: bool = True
    """A rebalance has decided on every topic since the start."""

    @property
    def blocked(self) -> dict[MessageQueue, str]:
        """Every queue that does not move, and why."""
        return {one.queue: one.blocked for one in self.queues if one.blocked}


@dataclass(frozen=True, slots=True, kw_only=True)
class AppSnapshot:
    """The whole app, as this process sees it. Without groups before the start."""

    cache_limit_bytes: int
    """`consumer.cache_max_bytes`."""
    groups: tuple[GroupSnapshot, ...]
    client_ids: Mapping[str, str] = field(default_factory=dict)
    """By cluster: what its brokers know the app by."""
    metrics: tuple[Metric, ...] = ()
    """What plugins measure, by their hook `metrics`."""

    @property
    def cache_bytes(self) -> int:
        """Bytes of all pulled messages that are not finished."""
        return sum(queue.unfinished_bytes for group in self.groups for queue in group.queues)
