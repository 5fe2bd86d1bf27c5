"""The idleness of several consumers as that of one app."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Idle:
    """Whether an app is idle: every wanted queue is owned, and no consumer has a reason to wait."""

    owned: frozenset[str]
    wanted: frozenset[str]
    reasons: tuple[str, ...]


def merge_idle(reports: Sequence[tuple[str, Any]]) -> Idle:
    """Queues are told apart by consumer: two groups may want the same one."""
    owned = frozenset(f"{who} {queue}" for who, report in reports for queue in report.owned)
    wanted = frozenset(f"{who} {queue}" for who, report in reports for queue in report.wanted)
    reasons = tuple(str(reason) for _, report in reports for reason in report.reasons)
    return Idle(owned, wanted, reasons)
