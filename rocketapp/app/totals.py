"""Numbers and idleness of several consumers as those of one app."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Totals:
    """What became of messages."""

    handled: int = 0
    """Done: messages."""
    retried: int = 0
    """Send-backs and retries in place."""
    dead_lettered: int = 0
    unmatched: int = 0
    """Done because no handler wanted them."""
    filtered: int = 0
    """Done because a plugin's filter refused them; counted as handled as well."""


@dataclass(frozen=True, slots=True)
class Idle:
    """Idle means: all that is wanted is owned, and there is no reason."""

    owned: frozenset[str]
    wanted: frozenset[str]
    reasons: tuple[str, ...]


def total_of(counters: Iterable[Any], filtered: int) -> Totals:
    """The sum over consumers."""
    each = list(counters)
    return Totals(
        handled=sum(one.handled for one in each),
        retried=sum(one.retried for one in each),
        dead_lettered=sum(one.dead_lettered for one in each),
        unmatched=sum(one.unmatched for one in each),
        filtered=filtered,
    )


def merge_idle(reports: Sequence[tuple[str, Any]]) -> Idle:
    """Queues are told apart by consumer: two groups may want the same one."""
    owned = frozenset(f"{who} {queue}" for who, report in reports for queue in report.owned)
    wanted = frozenset(f"{who} {queue}" for who, report in reports for queue in report.wanted)
    reasons = tuple(str(reason) for _, report in reports for reason in report.reasons)
    return Idle(owned, wanted, reasons)
