"""Figures as a table, and the goals they are held against, which are said here alone. Pure: figures in, text out."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

Figures = dict[str, Any]


TIMES_JAVA = {
    "uvloop": {"async": 3.0, "orderly": 3.0, "sync": 2.2},
    "asyncio": {"async": 2.5, "orderly": 2.5, "sync": 1.8},
}
"""How many times as fast as Java's consumer a handler is that only counts, by loop and kind."""
DRESSED = {
    "typed": ("concurrently", 1.2),
    "whole": ("concurrently", 0.5),
    "broadcast": ("broadcast", 3.0),
    "pop": ("pop", 3.0),
}
"""The same of other kinds, with the mode of Java's that stands beside them; for both loops."""
OF_FLOOR, CPU_US, FIRST_S, RESIDENT_MB = 0.9, 3.0, 0.5, 80
"""Part of what pure Python can do; CPU of a message; start to first message; memory of an idle app and of a broker."""
TIMES_APACHE = {"sends/s, 1 threads": 1.2, "sends/s, 16 threads": 1.6, "sends/s, 64 threads": 1.8}
TIMES_APACHE |= {f"drained by {who}, messages/s": 1.0 for who in ("ours", "Java", "Go")}
TIMES_APACHE |= {"sends/s, 64 threads, synchronous flush": 1.5}
"""How many times as fast as Apache's broker the embedded one is at least."""
BESIDE_APACHE = {"p99 of sends beside other work, ms": 1.0}
"""How many times as long as Apache's it takes at most."""
OF_BROKER = {"start to serving, s": FIRST_S, "start with 2,000 queues, s": FIRST_S, "a new topic, ms": 5.0}
OF_BROKER |= {"resident at the end, MB": RESIDENT_MB}
"""The most of the embedded broker alone."""
TWO_WORKERS = 1.6
"""What two processes handle beside one, on two cores."""
HANDLERS_COST = 1.5
"""What a topic's 64 handlers may cost a message, beside one handler."""


class Row(NamedTuple):
    """One way to consume or to publish the messages, measured in every round."""

    name: str
    rounds: Sequence[Figures]
    java: str
    """The row whose rate is 1.0 for this one."""
    floor: str = ""
    """The row that bounds this one; empty for peers."""

    def median(self, key: str) -> float:
        return statistics.median(float(figures.get(key, 0.0)) for figures in self.rounds)


class Goal(NamedTuple):
    """One promise, what was measured, and whether it holds."""

    text: str
    measured: float
    met: bool


