"""Reports of children: there and back, their sums, and whether all is idle."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import convert

from rocketapp.cli.processes.reports import FRESH, Report, WorkerReports, summary_line
from rocketapp.model.snapshot import HandlerStats
from rocketapp.operate.app_state import FailureLine, ProcessView
from rocketapp.plugins.counts import CallKey
from tests.unit.operate.test_aggregate import rows
from tests.unit.operate.views import queue_at, snapshot_of, stall

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
summaries = st.builds(HandlerStats, *[st.integers(0, 2**40)] * 5)
reports = st.builds(
    Report,
    kind=st.sampled_from(["loaded", "started", "status", "serving", "failed", "ended"]),
    summary=summaries,
    owned=st.frozensets(words),
    wanted=st.frozensets(words),
    reasons=st.lists(words).map(tuple),
    needs_cluster=st.booleans(),
    address=words,
    error=words,
    code=st.integers(0, 2),
)


@given(reports)
def test_a_report_arrives_as_it_was_sent_in_one_line(report: Report) -> None:
    line = report.encode()
    assert b"\n" not in line
    assert Report.decode(line) == report


@given(
    st.text(st.characters(exclude_categories=["Cs"])),
    st.floats(allow_nan=False),
    st.one_of(st.none(), st.integers(0, 2**62)),
)
def test_a_view_arrives_as_it_was_sent(text: str, number: float, position: int | None) -> None:
    snapshot = snapshot_of(queue_at(position, still=text), topic=text, metrics=rows(number, number))
    failures = (FailureLine(at=number, text=text),)
    durations = (
        (CallKey(text, error=text), ((3,), number, 3)),
        (CallKey(text, text, text), ((1, 2), number, 3)),
    )
    view = ProcessView(
        app=text, snapshot=snapshot, stalls=(stall(text, number),), failures=failures, durations=durations
    )
    assert convert(Report.decode(Report("view", said=view).encode()).said, ProcessView) == view


def test_the_summary_reads_as_documented() -> None:
    assert summary_line(HandlerStats(1, 2, 3, 4)) == "handled=1 retried=2 dead_lettered=3 unmatched=4"
    assert summary_line(HandlerStats(1, 2, 3, 4, 5)) == "handled=1 retried=2 dead_lettered=3 unmatched=4 dropped=5"


def status(*, owned: str = "", wanted: str = "", reasons: tuple[str, ...] = (), handled: int = 0) -> Report:
    return Report("status", HandlerStats(handled), frozenset(owned.split()), frozenset(wanted.split()), reasons)


def test_the_sum_keeps_what_a_dead_worker_did() -> None:
    seen = WorkerReports(2)
    seen.heard(1, status(handled=3), 0.0)
    seen.heard(2, status(handled=4), 0.0)
    seen.lost(1)
    seen.heard(1, status(handled=1), 1.0)
    seen.heard(1, status(handled=2), 2.0)
    assert seen.summary == HandlerStats(handled=3 + 4 + 2)


def test_together_the_workers_must_own_what_each_of_them_wants() -> None:
    seen = WorkerReports(2)
    seen.heard(1, status(owned="a b", wanted="a b c"), 0.0)
    seen.heard(2, status(owned="", wanted="a b c"), 0.0)
    assert seen.busy_because(0.0) == ["c is not owned"]
    seen.heard(2, status(owned="c", wanted="a b c"), 0.0)
    assert seen.busy_because(0.0) == []


def test_a_worker_with_a_reason_keeps_the_run_busy() -> None:
    seen = WorkerReports(2)
    seen.heard(1, status(owned="a", wanted="a"), 0.0)
    seen.heard(2, status(reasons=("a handler runs",)), 0.0)
    assert seen.busy_because(0.0) == ["worker 2: a handler runs"]


def test_a_worker_that_has_said_nothing_lately_is_not_taken_for_idle() -> None:
    seen = WorkerReports(2)
    seen.heard(1, status(), 0.0)
    assert seen.busy_because(0.0) == ["worker 2 has not reported"]
    seen.heard(2, status(), 0.0)
    assert seen.busy_because(FRESH) == []
    assert seen.busy_because(FRESH + 0.1) == ["worker 1 has not reported", "worker 2 has not reported"]
    seen.lost(2)
    assert "worker 2 has not reported" in seen.busy_because(0.0)


def test_a_worker_that_has_only_just_ended_its_drain_is_not_idle() -> None:
    seen = WorkerReports(1)
    seen.heard(1, Report("ended"), 0.0)
    assert seen.busy_because(0.0) == ["worker 1 has not reported"]


@pytest.mark.parametrize("interruption", ["busy", "handled"])
def test_idleness_counts_from_the_last_interruption(interruption: str) -> None:
    seen = WorkerReports(1)

    def idle(at: float, report: Report) -> float:
        seen.heard(1, report, at)
        return seen.idle_for(at)

    assert idle(10.0, status()) == 0.0
    assert idle(12.0, status()) == 2.0
    if interruption == "busy":
        assert idle(13.0, status(handled=1, reasons=("a handler runs",))) == 0.0
    assert idle(14.0, status(handled=1)) == 0.0
    assert idle(15.5, status(handled=1)) == 1.5
