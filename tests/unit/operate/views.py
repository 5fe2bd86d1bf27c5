"""Views of an app that is not there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.snapshot import HandlerStats
from rocketapp.operate.app_state import (
    AppState,
    DeadLetterLine,
    FailureLine,
    ProcessState,
    ProcessView,
    Stall,
    Unassigned,
)
from rocketapp.plugin import AppSnapshot, GroupSnapshot, HandlerSnapshot, Metric, QueueSnapshot


def queue_at(
    position: int | None,
    *,
    unfinished: int = 0,
    passed_over: int = 0,
    still: str = "",
    queue_id: int = 0,
    committed: int = 5,
    oldest_ms: int | None = None,
    corrected: str = "",
) -> QueueSnapshot:
    return QueueSnapshot(
        queue=MessageQueue("orders", "broker-a", queue_id),
        committed=committed,
        position=position,
        end=40,
        unfinished=unfinished,
        unfinished_bytes=10 * unfinished,
        blocked=still,
        lease="none",
        oldest_ms=oldest_ms,
        finished=None if position is None else position - unfinished - passed_over,
        corrected=corrected,
    )


def snapshot_of(
    *queues: QueueSnapshot,
    handled: int = 0,
    dropped: int = 0,
    slow: int = 0,
    topic: str = "orders",
    metrics: Sequence[Metric] = (),
    paused: Mapping[str, str] | None = None,
) -> AppSnapshot:
    stats = HandlerStats(handled=handled, retried=1, dropped=dropped)
    handler = HandlerSnapshot(name="app:settle", topic=topic, stats=stats, slow=slow)
    group = GroupSnapshot(
        group="shop",
        cluster="",
        client_id="c",
        members=2,
        pulls=3,
        handlers=(handler,),
        unmatched={topic: 1},
        queues=queues,
        paused=paused or {},
    )
    return AppSnapshot(cache_limit_bytes=100, groups=(group,), client_ids={"": "c"}, metrics=tuple(metrics))


def stall(reason: str, seconds: float, *, queue_id: int = 0) -> Stall:
    return Stall(group="shop", queue=MessageQueue("orders", "broker-a", queue_id), reason=reason, seconds=seconds)


def unassigned(reason: str, seconds: float, *, has_assigned: bool = True) -> Unassigned:
    return Unassigned(group="shop", reason=reason, seconds=seconds, has_assigned=has_assigned)


def letter(reason: str) -> DeadLetterLine:
    return DeadLetterLine(
        at=1_700_000_000.0,
        group="shop",
        handler="app:settle",
        topic="orders",
        message_id="7F01",
        attempt=16,
        reason=reason,
    )


def seen(
    *stalls: Stall,
    snapshot: AppSnapshot | None = None,
    failures: Sequence[str] = (),
    groups: Sequence[Unassigned] = (),
    letters: Sequence[DeadLetterLine] = (),
    **more: Any,
) -> ProcessState:
    view = ProcessView(
        app="shop",
        snapshot=snapshot or snapshot_of(),
        stalls=stalls,
        unassigned=tuple(groups),
        dead_letters=tuple(letters),
        failures=tuple(FailureLine(at=1_700_000_000.0 + number, text=text) for number, text in enumerate(failures)),
    )
    return ProcessState(**{"name": "", "view": view, "age": 0.5, **more})


def now_of(*processes: ProcessState, **more: Any) -> AppState:
    return AppState(**{"app": "shop", "processes": processes, "is_draining": False, "patience": 30.0, **more})
