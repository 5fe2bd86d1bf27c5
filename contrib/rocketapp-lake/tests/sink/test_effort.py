"""Sinks whose table is slow or away: batches grow, attempts end, pulls wait, and figures tell it."""

from __future__ import annotations

import re
import threading
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from prometheus_client.parser import text_string_to_metric_families
from sink_shop import Shop, until

from rocketapp import SetupError
from rocketapp.plugin import AppSnapshot
from rocketapp.plugins.prometheus import exposition
from rocketapp_lake.batches import Limits
from rocketapp_lake.buffer import Buffer
from rocketapp_lake.counts import metrics_of
from rocketapp_lake.pacing import LARGEST, Pace
from rocketapp_lake.parquet import ParquetStore
from rocketapp_lake.parquet_log import LOG
from rocketapp_lake.staging import STAGING

LIMITS = Limits(rows=10, bytes=1000, seconds=4.0)


def test_limits_double_while_commits_are_slow_up_to_a_cap_and_come_down_again() -> None:
    pace = Pace(LIMITS, 1500)
    slow, fast = (4.1, 4, 400), (0.9, 4, 400)
    assert pace.took(*slow)
    assert (pace.factor, pace.limits) == (2, Limits(rows=20, bytes=1500, seconds=8.0))
    assert [pace.took(*slow), pace.took(*slow), pace.factor] == [True, False, LARGEST]
    assert not pace.took(2.0, 4, 400)
    assert [pace.took(*fast), pace.took(*fast), pace.took(*fast), pace.factor] == [True, True, False, 1]
    assert pace.limits == LIMITS


@pytest.mark.parametrize(("rows", "size"), [(5, 0), (1, 500)])
def test_full_batches_that_take_long_do_not_wait_for_more_rows(rows: int, size: int) -> None:
    pace = Pace(LIMITS, 1500)
    assert not pace.took(100.0, rows, size)
    assert pace.took(100.0, 1, 1)
    assert pace.took(100.0, rows, size)
    assert pace.limits == LIMITS


def test_a_full_buffer_says_so_until_a_share_is_free_and_counts_the_time() -> None:
    now = [10.0]
    buffer = Buffer(100, lambda: now[0])
    buffer.holds(99)
    assert buffer.is_full(1.0) is None
    buffer.holds(120)
    assert buffer.is_full(1.0) == "the sink holds 120 bytes, limit max_buffer_bytes 100"
    now[0] = 13.0
    assert buffer.paused == 3.0
    buffer.holds(80)
    now[0] = 20.0
    assert (buffer.is_full(1.0), buffer.is_full(0.75) is None, buffer.paused) == (None, False, 3.0)


def figures(shop: Shop) -> dict[str, float]:
    """Of the running app, as Prometheus reads them, by name; queues are added up."""
    assert shop.watch.surface is not None
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(exposition(shop.watch.surface.snapshot())):
        for sample in family.samples:
            if sample.labels.get("rocketapp_sink") == f"shop/{shop.topic}":
                name = sample.name.removeprefix("rocketapp_sink_")
                found[name] = found.get(name, 0) + sample.value
    return found


async def test_metrics_tell_what_the_sink_has_done_and_where_it_stands(shop: Shop) -> None:
    async with shop.app(bad_rows="column", flush_seconds=0.1) as app:
        await app.publish(shop.topic, "{")
        await shop.send(app, range(9))
        await until(lambda: len(shop.rows()) == 10)
        await until(lambda: shop.watch.held(shop.topic) == 0)
        found = figures(shop)
    commits = list(ParquetStore.log_of(shop.table, f"shop/{shop.topic}"))
    assert (found["rows_total"], found["bad_rows_total"], found["commits_total"]) == (10, 1, len(commits))
    assert 10 * 8 < found["written_bytes_total"] < 10_000
    assert 0 < found["commit_time_seconds_total"] < 200
    assert (found["lag"], found["buffer_usage_bytes"]) == (0, 0)
    assert (found["batch_factor"] >= 1, found["paused_seconds_total"]) == (True, 0)
    assert found["buffer_limit_bytes"] == 64 * 1024 * 1024
    for name in ("failures", "fences_lost", "replays_trimmed", "orphans_swept", "compacted"):
        assert found[f"{name}_total"] == 0


