"""Everything at once on this machine: broker, app, job and a day of orders, and a picture at the end."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from . import java, report
from .app import RUN, TABLE, app, parts
from .day import orders as orders_of_a_day
from .model import LATEST, ORDERS, Order, window_of
from .screen import Screen

PICTURE = RUN / "revenue.png"
PARTS = 400
"""In how many parts the day is sent, one after the other: queues then differ by minutes of the day, not by hours."""
PATIENCE = 15.0
"""Seconds that a process gets to end."""
NAME_SERVER = "ROCKETAPP_CLIENT__NAME_SERVER"


class PipelineError(Exception):
    """Something of it has failed; the message is for the terminal."""


@dataclass(slots=True)
class Counts:
    """How far everything is."""

    orders: int
    windows: int
    """That end within the day."""
    placed: int = 0
    stored: int = 0
    read: int = 0
    collected: int = 0
    watermark: str = ""
    """The time up to which the job expects no more orders."""

    @property
    def is_done(self) -> bool:
        return self.stored >= self.orders and self.collected >= self.windows

    def __str__(self) -> str:
        return (
            f"orders sent {self.placed:,} of {self.orders:,}, in the table {self.stored:,}, "
            f"read by the job {self.read:,}; windows collected {self.collected} of {self.windows}"
        )

    def waits(self) -> list[str]:
        """What stands still, and why."""
        found = []
        if not self.stored:
            found.append("the table waits for the sink's Spark to start, and then for the first batch")
        if not self.read:
            found.append("the job has no batch yet: its Spark starts")
        elif self.collected < self.windows:
            late = int(LATEST.total_seconds()) // 60
            found.append(f"a window ends {late} minutes of the day behind it; the job is at {self.watermark or 'none'}")
        return found


async def run(count: int, seconds: float, limit: float) -> int:
    """The exit code: 0 when the table and what came back from the stream agree."""
    problem = java.problem()
    if problem is not None:
        print(problem, file=sys.stderr)
        return 2
    shutil.rmtree(RUN, ignore_errors=True)
    RUN.mkdir(parents=True)
    day, screen = orders_of_a_day(count), Screen(RUN / "app.log")
    counts = Counts(orders=len(day), windows=len({window_of(order.placed_at) for order in day[:-1]}))
    problems: list[str] = []
    try:
        async with asyncio.timeout(limit):
            await _flow(day, seconds, counts, screen)
    except* TimeoutError:
        problems.append(f"not done within {limit:g} s: {'; '.join([str(counts), *counts.waits()])}")
    except* PipelineError as errors:
        problems.extend(map(str, errors.exceptions))
    for problem in problems:
        screen.problem(problem)
    if problems:
        return 1
    return _report(screen)


async def _flow(day: Sequence[Order], seconds: float, counts: Counts, screen: Screen) -> None:
    screen.say("starting the broker")
    broker_command = ("rocketapp", "broker", "--dir", str(RUN / "broker"), "--listen", "127.0.0.1:0")
    async with _child("broker", *broker_command) as broker:
        os.environ[NAME_SERVER] = address = await _address(broker)
        screen.say(f"the broker serves on {address}")
        async with app, _child("job", f"{__package__}.job") as job:
            screen.say("the app runs; two Sparks start, one for the sink and one for the job")
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(_send(day, seconds, counts))
                following = tasks.create_task(_follow(job, counts))
                await _watch(counts, screen)
                following.cancel()
            screen.say("everything is there; stopping the job and the app")
    screen.say("broker, app and job have ended")


async def _send(day: Sequence[Order], seconds: float, counts: Counts) -> None:
    """The day's orders. The one of the next morning goes last and alone: it ends every window."""
    size = -(-len(day) // PARTS)
    for begin in range(0, len(day) - 1, size):
        part = day[begin : min(begin + size, len(day) - 1)]
        await app.publish_many(ORDERS, part)
        counts.placed += len(part)
        await asyncio.sleep(seconds / PARTS)
    await app.publish(ORDERS, day[-1])
    counts.placed += 1


async def _follow(job: Process, counts: Counts) -> None:
    assert job.stdout is not None
    async for line in job.stdout:
        batch = json.loads(line)
        counts.read += batch["rows"]
        counts.watermark = (batch["watermark"] or "")[11:16]
    raise PipelineError(f"the job has ended with exit code {await job.wait()}: {_last_line('job')}")


async def _watch(counts: Counts, screen: Screen) -> None:
    """Tell every two seconds what has changed, and when nothing has, why."""
    shown, still = "", 0
    while True:
        counts.stored = await asyncio.to_thread(report.rows_in, TABLE)
        counts.collected = len(await asyncio.to_thread(parts.results().all))
        if str(counts) != shown:
            shown, still = str(counts), 0
            screen.say(shown)
        else:
            still += 1
            for reason in counts.waits() if still % 3 == 1 else ():
                screen.say(reason)
        if counts.is_done:
            return
        await asyncio.sleep(2)


def _report(screen: Screen) -> int:
    table, stream = report.read_table(TABLE), parts.results().all()
    report.draw(table, stream, PICTURE)
    found = report.differences(table, stream)
    for difference in found:
        screen.problem(difference)
    if found:
        return 1
    screen.say(f"{table.rows:,} rows of {table.orders:,} orders, {len(stream)} windows: table and stream agree in each")
    screen.say(f"the picture: {PICTURE}")
    return 0


@asynccontextmanager
async def _child(name: str, *module: str) -> AsyncIterator[Process]:
    """A Python process in a session of its own: Ctrl-C reaches this process alone, which ends it."""
    with _log(name).open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", *module, stdin=DEVNULL, stdout=PIPE, stderr=log, start_new_session=True
        )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        try:
            with suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), PATIENCE)
        finally:
            # Whatever of it is left, as after a second Ctrl-C: a Java that is just starting, for one.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


async def _address(broker: Process) -> str:
    assert broker.stdout is not None
    line = (await broker.stdout.readline()).decode()
    if not line.startswith("serving on "):
        raise PipelineError(f"the broker has ended with exit code {await broker.wait()}: {_last_line('broker')}")
    return line.removeprefix("serving on ").strip()


def _log(name: str) -> Path:
    return RUN / f"{name}.log"


def _last_line(name: str) -> str:
    lines = [line for line in _log(name).read_text(errors="replace").splitlines() if line.strip()]
    return f"{lines[-1] if lines else 'it said nothing'} (see {_log(name)})"
