"""Reports of child processes to `rocketapp run`, and what follows from them: sums, and whether the app is idle.

A worker reports its counters and, with `--exit-when-idle`, the queues it owns and why it is not idle; a broker reports
its address. No clock and no pipe: lines come in, decisions come out.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import msgspec

from rocketapp.model.snapshot import HandlerStats

FRESH = 5.0
"""Seconds that a worker's report says something about now; they come every second or faster."""
_ALWAYS = ("handled", "retried", "dead_lettered", "unmatched")
_IF_ANY = ("dropped",)


def summary_line(stats: HandlerStats) -> str:
    """The last line on stdout: what became of the messages. `dropped` appears only when there are any."""
    counts = {name: getattr(stats, name) for name in (*_ALWAYS, *_IF_ANY)}
    return " ".join(f"{name}={count}" for name, count in counts.items() if count or name in _ALWAYS)


class Report(msgspec.Struct, frozen=True, omit_defaults=True):
    """One report of a child. Which fields are set depends on its kind.

    Kinds: `loaded` (the app is imported; waits for its cluster), `started`, `joined` (its groups know their queues),
    `status`, `starting` and `serving` (a broker), `failed` (before it started), `ended` (drained or cut), `view`,
    `blocked` and `answered` (for `--http`).
    """

    kind: str
    summary: HandlerStats = msgspec.field(default_factory=HandlerStats)
    owned: frozenset[str] = frozenset()
    wanted: frozenset[str] = frozenset()
    reasons: tuple[str, ...] = ()
    needs_cluster: bool = False
    address: str = ""
    error: str = ""
    code: int = 0
    pid: int = 0
    worked: float = 0.0
    """Seconds of computing so far, of a broker that starts."""
    number: int = 0
    """Of the question that is answered."""
    said: Any = None
    """In the process that reports an object; its plain values in another one."""

    def encode(self) -> bytes:
        """The line, without its end. Not JSON, which has no infinite numbers: a metric may be infinite."""
        return base64.b64encode(msgspec.msgpack.encode(self))

    @classmethod
    def decode(cls, line: bytes) -> Report:
        """Raises ValueError for a line that no child of ours wrote."""
        return msgspec.msgpack.decode(base64.b64decode(line), type=cls)


class WorkerReports:
    """The latest report of every worker, and the counters of those that have ended."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._latest: dict[int, tuple[Report, float]] = {}
        self._gone = HandlerStats()
        self._idle_since: float | None = None
        self._idle_with = HandlerStats()

    def __repr__(self) -> str:
        return f"<WorkerReports of {len(self._latest)}/{self._workers}: {self.summary}>"

    def heard(self, worker: int, report: Report, now: float) -> None:
        """Process a report of a worker."""
        self._latest[worker] = report, now

    def lost(self, worker: int) -> None:
        """The worker's process has ended. Its counters are kept."""
        if worker in self._latest:
            self._gone += self._latest.pop(worker)[0].summary

    @property
    def heard_at(self) -> Mapping[int, float]:
        """When each worker last reported."""
        return {worker: at for worker, (_, at) in self._latest.items()}

    @property
    def summary(self) -> HandlerStats:
        return sum((report.summary for report, _ in self._latest.values()), self._gone)

    def idle_for(self, now: float) -> float:
        """Seconds that the app has been idle; a message handled meanwhile resets it to 0."""
        summary = self.summary
        if self.busy_because(now):
            self._idle_since = None
        elif self._idle_since is None or summary != self._idle_with:
            self._idle_since = now
        self._idle_with = summary
        return 0.0 if self._idle_since is None else now - self._idle_since

    def busy_because(self, now: float) -> list[str]:
        """Why the app is not idle; empty when it is.

        Idle means that every worker has reported recently that it is idle, and that together they own all wanted
        queues.
        """
        reports = {
            worker: report
            for worker, (report, at) in self._latest.items()
            if report.kind == "status" and now - at <= FRESH
        }
        silent = [number for number in range(1, self._workers + 1) if number not in reports]
        reasons = [f"worker {number} has not reported" for number in silent]
        reasons += [f"worker {number}: {reason}" for number, report in reports.items() for reason in report.reasons]
        wanted = frozenset().union(*(report.wanted for report in reports.values()))
        owned = frozenset().union(*(report.owned for report in reports.values()))
        return reasons + [f"{queue} is not owned" for queue in sorted(wanted - owned)]
