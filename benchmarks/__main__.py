"""`python -m benchmarks`: ours beside Java, Go and the floor of pure Python, on the same messages of one broker.

Starts Apache RocketMQ in a directory of its own, fills one topic, lets every consumer take all of it in turn, each
with a fresh group, and prints one table with ratios. A number without its peer from the same run is not a result. Then
what a second worker wins, what message trace adds, publishing beside the Java producer, latency, memory, and the
embedded broker beside Apache's.
`--json FILE` keeps every single figure. `--baseline DIR` lets the rocketapp of another checkout take its turns beside
ours, with the same app: what a change won or cost, in one run. Exit code 1: a goal of benchmarks/table.py was missed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import table
from benchmarks.brokers import BrokerBench
from benchmarks.runs import Bench, Figures
from benchmarks.table import Row
from tests.peers import toolchain
from tests.peers.clusters import Apache

PARTS = ("consuming", "workers", "trace", "publishing", "latency", "idle", "brokers")
FLOOR_OF = {"async": "async", "sync": "threads", "orderly": "orderly", "keyed": "async"}
DRESSED = ("typed", "whole", "logged")
"""Async handlers with more around them: a typed payload; telemetry and idempotency; a log line for each message."""
PUBLISHING = {"1": ("1", 24), "16": ("16", 6), "64": ("64", 6), "many": ("many", 2)}
PUBLISHING |= {"one way": ("one way", 6), "sync": ("1", 24)}
"""Of every way to publish: the Java producer's way beside it, and which part of `--count` it sends (a 24th)."""

Ways = list[tuple[str, Callable[[], Figures | str]]]
"""Names, and what measures them or says why it cannot."""


def options_of(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--count", type=int, default=480_000, help="messages of 1 KiB that every consumer takes (480000)"
    )
    parser.add_argument(
        "--rounds", type=int, default=1, help="how often every consumer runs; the table shows medians (1)"
    )
    parser.add_argument("--only", choices=PARTS, action="append", help="one part; may be given again (all)")
    parser.add_argument("--rate", type=int, default=500, help="messages per second of the latency part (500)")
    parser.add_argument("--dir", type=Path, help="where brokers keep their data (a temporary directory)")
    parser.add_argument("--baseline", type=Path, help="another checkout, which takes its turns beside ours")
    parser.add_argument(
        "--consumer",
        action="append",
        metavar="PREFIX",
        help="only consumers and publishers whose names begin so; may be given again",
    )
    parser.add_argument("--json", type=Path, help="write every figure to this file")
    return parser.parse_args(arguments)


def loops() -> list[str]:
    """The event loops that can be measured here."""
    return ["asyncio", *(["uvloop"] if importlib.util.find_spec("uvloop") else [])]


