"""What a process tells of itself at one moment: plain values, made on its event loop and read by any thread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rocketapp.model.event import LoopBlocked
from rocketapp.model.message_queue import MessageQueue
from rocketapp.operate.history import History
from rocketapp.operate.together import Durations, added, together
from rocketapp.plugin import AppSnapshot
from rocketapp.plugins.counts import Counts


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureLine:
    """Something that went wrong, in the words of the log."""

    at: float
    """Seconds since 1970."""
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterLine:
    """A message that became a dead letter."""

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
    """One queue that stands still."""

    group: str
    queue: MessageQueue
    reason: str
    seconds: float
    """For how long it has stood still without a message being finished."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unassigned:
    """One group of which queues cannot be assigned: without them nothing of it can stand still."""

    group: str
    reason: str
    """Empty before the first rebalance is over."""
    seconds: float
    has_assigned: bool
    """It was different at least once since the start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """An app as one of its processes sees it."""

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
class Seen:
    """What is known of one process of the app."""

    name: str
    """`worker 2`; empty for the only one."""
    view: View | None
    """The last one; None before the first, and after the process has died."""
    age: float
    """Seconds since the view was made; without one, since it is waited for."""
    blocked: LoopBlocked | None = None
    """What blocks its event loop now."""
    has_started: bool = True
    """It, or a process that it replaces, has consumed before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Now:
    """The whole app at this moment."""

    app: str
    processes: tuple[Seen, ...]
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
        """The processes that are known, as one; without groups when none is."""
        return _sum(snapshots_of(self.processes))

    @property
    def counted(self) -> AppSnapshot:
        """The same with the counters of processes that have ended."""
        return _sum([*snapshots_of(self.processes), *([] if self.gone is None else [self.gone])])

    @property
    def counts(self) -> Counts:
        """Durations and sends of all processes, those that have ended included."""
        known = (one.view.durations for one in self.processes if one.view is not None)
        return added([*known, *self.gone_durations])


def _sum(known: Sequence[AppSnapshot]) -> AppSnapshot:
    return together(known) if known else AppSnapshot(cache_limit_bytes=0, groups=())


def snapshots_of(processes: Sequence[Seen]) -> list[AppSnapshot]:
    """Those that are known."""
    return [one.view.snapshot for one in processes if one.view is not None]