def consuming(rows: Sequence[Row]) -> list[str]:
    """The table of consumers: rate, ratio to Java and to the floor, processor time, time to the first message."""
    by_name = {row.name: row for row in rows}
    lines = [
        "| consumer | messages/s | x Java | of its floor | CPU us/message | start to first s |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in rows:
        if not row.rounds:
            lines.append(f"| {row.name} | not run | | | | |")
            continue
        rate = row.median("per_second")
        times = ratio(by_name, row.name, row.java)
        floor = ratio(by_name, row.name, row.floor)
        lines.append(
            f"| {row.name} | {rate:,.0f} | {_shown(times)} | {_shown(floor)} | {row.median('cpu_us_per_message'):.1f} "
            f"| {row.median('start_to_first_s'):.2f} |"
        )
    return lines


def ratio(rows: Mapping[str, Row], name: str, other: str, key: str = "per_second") -> float | None:
    """Median of one row, its rate or another figure, over that of another row of the same run.

    None when one of them was not run.
    """
    if name not in rows or other not in rows or not rows[name].rounds or not rows[other].rounds:
        return None
    return rows[name].median(key) / rows[other].median(key)


def _shown(number: float | None) -> str:
    return "" if number is None else f"{number:.2f}"


def consuming_goals(rows: Sequence[Row], loops: Sequence[str]) -> list[Goal]:
    """What is promised of our consumer."""
    by_name = {row.name: row for row in rows}
    return [goal for loop in loops for goal in (*_bare_goals(by_name, loop), *_dressed_goals(by_name, loop))]


def _dressed_goals(by_name: Mapping[str, Row], loop: str) -> list[Goal]:
    """What a typed payload, telemetry, idempotency and offsets of our own may cost."""
    goals = []
    for kind, (java, wanted) in DRESSED.items():
        times = ratio(by_name, f"ours {kind}, {loop}", f"java {java}")
        if times is not None:
            goals.append(Goal(f"ours {kind}, {loop}: at least {wanted} x Java", times, times >= wanted))
    return goals


def _bare_goals(by_name: Mapping[str, Row], loop: str) -> list[Goal]:
    goals: list[Goal] = []
    for kind, wanted in TIMES_JAVA[loop].items():
        name = f"ours {kind}, {loop}"
        row = by_name.get(name)
        if row is None or not row.rounds:
            continue
        times = ratio(by_name, name, row.java)
        if times is not None:
            goals.append(Goal(f"{name}: at least {wanted} x Java", times, times >= wanted))
        floor = ratio(by_name, name, row.floor)
        if floor is not None:
            goals.append(Goal(f"{name}: at least {OF_FLOOR} of its floor", floor, floor >= OF_FLOOR))
        before = ratio(by_name, name, f"baseline {kind}, {loop}")
        if before is not None:
            goals.append(Goal(f"{name}: as fast as the baseline (0.97, for noise)", before, before >= 0.97))
        cpu = row.median("cpu_us_per_message")
        goals.append(Goal(f"{name}: at most {CPU_US:g} us CPU per message", cpu, cpu <= CPU_US))
        first = row.median("start_to_first_s")
        goals.append(
            Goal(f"{name}: first message within {FIRST_S:g} s of the process's start", first, first <= FIRST_S)
        )
    return goals


def trace(rows: Sequence[Row]) -> list[str]:
    """The table of message trace: what it adds to the CPU time of a consumer, per handled and per traced message.

    At full speed clients drop records, so that the share of messages that have them says what the cost bought.
    """
    lines = [
        "| message trace | CPU us/message | traced | CPU us/traced | x Java | with all: messages/s | CPU us/message |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    by_name = {row.name: row for row in rows}
    for row in rows:
        lines.append(
            f"| {row.name} | {row.median('trace_us_per_message'):.1f} | {row.median('traced'):.0%} "
            f"| {row.median('trace_us_per_traced'):.1f} "
            f"| {_shown(ratio(by_name, row.name, row.java, 'trace_us_per_traced'))} "
            f"| {row.median('per_second'):,.0f} | {row.median('cpu_us_per_message'):.1f} |"
        )
    return lines


def trace_goals(rows: Sequence[Row]) -> list[Goal]:
    """A message that is traced costs no more than in Java."""
    by_name = {row.name: row for row in rows if row.rounds}
    found = [(name, ratio(by_name, name, "java", "trace_us_per_traced")) for name in by_name if name.startswith("ours")]
    return [
        Goal(f"message trace, {name}: at most the CPU of Java's", cost, cost <= 1)
        for name, cost in found
        if cost is not None
    ]


def publishing(rows: Sequence[Row]) -> list[str]:
    """The table of publishers: rate and processor time beside Java's, and how long one call took."""
    by_name = {row.name: row for row in rows}
    lines = [
        "| publisher | messages/s | x Java | CPU us/message | of Java's | p50 ms | p99 ms |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in rows:
        cpu = ratio(by_name, row.name, row.java, "cpu_us_per_message")
        lines.append(
            f"| {row.name} | {row.median('per_second'):,.0f} | {_shown(ratio(by_name, row.name, row.java))} "
            f"| {row.median('cpu_us_per_message'):.1f} | {_shown(cpu)} "
            f"| {row.median('send_ms_p50'):.3f} | {row.median('send_ms_p99'):.3f} |"
        )
    return lines


def publishing_goals(rows: Sequence[Row], loops: Sequence[str]) -> list[Goal]:
    """What is promised of our producer."""
    by_name = {row.name: row for row in rows}
    goals: list[Goal] = []
    for loop in loops:
        for kind, wanted in (("1", 1.0), ("16", 1.5), ("64", 1.5)):
            name = f"ours {kind}, {loop}"
            times, before = (ratio(by_name, name, other) for other in (f"java {kind}", f"baseline {kind}, {loop}"))
            cpu = ratio(by_name, name, f"java {kind}", "cpu_us_per_message")
            if times is not None and cpu is not None:
                goals.append(Goal(f"publishing, {name}: at least {wanted} x Java", times, times >= wanted))
                goals.append(Goal(f"publishing, {name}: less CPU per message than Java", cpu, cpu < 1))
            if before is not None:
                goals.append(Goal(f"publishing, {name}: as fast as the baseline (0.97)", before, before >= 0.97))
    return goals


def latency_goals(ours: Figures, java: Figures) -> list[Goal]:
    """Latency no worse than Java's in the same run."""
    return [
        Goal(f"latency {name} (ms) at most Java's {java[key]:.2f}", ours[key], ours[key] <= java[key])
        for name, key in (("p50", "e2e_ms_p50"), ("p99", "e2e_ms_p99"))
    ]


def workers_goals(one: Figures, two: Figures) -> list[Goal]:
    """What a second worker wins, with handlers that compute."""
    times = two["per_second"] / one["per_second"]
    return [Goal(f"two workers on two cores: at least {TWO_WORKERS} times one", times, times >= TWO_WORKERS)]


def idle_goals(resident_mb: Mapping[str, float]) -> list[Goal]:
    """Memory of an app that waits for messages, by loop."""
    return [_small(f"an idle app, {loop}", megabytes) for loop, megabytes in resident_mb.items()]


def _small(what: str, megabytes: float) -> Goal:
    return Goal(f"{what}: at most {RESIDENT_MB} MB resident", megabytes, megabytes <= RESIDENT_MB)


def dispatch_goals(cost: Mapping[str, float]) -> list[Goal]:
    """What many handlers of a topic cost a message, beside one handler, by mode."""
    return [
        Goal(f"64 handlers, {mode}: at most {HANDLERS_COST} times one", times, times <= HANDLERS_COST)
        for mode, times in cost.items()
    ]


def broker_goals(embedded: Figures, apache: Figures) -> list[Goal]:
    """The embedded broker beside Apache RocketMQ's, and by itself."""
    goals = []
    for what, wanted in TIMES_APACHE.items():
        if embedded.get(what) and apache.get(what):
            times = embedded[what] / apache[what]
            goals.append(Goal(f"{what}: at least {wanted} x Apache's broker", times, times >= wanted))
    for what, most in BESIDE_APACHE.items():
        if embedded.get(what) and apache.get(what):
            times = embedded[what] / apache[what]
            goals.append(Goal(f"{what}: at most {most} x Apache's broker", times, times <= most))
    for what, most in OF_BROKER.items():
        if what in embedded:
            goals.append(Goal(f"{what}: at most {most:g}", embedded[what], embedded[what] <= most))
    return goals


def brokers(embedded: Figures, apache: Figures) -> list[str]:
    """The table of the two brokers."""
    lines = ["| broker | embedded | Apache | ratio |", "| --- | ---: | ---: | ---: |"]
    for what, ours in embedded.items():
        if what in apache and what != "rounds":
            lines.append(f"| {what} | {ours:,.2f} | {apache[what]:,.2f} | {ours / apache[what]:.2f} |")
        elif what != "rounds":
            lines.append(f"| {what} | {ours:,.2f} | | |")
    return lines


def goals(found: Sequence[Goal]) -> list[str]:
    """One line per promise, the broken ones marked."""
    return [f"{'met   ' if goal.met else 'MISSED'} {goal.text}: {goal.measured:.2f}" for goal in found]


def code(found: Sequence[Goal]) -> int:
    """The exit code of a run: 1 when a promise was not kept."""
    return 0 if all(goal.met for goal in found) else 1
