"""The state of an app for its HTTP pages: plain values, made on the event loop of a process and read by any thread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rocketapp.model.event import LoopBlocked
from rocketapp.model.message_queue import MessageQueue
from rocketapp.operate.aggregate import Durations, aggregate_durations, aggregate_snapshots
from rocketapp.operate.history import History
from rocketapp.plugin import AppSnapshot
from rocketapp.plugins.counts import Counts


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureLine:
    """A recent failure, in the words of the log."""

    at: float
    """Seconds since 1970."""
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterLine:
    """A recent dead letter."""

    at: float
    """Seconds since 1970."""
    group: str
    handler: str
    topic: str
    message_id: str
    attempt: int
    """The last one."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """A queue that stands still, and why."""

    group: str
    queue: MessageQueue
    reason: str
    seconds: float
    """For how long it has stood still without a message being finished."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unassigned:
    """A group that could not be assigned its queues, and why."""

    group: str
    reason: str
    """Empty before the first rebalance is over."""
    seconds: float
    has_assigned: bool
    """Whether a rebalance has succeeded since the start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessView:
    """What one process reports: a snapshot, its stalls and its recent failures."""

    app: str
    snapshot: AppSnapshot
    stalls: tuple[Stall, ...] = ()
    unassigned: tuple[Unassigned, ...] = ()
    failures: tuple[FailureLine, ...] = ()
    """The last ones, oldest first."""
    dead_letters: tuple[DeadLetterLine, ...] = ()
    """The last ones, oldest first."""
    durations: Durations = ()
    """Empty where they are not measured: `app.http_durations`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessState:
    """What is known of one process: its last view, how old that is, and whether its loop is blocked."""

    name: str
    """`worker 2`; empty for the only one."""
    view: ProcessView | None
    """The last one; None before the first, and after the process has died."""
    age: float
    """Seconds since the view was made; without one, since it is waited for."""
    blocked: LoopBlocked | None = None
    """What blocks its event loop now."""
    has_started: bool = True
    """It, or a process that it replaces, has consumed before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AppState:
    """What is known of all processes of an app."""

    app: str
    processes: tuple[ProcessState, ...]
    is_draining: bool
    patience: float
    """Seconds that a queue may stand still before a person is needed: `app.ready_patience`."""
    gone: AppSnapshot | None = None
    """The counters of processes that have ended."""
    gone_durations: tuple[Durations, ...] = ()
    history: History = field(default_factory=History)
    may_try: bool = False
    """Whether handlers may be called with messages that an operator writes: in development."""

    @property
    def snapshot(self) -> AppSnapshot:
        """The snapshots of all known processes as one; without groups when none is known."""
        return _sum(snapshots_of(self.processes))

    @property
    def counted(self) -> AppSnapshot:
        """The same, plus the counters of processes that have ended."""
        return _sum([*snapshots_of(self.processes), *([] if self.gone is None else [self.gone])])

    @property
    def counts(self) -> Counts:
        """Durations and sends of all processes, including those that have ended."""
        known = (one.view.durations for one in self.processes if one.view is not None)
        return aggregate_durations([*known, *self.gone_durations])


def _sum(known: Sequence[AppSnapshot]) -> AppSnapshot:
    return aggregate_snapshots(known) if known else AppSnapshot(cache_limit_bytes=0, groups=())


def snapshots_of(processes: Sequence[ProcessState]) -> list[AppSnapshot]:
    """The snapshots of the processes that have reported one."""
    return [one.view.snapshot for one in processes if one.view is not None]
