"""Ratios come from medians of the same run; a missing peer leaves a gap and no number."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks import __main__ as command
from benchmarks.table import (
    Figures,
    Row,
    broker_goals,
    brokers,
    code,
    consuming,
    consuming_goals,
    dispatch_goals,
    idle_goals,
    latency_goals,
    publishing,
    publishing_goals,
    ratio,
    trace,
    trace_goals,
    workers_goals,
)


def figures(rate: float, cpu: float = 3.0, first: float = 0.5) -> Figures:
    return {"per_second": rate, "cpu_us_per_message": cpu, "start_to_first_s": first}


def rows(ours: float = 420_000) -> list[Row]:
    return [
        Row("java concurrently", [figures(100_000), figures(140_000), figures(150_000)], "java concurrently"),
        Row("go concurrently", [], "java concurrently"),
        Row("floor async, uvloop", [figures(400_000)], "java concurrently"),
        Row("ours async, uvloop", [figures(ours)], "java concurrently", "floor async, uvloop"),
    ]


def test_ratios_are_of_medians() -> None:
    by_name = {row.name: row for row in rows(280_000)}
    assert ratio(by_name, "ours async, uvloop", "java concurrently") == 2.0
    assert ratio(by_name, "ours async, uvloop", "floor async, uvloop") == 0.7
    assert ratio(by_name, "ours async, uvloop", "go concurrently") is None
    assert ratio(by_name, "ours async, uvloop", "a row of another run") is None


def test_a_peer_that_could_not_run_is_named_without_numbers() -> None:
    lines = consuming(rows())
    assert "| go concurrently | not run | | | | |" in lines
    assert "| ours async, uvloop | 420,000 | 3.00 | 1.05 | 3.0 | 0.50 |" in lines


def test_goals_are_met_or_missed() -> None:
    met = consuming_goals(rows(420_000), ["uvloop"])
    assert [goal.met for goal in met] == [True, True, True, True]
    missed = consuming_goals(rows(150_000), ["uvloop"])
    assert [goal.met for goal in missed] == [False, False, True, True]
    assert [code(met), code([*met, *missed]), code([])] == [0, 1, 0]


def test_the_run_ends_with_1_when_a_goal_was_missed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Measured(command.Run):
        """In place of brokers and clients."""

        def __init__(self, options: argparse.Namespace, home: Path) -> None:
            self.apache = SimpleNamespace(stop=lambda: None)
            self.goals, self.figures = [], {}

        def measure(self) -> None:
            self.goals += latency_goals({"e2e_ms_p50": 0.9, "e2e_ms_p99": ours}, {"e2e_ms_p50": 1.0, "e2e_ms_p99": 6.0})

    monkeypatch.setattr(command, "Run", Measured)
    monkeypatch.setattr(command.toolchain, "missing", lambda: None)
    monkeypatch.setattr(sys, "argv", ["benchmarks"])
    ours = 5.0
    assert command.main() == 0
    ours = 7.0
    assert command.main() == 1
    assert "MISSED latency p99 (ms) at most Java's 6.00: 7.00" in capsys.readouterr().out


def test_what_stands_around_a_handler_has_goals_of_its_own() -> None:
    dressed = [
        Row("ours typed, uvloop", [figures(170_000)], "java concurrently"),
        Row("ours whole, uvloop", [figures(69_000)], "java concurrently"),
    ]
    found = [goal for goal in consuming_goals([*rows(), *dressed], ["uvloop"]) if "ours async" not in goal.text]
    assert [(goal.text, goal.met) for goal in found] == [
        ("ours typed, uvloop: at least 1.2 x Java", True),
        ("ours whole, uvloop: at least 0.5 x Java", False),
    ]


def test_ours_is_held_against_the_baseline_of_the_same_run() -> None:
    for rate, met in ((430_000, True), (418_000, True), (400_000, False)):
        found = consuming_goals([*rows(rate), Row("baseline async, uvloop", [figures(430_000)], "")], ["uvloop"])
        assert [goal.met for goal in found if "baseline" in goal.text] == [met]


def test_a_publisher_is_held_against_the_java_producer_in_rate_and_processor_time() -> None:
    java = {"per_second": 10_000, "cpu_us_per_message": 100.0, "send_ms_p50": 1.5, "send_ms_p99": 4.0}
    ours = {"per_second": 14_000, "cpu_us_per_message": 25.0, "send_ms_p50": 1.0, "send_ms_p99": 3.0}
    rows = [Row("java 16", [java], "java 16"), Row("ours 16, uvloop", [ours], "java 16")]
    assert "| ours 16, uvloop | 14,000 | 1.40 | 25.0 | 0.25 | 1.000 | 3.000 |" in publishing(rows)
    found = publishing_goals([*rows, Row("baseline 16, uvloop", [ours], "java 16")], ["uvloop"])
    assert [(goal.text.partition(": ")[2], goal.met) for goal in found] == [
        ("at least 1.5 x Java", False),
        ("less CPU per message than Java", True),
        ("as fast as the baseline (0.97)", True),
    ]


def test_latency_is_held_against_javas() -> None:
    ours, java = {"e2e_ms_p50": 0.9, "e2e_ms_p99": 7.0}, {"e2e_ms_p50": 1.0, "e2e_ms_p99": 6.0}
    assert [goal.met for goal in latency_goals(ours, java)] == [True, False]


def test_brokers_are_compared_row_by_row() -> None:
    one, many, p99 = "sends/s, 1 threads", "sends/s, 16 threads", "p99 of sends beside other work, ms"
    ours = {one: 6000.0, many: 10_000.0, p99: 3.0, "start to serving, s": 0.4, "rounds": {one: [6000.0]}}
    apache = {one: 4000.0, many: 10_000.0, p99: 2.0, "rounds": {one: [4000.0]}}
    assert [(goal.text, goal.met) for goal in broker_goals(ours, apache)] == [
        (f"{one}: at least 1.2 x Apache's broker", True),
        (f"{many}: at least 1.6 x Apache's broker", False),
        (f"{p99}: at most 1.0 x Apache's broker", False),
        ("start to serving, s: at most 0.5", True),
    ]
    assert brokers(ours, apache)[2:] == [
        "| sends/s, 1 threads | 6,000.00 | 4,000.00 | 1.50 |",
        "| sends/s, 16 threads | 10,000.00 | 10,000.00 | 1.00 |",
        "| p99 of sends beside other work, ms | 3.00 | 2.00 | 1.50 |",
        "| start to serving, s | 0.40 | | |",
    ]


def test_message_trace_costs_no_more_than_javas() -> None:
    def traced(cost: float, share: float) -> Figures:
        return {
            "trace_us_per_message": cost,
            "traced": share,
            "trace_us_per_traced": cost / share,
            "per_second": 50_000,
            "cpu_us_per_message": 9.0,
        }

    rows = [
        Row("java", [traced(6, 0.25)], "java"),
        Row("ours, asyncio", [traced(9, 0.5)], "java"),
        Row("ours, uvloop", [traced(25, 1)], "java"),
        Row("baseline, asyncio", [traced(15, 1)], "java"),
    ]
    assert trace(rows)[3] == "| ours, asyncio | 9.0 | 50% | 18.0 | 0.75 | 50,000 | 9.0 |"
    assert [(goal.text, goal.met) for goal in trace_goals(rows)] == [
        ("message trace, ours, asyncio: at most the CPU of Java's", True),
        ("message trace, ours, uvloop: at most the CPU of Java's", False),
    ]
    assert trace_goals([row for row in rows if row.name != "java"]) == []


def test_many_handlers_two_workers_and_an_idle_app_have_goals() -> None:
    one, two = {"per_second": 1000.0}, {"per_second": 1700.0}
    assert [goal.met for goal in (*workers_goals(one, two), *workers_goals(two, two))] == [True, False]
    assert [goal.met for goal in dispatch_goals({"concurrent": 1.4, "orderly": 1.6})] == [True, False]
    assert [goal.met for goal in idle_goals({"asyncio": 70.0, "uvloop": 81.0})] == [True, False]