class Run:
    """One run of the command: the brokers it started, and what it measured."""

    def __init__(self, options: argparse.Namespace, home: Path) -> None:
        self.options, self.home = options, home
        self.bench = Bench(home / "bench")
        self.figures: dict[str, Any] = {
            "count": options.count,
            "rounds": options.rounds,
            "python": sys.version,
            "machine": platform.platform(),
        }
        self.goals: list[table.Goal] = []
        self.apache = Apache(home / "apache", heap="1g")

    def measure(self) -> None:
        """Every part that was asked for, one after the other."""
        parts: dict[str, Callable[[], None]] = {
            "consuming": self.consuming,
            "workers": self.workers,
            "trace": self.trace,
            "publishing": self.publishing,
            "latency": self.latency,
            "idle": self.idle,
            "brokers": self.brokers,
        }
        for name, part in parts.items():
            if not self.options.only or name in self.options.only:
                part()

    def consuming(self) -> None:
        topic, count = self.bench.fresh("topic"), self.options.count
        _tell(f"{count} messages of 1 KiB to {topic}")
        self.figures["filling"] = self.bench.produce(self.apache.name_server, topic, count, batch=32, threads=4)
        rows = self._in_turn(self._ways(topic))
        self._show(self._table(rows))
        self.figures["consuming"] = rows

    def _in_turn(self, ways: Ways) -> dict[str, list[Figures]]:
        """The figures of every way by its name; in each round every way has its turn."""
        wanted = tuple(self.options.consumer or ("",))
        ways = [way for way in ways if way[0].startswith(wanted)]
        rows: dict[str, list[Figures]] = {name: [] for name, _ in ways}
        for number in range(self.options.rounds):
            # Every second round in reverse: of two neighbours, neither is always the first.
            for name, way in ways if number % 2 == 0 else reversed(ways):
                _tell(f"round {number + 1}: {name}")
                figures = way()
                if isinstance(figures, str):
                    _tell(f"  not run: {figures}")
                else:
                    _tell(f"  {figures['per_second']:,.0f}/s, {figures['cpu_us_per_message']:.1f} us/message")
                    rows[name].append(figures)
        return rows

    def _ways(self, topic: str) -> Ways:
        """Every consumer by name, in the order in which they take their turns."""
        server, count, bench = self.apache.name_server, self.options.count, self.bench
        ways: Ways = [
            ("java concurrently", partial(bench.consume_java, server, topic, count, "concurrently")),
            ("java orderly", partial(bench.consume_java, server, topic, count, "orderly")),
            ("java broadcast", partial(bench.consume_java, server, topic, count, "broadcast")),
            ("java pop", partial(bench.consume_java, server, topic, count, "pop")),
            ("go concurrently", partial(bench.consume_go, server, topic, count)),
        ]
        for loop in loops():
            for mode in ("bare", "async", "threads", "orderly"):
                run = partial(bench.floor, self.apache.broker_address, topic, count, mode, loop)
                ways.append((f"floor {mode}, {loop}", run))
            for kind in FLOOR_OF:
                ours = partial(bench.consume_ours, server, topic, count, kind, loop)
                ways.append((f"ours {kind}, {loop}", ours))
                if self.options.baseline is not None:
                    checkout = self.options.baseline.resolve()
                    ways.append((f"baseline {kind}, {loop}", partial(ours, checkout=checkout)))
            for kind in (*DRESSED, "broadcast", "pop"):
                ways.append((f"ours {kind}, {loop}", partial(bench.consume_ours, server, topic, count, kind, loop)))
        return ways

    def _table(self, rounds: dict[str, list[Figures]]) -> list[str]:
        rows = []
        for name, figures in rounds.items():
            who, _, rest = name.partition(" ")
            kind, _, loop = rest.partition(", ")
            java = f"java {kind if kind in ('orderly', 'broadcast', 'pop') else 'concurrently'}"
            floor = f"floor {FLOOR_OF[kind]}, {loop}" if who in ("ours", "baseline") and kind in FLOOR_OF else ""
            rows.append(Row(name, figures, java, floor))
        self.goals += table.consuming_goals(rows, loops())
        return table.consuming(rows)

    def workers(self) -> None:
        """What a second process wins, where the handlers are the limit."""
        topic, count = self.bench.fresh("computed"), max(2000, self.options.count // 24)
        self.bench.produce(self.apache.name_server, topic, count, batch=32, threads=4)
        found = {}
        for workers in (1, 2):
            _tell(f"{workers} workers")
            found[workers] = self.bench.workers_ours(self.apache.name_server, topic, count, workers, loops()[-1])
        self.goals += table.workers_goals(found[1], found[2])
        self.figures["workers"] = found

    def trace(self) -> None:
        """What message trace costs a consumer."""
        topic, count, server, bench = self.bench.fresh("topic"), self.options.count, self.apache.name_server, self.bench
        # One by one: brokers write no region into the messages of a batch, and Java traces none without it.
        bench.produce(server, topic, count, batch=1, threads=16)
        java = partial(bench.consume_java, server, topic, count, "concurrently")
        ways: Ways = [("java", partial(bench.with_trace, server, count, java))]
        for loop in loops():
            ours = partial(bench.consume_ours, server, topic, count, "async", loop)
            ways.append((f"ours, {loop}", partial(bench.with_trace, server, count, ours)))
            if self.options.baseline is not None:
                before = partial(ours, checkout=self.options.baseline.resolve())
                ways.append((f"baseline, {loop}", partial(bench.with_trace, server, count, before)))
        found = self._in_turn(ways)
        rows = [Row(name, figures, "java") for name, figures in found.items()]
        self.goals += table.trace_goals(rows)
        self.figures["trace"] = found
        self._show(table.trace(rows))

    def publishing(self) -> None:
        server, bench, topic = self.apache.name_server, self.bench, self.bench.fresh("published")
        bench.java(server, "warm", topic)
        counts = {kind: max(2000, self.options.count // share) for kind, (_, share) in PUBLISHING.items()}
        ways: Ways = []
        for kind, count in counts.items():
            if kind == PUBLISHING[kind][0]:
                ways.append((f"java {kind}", partial(bench.publish_java, server, topic, count, kind)))
            for loop in loops():
                ours = partial(bench.publish_ours, server, topic, count, kind, loop)
                ways.append((f"ours {kind}, {loop}", ours))
                if self.options.baseline is not None:
                    checkout = self.options.baseline.resolve()
                    ways.append((f"baseline {kind}, {loop}", partial(ours, checkout=checkout)))
        found = self._in_turn(ways)
        rows = []
        for name, figures in found.items():
            kind = name.partition(" ")[2].partition(", ")[0]
            rows.append(Row(name, figures, f"java {PUBLISHING[kind][0]}"))
        self.goals += table.publishing_goals(rows, loops())
        self.figures["publishing"] = found
        self._show(table.publishing(rows))

    def latency(self) -> None:
        server, rate, bench = self.apache.name_server, self.options.rate, self.bench
        count = min(10_000, max(1000, self.options.count // 48))
        lines = [f"| latency at {rate}/s | p50 ms | p99 ms |", "| --- | ---: | ---: |"]
        _tell(f"latency: {count} messages at {rate}/s, Java")
        java = bench.java(server, "latency", bench.fresh("latency"), str(count), str(rate))
        found = {"java": java}
        for loop in loops():
            _tell(f"latency: ours, {loop}")
            found[f"ours, {loop}"] = bench.latency_ours(server, bench.fresh("latency"), count, rate, loop)
        lines += [f"| {name} | {one['e2e_ms_p50']:.2f} | {one['e2e_ms_p99']:.2f} |" for name, one in found.items()]
        self.goals += table.latency_goals(found[f"ours, {loops()[-1]}"], java)
        self.figures["latency"] = found
        self._show(lines)

    def idle(self) -> None:
        topic = self.bench.fresh("idle")
        self.bench.produce(self.apache.name_server, topic, 1, batch=1, threads=1)
        found = {loop: self.bench.idle_ours(self.apache.name_server, topic, loop) for loop in loops()}
        self.goals += table.idle_goals({loop: one["rss_mb"] for loop, one in found.items()})
        self.figures["idle"] = found

    def brokers(self) -> None:
        bench = BrokerBench(self.bench, self.home, loops()[-1], self.options.count, self.options.rounds)
        bench.measure(self.apache)
        ours, theirs = bench.found["embedded"], bench.found["apache"]
        self.goals += table.broker_goals(ours, theirs)
        self.figures["brokers"] = bench.found
        self._show(table.brokers(ours, theirs))

    def _show(self, lines: list[str]) -> None:
        print("\n" + "\n".join(lines) + "\n", flush=True)


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    options = options_of()
    problem = toolchain.missing()
    if problem is not None:
        print(f"the benchmarks need Apache RocketMQ and its Java client: {problem}", file=sys.stderr)
        return 2
    home = Path(tempfile.mkdtemp(prefix="rocketapp-bench-", dir=options.dir))
    run = None
    try:
        run = Run(options, home)
        run.measure()
    finally:
        if run is not None:
            run.apache.stop()
        shutil.rmtree(home, ignore_errors=True)
    print("\n".join(table.goals(run.goals)))
    run.figures["goals"] = [goal._asdict() for goal in run.goals]
    if options.json is not None:
        options.json.write_text(json.dumps(run.figures, indent=1) + "\n")
    return table.code(run.goals)


if __name__ == "__main__":
    sys.exit(main())