async def test_metrics_tell_failures_and_what_was_swept(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = ParquetStore.sweep
    monkeypatch.setattr(ParquetStore, "sweep", lambda store, older_than: sweep(store, 0.0))
    app = shop.app(flush_seconds=0.1)
    shop.fails(OSError("no space left"))
    (shop.table / STAGING / "orphan").mkdir(parents=True)
    async with app:
        await shop.send(app, range(3))
        await until(lambda: figures(shop)["orphans_swept_total"] == 1)
        assert (figures(shop)["failures_total"], figures(shop)["rows_total"]) == (1, 3)


async def test_a_lost_race_and_what_is_trimmed_are_counted(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    commit_to, left = ParquetStore.commit, [1]

    def late(store: ParquetStore, commit: Any, rows: Any) -> None:
        if left and left.pop():
            other = ParquetStore(store.path, store.sink, write=lambda rows, directory: directory.mkdir())
            commit_to(other, replace(commit, batch="other"), None)
        commit_to(store, commit, rows)

    monkeypatch.setattr(ParquetStore, "commit", late)
    async with shop.app(flush_seconds=0.1) as app:
        await shop.send(app, range(3))
        await until(lambda: figures(shop)["fences_lost_total"] == 1)
        assert figures(shop)["replays_trimmed_total"] == 3


async def test_a_slow_table_gets_larger_batches_and_the_figures_show_it(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "rocketapp.lake")
    commit_to = ParquetStore.commit

    def slow(store: ParquetStore, commit: Any, rows: Any) -> None:
        commit_to(store, commit, rows)
        threading.Event().wait(0.15)

    monkeypatch.setattr(ParquetStore, "commit", slow)
    async with shop.app(flush_seconds=0.1) as app:
        await shop.send(app, [0])
        await until(lambda: figures(shop)["batch_factor"] == 2)
    assert "a batch may have 2 times its flush limits now" in caplog.text


async def test_pulls_wait_while_the_buffer_is_full_and_go_on_behind_it(shop: Shop) -> None:
    may_write = threading.Event()
    app = shop.app(max_buffer_bytes=4000, flush_rows=10**6)

    @shop.decorate
    def held(batch: pa.Table) -> pa.Table:
        assert may_write.wait(60)
        return batch

    async with app:
        await shop.send(app, range(100))
        await until(lambda: figures(shop)["paused_seconds_total"] > 0)
        # A pull that is under way may bring some more; what comes later waits at the broker.
        for first in range(100, 600, 50):
            await shop.send(app, range(first, first + 50))
        assert figures(shop)["buffer_limit_bytes"] == 4000
        assert shop.watch.held(shop.topic) < 600
        may_write.set()
        await shop.has(*range(600))
    assert len(list(shop.table.glob(f"{LOG}/*/*.json"))) > 1


async def test_a_batch_that_keeps_failing_is_given_up_and_read_again(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    app = shop.app(commit_retries=2, retry_backoff=(0.01, 0.02))
    shop.fails(OSError("first"), OSError("second"))
    async with app:
        await shop.send(app, range(3))
        await shop.has(*range(3))
    assert "OSError: second; after 2 attempts its queues are read again from the table" in caplog.text


async def test_the_pauses_between_attempts_are_those_that_were_given(shop: Shop) -> None:
    app, calls = shop.app(retry_backoff=(0.2, 0.3)), list[float]()

    @shop.decorate
    def failing(batch: pa.Table) -> pa.Table:
        calls.append(time.monotonic())
        if len(calls) < 4:
            raise OSError("away")
        return batch

    async with app:
        await shop.send(app, [1])
        await shop.has(1)
    pauses = [later - earlier for earlier, later in pairwise(calls)]
    assert len(pauses) == 3
    assert all(pause >= least for pause, least in zip(pauses, (0.2, 0.3, 0.3), strict=True))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"commit_retries": 0}, "commit_retries=0: give a whole number, 1 or more"),
        ({"retry_backoff": 5}, "retry_backoff= is two numbers: the first and the longest pause in seconds"),
        ({"retry_backoff": (2.0, 1.0)}, "two numbers: the first and the longest pause in seconds"),
        ({"max_buffer_bytes": 0}, "max_buffer_bytes=0: give bytes, 1 or more, or None"),
    ],
)
def test_efforts_that_cannot_be_made_are_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(SetupError) as caught:
        Shop("orders", Path("table")).app(**options)
    assert problem in caught.value.problem


def test_every_metric_is_on_the_page() -> None:
    page = (Path(__file__).parents[2] / "SINK.md").read_text()
    listed = set(re.findall(r"^\| `([\w.]+)` \| (\w+) \| (\w+) \| (.*) \|$", page, re.MULTILINE))
    found = metrics_of([], AppSnapshot(cache_limit_bytes=1, groups=()))
    assert {(each.name, each.kind, each.unit.strip("{}"), each.meaning) for each in found} <= listed
