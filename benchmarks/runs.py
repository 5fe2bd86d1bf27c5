"""One measurement per function: it starts a process, waits for its figures and ends it. Nothing runs beside it."""

from __future__ import annotations

import itertools
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from rocketapp import SyncClient
from tests.peers import toolchain

HERE = Path(__file__).resolve().parent
WHOLE = {
    "ROCKETAPP_APP__LOG_CONTEXT": "true",
    "ROCKETAPP_IDEMPOTENCY__STORE": "memory",
    "ROCKETAPP_TELEMETRY__SAMPLE": "0.01",
    "OTEL_TRACES_EXPORTER": "console",
    "OTEL_METRICS_EXPORTER": "console",
}
"""What `whole` and `logged` run with: marks in memory, message facts in log lines, metrics, one trace of a hundred."""
JAVA_PUBLISHES = {
    "1": (1, 1, "each"),
    "16": (1, 16, "each"),
    "64": (1, 64, "each"),
    "many": (32, 1, "each"),
    "one way": (1, 1, "oneway"),
}
"""Messages in a send, threads, and whether the answer is awaited."""
Figures = dict[str, Any]
_numbers = itertools.count(1)


class Bench:
    """Where measurements keep their files, and the group names that no measurement shares."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    def fresh(self, kind: str) -> str:
        """A name that was never used: a group that begins at the first message."""
        return f"bench_{kind}_{os.getpid()}_{next(_numbers)}"

    def java(self, name_server: str, *arguments: str, timeout: float = 900) -> Figures:
        """One run of the Java client (tests/peers/java/Bench.java)."""
        home = self.directory / "java"
        command = toolchain.java_command(
            "Bench", *arguments, home=home, heap="1g", properties=(f"-Dns={name_server}", "-XX:-UseSerialGC")
        )
        return _printed(command, timeout=timeout)

    def consume_java(self, name_server: str, topic: str, count: int, mode: str, *traces: str) -> Figures:
        """`traces`: the topic of its message trace, or nothing."""
        return self.java(name_server, "consume", topic, str(count), self.fresh("java"), mode, *traces)

    def produce(
        self, name_server: str, topic: str, count: int, *, batch: int, threads: int, size: int = 1024
    ) -> Figures:
        """Messages with tag TagA from the Java producer."""
        return self.java(name_server, "produce", topic, str(count), str(size), str(batch), str(threads))

    def consume_go(self, name_server: str, topic: str, count: int) -> Figures | str:
        """One run of the Go client, or why there is none."""
        program = self._go_program()
        if isinstance(program, str):
            return program
        return _printed([str(program), name_server, topic, str(count), self.fresh("go")], timeout=400)

    def _go_program(self) -> Path | str:
        if shutil.which("go") is None:
            return "no go command"
        target = toolchain.CACHE / "peers" / "gobench"
        built = subprocess.run(
            ["go", "build", "-o", str(target), "."],
            cwd=HERE / "peers" / "go",
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        return target if built.returncode == 0 else f"go build failed: {built.stderr.strip().splitlines()[-1]}"

    def floor(self, broker_address: str, topic: str, count: int, mode: str, loop: str) -> Figures:
        """The least that pure Python must do (peers/floor.py)."""
        arguments = [broker_address, topic, str(count), mode, *(["--stdlib"] if loop == "asyncio" else [])]
        return _printed([sys.executable, str(HERE / "peers" / "floor.py"), *arguments], timeout=400)

    def consume_ours(
        self,
        name_server: str,
        topic: str,
        count: int,
        kind: str,
        loop: str,
        traces: str | None = None,
        checkout: Path = toolchain.ROOT,
    ) -> Figures:
        """`rocketapp run` with a handler that only counts (apps/counting.py), by the rocketapp of this checkout.

        `traces`: the topic of its message trace; None for no trace.
        """
        environment = {
            "BENCH_KIND": kind,
            **(WHOLE if kind in ("whole", "logged") else {}),
            **({"ROCKETAPP_CLIENT__MESSAGE_TRACE": "true", "ROCKETAPP_CLIENT__TRACE_TOPIC": traces} if traces else {}),
        }
        with self._ours("counting", name_server, topic, count, loop, environment, checkout) as made:
            process, started, result = made
            figures = _of(_await_result(process, result, 600), checkout)
        figures["start_to_first_s"] = figures["first_at"] - started
        figures["per_second"] = figures["count"] / figures["seconds"]
        return figures

    def with_trace(self, name_server: str, count: int, consume: Callable[..., Figures]) -> Figures:
        """A consumer without message trace, then with it, and the difference of the two processes' whole CPU time.

        `consume` is called without an argument, and with the topic of the trace. What waits when the last message was
        handled is written before the process ends, so it counts.
        """
        traces = self.fresh("traces")
        self.java(name_server, "warm", traces)
        off, off_cpu = _with_cpu(consume)
        on, on_cpu = _with_cpu(partial(consume, traces))
        cost, traced = (on_cpu - off_cpu) * 1e6 / count, _traced(name_server, traces) / count
        figures = {"trace_us_per_message": cost, "traced": traced, "trace_us_per_traced": cost / traced}
        return {**on, **figures, "off": off}

    def publish_java(self, name_server: str, topic: str, count: int, kind: str) -> Figures:
        """The Java producer's way that stands beside one of ours: see apps/publishing.py."""
        batch, threads, how = JAVA_PUBLISHES[kind]
        return self.java(name_server, "publish", topic, str(count), "1024", str(batch), str(threads), how)

    def publish_ours(
        self, name_server: str, topic: str, count: int, kind: str, loop: str, checkout: Path = toolchain.ROOT
    ) -> Figures:
        """`rocketapp run` of an app that publishes (apps/publishing.py), by the rocketapp of this checkout."""
        environment = {"BENCH_KIND": kind}
        with self._ours("publishing", name_server, topic, count, loop, environment, checkout) as (process, _, result):
            return _of(_await_result(process, result, 600), checkout)

    def latency_ours(self, name_server: str, topic: str, count: int, rate: int, loop: str) -> Figures:
        """From the Java producer's send to our handler (apps/latency.py), paced."""
        self.java(name_server, "warm", topic)
        with self._ours("latency", name_server, topic, count, loop, {}) as (process, _, result):
            _await_result(process, result.with_suffix(".warm"), 60)
            sent = self.java(name_server, "pace", topic, str(count), str(rate))
            figures = _await_result(process, result, 60)
        return {**figures, "send_ms_p50": sent["send_ms_p50"], "send_ms_p99": sent["send_ms_p99"]}

    def idle_ours(self, name_server: str, topic: str, loop: str) -> Figures:
        """Resident memory of an app that handled its one message and waits for the next."""
        with self._ours("counting", name_server, topic, 1, loop, {"BENCH_KIND": "async"}) as (process, started, result):
            figures = _await_result(process, result, 60)
            time.sleep(3)
            return {"rss_mb": resident_mb(process.pid), "start_to_first_s": figures["first_at"] - started}

    def workers_ours(self, name_server: str, topic: str, count: int, workers: int, loop: str) -> Figures:
        """The rate of this many processes whose handlers compute (apps/computing.py)."""
        options = ("--workers", str(workers), "--exit-when-idle", "2")
        with self._ours("computing", name_server, topic, count, loop, {}, options=options) as (process, _, result):
            process.wait(600)
            times = [json.loads(file.read_text()) for file in result.parent.glob("process-*.json")]
        seconds = max(last for _, last in times) - min(first for first, _ in times)
        return {"processes": len(times), "per_second": count / seconds}

    @contextmanager
    def _ours(
        self,
        app: str,
        name_server: str,
        topic: str,
        count: int,
        loop: str,
        environment: dict[str, str],
        checkout: Path = toolchain.ROOT,
        options: Sequence[str] = (),
    ) -> Iterator[tuple[subprocess.Popen[bytes], float, Path]]:
        """`rocketapp run` of one of our apps, its start time, and the file where its figures will lie.

        Another checkout may have an environment of its own, in `.venv`: with its own plugins.
        """
        place = self.directory / self.fresh(app)
        place.mkdir()
        shutil.copy(HERE / "apps" / f"{app}.py", place)
        result = place / "result.json"
        variables = {
            **os.environ,
            "BENCH_TOPIC": topic,
            "BENCH_GROUP": self.fresh("ours"),
            "BENCH_COUNT": str(count),
            "BENCH_RESULT": str(result),
            "PYTHONPATH": str(checkout),
            **environment,
        }
        command = toolchain.rocketapp_command("run", app, "--name-server", name_server, "--loop", loop, *options)
        if (its_own := checkout / ".venv/bin/rocketapp").exists():
            command[0] = str(its_own)
        with (place / "log.txt").open("wb") as log:
            started = time.monotonic()
            process = subprocess.Popen(command, cwd=place, env=variables, stdout=log, stderr=log)
        try:
            yield process, started, result
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(40)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _with_cpu(run: Callable[[], Figures]) -> tuple[Figures, float]:
    """Its figures, and the processor seconds of the process that it started and ended."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    figures = run()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return figures, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _traced(name_server: str, traces: str) -> int:
    """How many ends of calls a topic of message trace holds."""
    with SyncClient(name_server) as client:
        return sum(message.body.count(b"SubAfter\x01") for message in client.messages(traces, start="first", idle=5))


def _printed(command: list[str], *, timeout: float) -> Figures:
    """Run a peer and read its line of JSON; the time to its first message counts from here."""
    started = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        raise RuntimeError(f"{command[0]} printed no figures:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    figures: Figures = json.loads(lines[-1])
    if figures.get("complete") is False:
        raise RuntimeError(f"incomplete: {figures}")
    if "first_at" in figures:
        figures["start_to_first_s"] = figures["first_at"] - started
    return figures


def _of(figures: Figures, checkout: Path) -> Figures:
    """These figures. RuntimeError when they are those of another checkout."""
    if figures["package"] != str(checkout / "rocketapp"):
        raise RuntimeError(f"{figures['package']} was measured instead of {checkout / 'rocketapp'}")
    return figures


def _await_result(process: subprocess.Popen[bytes], result: Path, seconds: float) -> Figures:
    deadline = time.monotonic() + seconds
    while not result.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            log = (result.parent / "log.txt").read_text()[-3000:]
            raise RuntimeError(f"no {result.name} (exit code {process.returncode}):\n{log}")
        time.sleep(0.05)
    figures: Figures = json.loads(result.read_text())
    return figures


def resident_mb(pid: int) -> float:
    """Resident memory of a process in MB (10^6 bytes), as the kernel counts it."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise RuntimeError(f"no VmRSS of {pid}")
