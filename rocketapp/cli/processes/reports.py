"""What children tell `rocketapp run`, and what it makes of it: sums, and whether all is idle.

One JSON object a line. A worker tells its counters and, with
`--exit-when-idle`, what it owns and why it is not idle; a broker tells its address. No clock
and no pipe in here: lines come in, decisions come out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from rocketapp.model.stats import HandlerStats

FRESH = 5.0
"""Seconds that a worker's report says something about now; they come every second or faster."""

_ALWAYS = ("handled", "retried", "dead_lettered", "unmatched")
COUNTERS = (*_ALWAYS, "dropped")
"""In the order of the summary line."""


def summary_line(stats: HandlerStats) -> str:
    """What became of the messages: the last line on stdout. `dropped` is there when any message was."""
    shown = COUNTERS if stats.dropped else _ALWAYS
    return " ".join(f"{name}={getattr(stats, name)}" for name in shown)


@dataclass(frozen=True, slots=True)
class Report:
    """One line from a child; which fields are set depends on its kind.

    Kinds: `loaded` (the app is there; it waits for its cluster), `started`, `joined` (its groups know their queues),
    `status`, `serving` (a broker), `failed` (before it was started), `ended` (drained or cut),
    `view`, `blocked` and `described` (what the worker tells of itself and its app, for `--http`).
    """

    kind: str
    summary: HandlerStats = field(default_factory=HandlerStats)
    owned: frozenset[str] = frozenset()
    wanted: frozenset[str] = frozenset()
    reasons: tuple[str, ...] = ()
    needs_cluster: bool = False
    address: str = ""
    error: str = ""
    code: int = 0
    said: str = ""

    def encode(self) -> bytes:
        """The line, with its end."""
        fields: dict[str, Any] = {"kind": self.kind, "summary": [getattr(self.summary, name) for name in COUNTERS]}
        for name, value in (("owned", sorted(self.owned)), ("wanted", sorted(self.wanted)), ("reasons", self.reasons)):
            if value:
                fields[name] = value
        for name in ("needs_cluster", "address", "error", "code", "said"):
            if getattr(self, name):
                fields[name] = getattr(self, name)
        return json.dumps(fields, separators=(",", ":")).encode() + b"\n"

    @classmethod
    def decode(cls, line: bytes) -> Report:
        """Raises ValueError for a line that no child of ours wrote."""
        fields = json.loads(line)
        return cls(
            kind=fields["kind"],
            summary=HandlerStats(*fields["summary"]),
            owned=frozenset(fields.get("owned", ())),
            wanted=frozenset(fields.get("wanted", ())),
            reasons=tuple(fields.get("reasons", ())),
            needs_cluster=fields.get("needs_cluster", False),
            address=fields.get("address", ""),
            error=fields.get("error", ""),
            code=fields.get("code", 0),
            said=fields.get("said", ""),
        )


class IdleTimer:
    """For how long nothing has been left to do."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._summary: HandlerStats | None = None

    def observe(self, now: float, *, idle: bool, summary: HandlerStats) -> float:
        """Seconds of idleness up to now; a message handled between two looks begins it anew."""
        if not idle:
            self._since = None
        elif self._since is None or summary != self._summary:
            self._since = now
        self._summary = summary
        return 0.0 if self._since is None else now - self._since


@dataclass(slots=True)
class _Seen:
    report: Report
    at: float


@dataclass(slots=True)
class WorkerReports:
    """The latest word of every worker, and the sums of those that are gone."""

    workers: int
    _latest: dict[int, _Seen] = field(default_factory=dict)
    _gone: HandlerStats = field(default_factory=HandlerStats)

    def heard(self, worker: int, report: Report, now: float) -> None:
        self._latest[worker] = _Seen(report, now)

    def lost(self, worker: int) -> None:
        """The worker's process has ended: what it did stays counted."""
        seen = self._latest.pop(worker, None)
        if seen is not None:
            self._gone += seen.report.summary

    @property
    def heard_at(self) -> dict[int, float]:
        """Worker -> when it last reported."""
        return {worker: seen.at for worker, seen in self._latest.items()}

    @property
    def summary(self) -> HandlerStats:
        return sum((seen.report.summary for seen in self._latest.values()), self._gone)

    def busy_because(self, now: float) -> list[str]:
        """Why the run as a whole is not idle; empty when it is.

        Every worker must have spoken lately without a reason of its own, and the
        queues they own together must be all the queues they want.
        """
        reports = {
            worker: seen.report
            for worker, seen in self._latest.items()
            if seen.report.kind == "status" and now - seen.at <= FRESH
        }
        silent = [number for number in range(1, self.workers + 1) if number not in reports]
        reasons = [f"worker {number} has not reported" for number in silent]
        reasons += [f"worker {number}: {reason}" for number, report in reports.items() for reason in report.reasons]
        return reasons + not_owned(reports.values())


def not_owned(reports: Iterable[Report]) -> list[str]:
    """The queues that some worker wants and none of them owns."""
    reports = list(reports)
    wanted = frozenset().union(*(report.wanted for report in reports))
    owned = frozenset().union(*(report.owned for report in reports))
    return [f"{queue} is not owned" for queue in sorted(wanted - owned)]
