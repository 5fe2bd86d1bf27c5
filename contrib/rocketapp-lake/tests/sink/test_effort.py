"""Sinks whose table is slow or away: batches grow, attempts end, pulls wait, and figures tell it."""

from __future__ import annotations

import json
import os
import re
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from prometheus_client.parser import text_string_to_metric_families
from sink_shop import Shop, by_arrow, until

from rocketapp.plugin import AppSnapshot
from rocketapp.plugins.prometheus import exposition
from rocketapp_lake.batches import Buffer
from rocketapp_lake.counts import metrics_of
from rocketapp_lake.parquet import LOG, ParquetStore
from rocketapp_lake.staging import STAGING


def test_a_full_buffer_says_so_until_a_share_is_free_and_counts_the_time() -> None:
    now = [10.0]
    buffer = Buffer(100, lambda: now[0])
    buffer.holds(99)
    assert buffer.is_full(1.0) is None
    buffer.holds(120)
    assert buffer.is_full(1.0) == "the sink holds 120 bytes, limit 100: half of consumer.cache_max_bytes"
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
    commits = list(ParquetStore(shop.table, "").commits())
    assert (found["rows_total"], found["bad_rows_total"], found["commits_total"]) == (10, 1, len(commits))
    assert 10 * 8 < found["written_bytes_total"] < 10_000
    assert 0 < found["commit_time_seconds_total"] < 200
    assert (found["lag"], found["buffer_usage_bytes"]) == (0, 0)
    assert found["paused_seconds_total"] == 0
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
            other = ParquetStore(store.path, store.sink, write=by_arrow)
            commit_to(other, replace(commit, batch="other"), None)
        commit_to(store, commit, rows)

    monkeypatch.setattr(ParquetStore, "commit", late)
    async with shop.app(flush_seconds=0.1) as app:
        await shop.send(app, range(3))
        await until(lambda: figures(shop)["fences_lost_total"] == 1)
        assert figures(shop)["replays_trimmed_total"] == 3


async def test_what_comes_while_a_commit_is_slow_is_one_batch_behind_it(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "rocketapp.lake")
    commit_to, is_committing, may_end = ParquetStore.commit, threading.Event(), threading.Event()

    def slow(store: ParquetStore, commit: Any, rows: Any) -> None:
        commit_to(store, commit, rows)
        is_committing.set()
        assert may_end.wait(60)

    monkeypatch.setattr(ParquetStore, "commit", slow)
    async with shop.app(flush_seconds=0.1, flush_rows=2) as app:
        await shop.send(app, [0])
        await until(is_committing.is_set)
        await shop.send(app, range(1, 8))
        await until(lambda: shop.watch.held(shop.topic) == 8)
        may_end.set()
        await shop.has(*range(8))
    assert [vars(record)["rows"] for record in caplog.records if "sequence" in vars(record)] == [1, 7]


async def test_pulls_wait_while_the_buffer_is_full_and_go_on_behind_it(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_write = threading.Event()
    monkeypatch.setenv("ROCKETAPP_CONSUMER__CACHE_MAX_BYTES", "8000")
    app = shop.app(flush_rows=10**6)

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
    shop: Shop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("rocketapp_lake.writer.MOST_ATTEMPTS", 2)
    app = shop.app()
    shop.fails(OSError("first"), OSError("second"))
    async with app:
        await shop.send(app, range(3))
        await shop.has(*range(3))
    assert "OSError: second; after 2 attempts its queues are read again from the table" in caplog.text


@pytest.mark.parametrize("format", ["parquet", "delta"])
def test_the_cost_of_a_commit_is_measured_for_the_page(format: str, capsys: pytest.CaptureFixture[str]) -> None:
    from commit_cost import main

    with patch.dict(os.environ):
        assert main(["--format", format, "--commits", "5", "--queues", "2"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["format"], found["rows"], found["all"] > 0) == (format, 5_000, True)


def test_every_metric_is_on_the_page() -> None:
    page = (Path(__file__).parents[2] / "SINK.md").read_text()
    listed = set(re.findall(r"^\| `([\w.]+)` \| (\w+) \| (\w+) \| (.*) \|$", page, re.MULTILINE))
    found = metrics_of([], AppSnapshot(cache_limit_bytes=1, groups=()))
    assert {(each.name, each.kind, each.unit.strip("{}"), each.meaning) for each in found} <= listed
