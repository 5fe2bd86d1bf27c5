"""Whole apps with a sink, on a broker of the tests: topics land in a directory of Parquet files."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from asyncio.subprocess import STDOUT
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from sink_shop import Order, Shop, by_arrow, commits_fail, lake_plugin, until

from rocketapp import RocketApp, SetupError
from rocketapp.testing.broker import serving
from rocketapp_lake import writer
from rocketapp_lake.parquet import LOG, ParquetStore
from rocketapp_lake.staging import STAGING


async def test_a_topic_lands_in_a_table_and_each_row_says_where_it_comes_from(shop: Shop) -> None:
    async with shop.app(format="parquet") as app:
        await shop.send(app, range(20))
        await shop.has(*range(20))
    found = shop.rows()
    assert {(row["id"], row["item"]) for row in found} == {(number, f"item {number}") for number in range(20)}
    places = {(row["_rmq_topic"], row["_rmq_broker"], row["_rmq_queue"], row["_rmq_offset"]) for row in found}
    assert len(places) == 20
    assert {row["_rmq_topic"] for row in found} == {shop.topic}
    assert all(row["_rmq_store_ts"].utcoffset().total_seconds() == 0 for row in found)


async def test_files_are_sorted_as_the_sink_says(shop: Shop) -> None:
    options = {"format": "parquet", "sort_by": "id", "flush_rows": 10}
    async with shop.app(**options, flush_seconds=3600.0) as app:
        await shop.send(app, [7, 3, 9, 1, 5, 8, 2, 6, 4, 0])
        await shop.has(*range(10))
    (file,) = shop.table.glob("*.parquet")
    assert pq.ParquetFile(file).read()["id"].to_pylist() == list(range(10))


async def test_what_is_held_is_written_as_the_app_stops_and_the_next_run_goes_on_behind_it(shop: Shop) -> None:
    for run in range(2):
        async with shop.app(flush_seconds=3600.0) as app:
            await shop.send(app, range(10 * run, 10 * run + 10))
            await until(lambda: shop.watch.held(shop.topic) == 10)
            assert len(shop.rows()) == 10 * run
        assert shop.ids() == list(range(10 * run + 10))


async def test_a_batch_is_cut_at_its_limit_of_rows(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "rocketapp.lake")
    async with shop.app(flush_seconds=3600.0, flush_rows=5) as app:
        await shop.send(app, range(5))
        await shop.has(*range(5))
    (told,) = [vars(record) for record in caplog.records if "commit" in record.getMessage()]
    assert (told["reason"], told["rows"], told["sequence"]) == ("rows", 5, 1)
    assert 0 < told["rows_seconds"] + told["commit_seconds"] <= told["seconds"]


async def test_small_files_are_put_together_while_the_app_runs(shop: Shop) -> None:
    def delta() -> DeltaTable | None:
        return DeltaTable(shop.table) if DeltaTable.is_deltatable(str(shop.table)) else None

    async with shop.app(format="delta", flush_rows=1, compact_every=0.3) as app:
        for number in range(6):
            await shop.send(app, [number])
        await until(lambda: (table := delta()) is not None and table.count() == 6 and len(table.file_uris()) == 1)
    assert sorted(DeltaTable(shop.table).to_pyarrow_table()["id"].to_pylist()) == list(range(6))


def test_a_directory_is_not_compacted_and_says_what_does_it_instead(shop: Shop) -> None:
    with pytest.raises(SetupError, match="compact_every= does nothing with format='parquet': larger batches"):
        shop.app(format="parquet", compact_every=5)


async def test_a_topic_that_was_created_anew_is_a_reason_to_stand_still_or_a_new_epoch(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with shop.app() as app:
        for number in range(40):  # one after the other: every queue has some of them
            await shop.send(app, [number])
        await shop.has(*range(40))
    with serving() as empty:
        monkeypatch.setenv("ROCKETAPP_CLIENT__NAME_SERVER", empty)
        async with shop.app() as app:
            for number in range(40, 48):
                await shop.send(app, [number])
            await until(lambda: bool(shop.watch.reasons()))
            assert any("the topic was created anew, or lost messages" in one for one in shop.watch.reasons())
        assert shop.ids() == list(range(40))
        async with shop.app(on_offset_reset="new_epoch") as app:
            await shop.send(app, [48])
            await shop.has(*range(49))


APP = """
from rocketapp import RocketApp

app = RocketApp("shop")
app.sink({topic!r}, table={table!r}, until="now", flush_seconds=0.2)
"""


async def test_a_bounded_sink_ends_while_messages_still_come_and_says_its_rows(shop: Shop, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP.format(topic=shop.topic, table=str(shop.table)))
    command = [sys.executable, "-m", "rocketapp", "run", "app:app", "--exit-when-idle", "0.3"]
    async with RocketApp("producer", plugins=lake_plugin()) as producer:
        await shop.send(producer, range(50))
        with (tmp_path / "log").open("wb") as log:
            run = await asyncio.create_subprocess_exec(*command, cwd=tmp_path, stdout=log, stderr=STDOUT)
        sent = 50
        while run.returncode is None:
            await shop.send(producer, range(sent, sent + 10))
            sent += 10
            with suppress(TimeoutError):
                await asyncio.wait_for(run.wait(), 0.01)
    text = (tmp_path / "log").read_text()
    landed = DeltaTable(shop.table).count()
    assert run.returncode == 0, text
    assert 50 <= landed <= sent
    assert f"sink shop/{shop.topic}: ends with {landed} rows of " in text


async def test_a_function_transforms_the_batch(shop: Shop) -> None:
    app = shop.app()

    @shop.decorate
    def even(batch: pa.Table) -> pa.Table:
        return batch.filter(pc.equal(pc.bit_wise_and(batch["id"], 1), 0)).select(["id", "_rmq_offset"])

    async with app:
        await shop.send(app, range(6))
        await shop.has(0, 2, 4)
    assert set(shop.rows()[0]) == {"id", "_rmq_offset"}


async def test_a_function_that_wants_nothing_moves_the_positions_all_the_same(shop: Shop) -> None:
    app = shop.app()
    shop.decorate(lambda batch: None)
    async with app:
        await shop.send(app, range(6))
        await until(lambda: bool(list(shop.table.glob(f"{LOG}/*/*.json"))))
        await until(lambda: shop.watch.held(shop.topic) == 0)
    async with shop.app() as app:
        await shop.send(app, [6])
        await shop.has(6)
    assert [row["id"] for row in shop.rows()] == [6]


async def test_the_table_says_where_a_queue_begins_whatever_the_broker_knows(shop: Shop) -> None:
    async with shop.app() as app:
        await shop.send(app, range(8))
        await shop.has(*range(8))
    # A group without offsets would begin at the first message, and store all of them again.
    async with shop.app(group="another") as app:
        await shop.send(app, [8])
        await shop.has(*range(9))
    assert sorted(row["id"] for row in shop.rows()) == list(range(9))


async def test_a_batch_that_fails_stands_still_with_a_reason_and_goes_through_later(shop: Shop) -> None:
    app = shop.app()
    shop.fails(OSError("no space left"))
    async with app:
        await shop.send(app, range(3))
        await shop.has(*range(3))
        (reason,) = shop.watch.reasons()
    assert reason.startswith(f"sink shop/{shop.topic} cannot write its batch: ")
    assert reason.endswith("OSError: no space left")


async def test_a_body_of_another_shape_stops_its_sink_and_names_its_place(shop: Shop) -> None:
    async with shop.app() as app:
        await app.publish(shop.topic, '{"id": "x"}')
        await until(lambda: bool(shop.watch.reasons()))
        (reason,) = shop.watch.reasons()
    assert "#0 cannot be decoded: field id: Expected `int`, got `str`: bad_rows= of the sink says what else" in reason
    assert shop.rows() == []


async def test_a_body_of_another_shape_is_a_row_with_its_problem_where_that_is_wanted(shop: Shop) -> None:
    async with shop.app(bad_rows="column") as app:
        await app.publish(shop.topic, '{"id": "x"}')
        await shop.send(app, [1])
        await until(lambda: len(shop.rows()) == 2)
    bad, good = sorted(shop.rows(), key=lambda row: row["id"] or 0)
    assert (bad["id"], bad["_rmq_body"]) == (None, b'{"id": "x"}')
    assert bad["_rmq_problem"] == "field id: Expected `int`, got `str`"
    assert (good["id"], good["_rmq_problem"]) == (1, None)


async def test_bad_bodies_go_into_a_table_of_their_own_once(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    app = shop.app(bad_rows="table")
    commits_fail(monkeypatch, OSError("no space left"), 1)
    async with app:
        await shop.send(app, [1])
        await app.publish(shop.topic, b"{")
        await shop.send(app, [2])
        await shop.has(1, 2)
    bad = Shop(shop.topic, shop.table.with_name("table_bad")).rows()
    assert [(row["_rmq_body"], row["_rmq_topic"]) for row in bad] == [(b"{", shop.topic)]
    assert bad[0]["_rmq_problem"] == "Input data was truncated"
    # A batch with bad rows behind others without: what is skipped makes no gap.
    async with shop.app(bad_rows="table") as app:
        await shop.send(app, [3])
        await shop.has(1, 2, 3)
        await app.publish(shop.topic, b"[")
        await shop.send(app, [4])
        await shop.has(1, 2, 3, 4)
    assert sorted(row["_rmq_body"] for row in Shop(shop.topic, shop.table.with_name("table_bad")).rows()) == [
        b"[",
        b"{",
    ]


async def test_without_a_type_the_bodies_are_stored(shop: Shop) -> None:
    async with shop.app(schema=None) as app:
        await app.publish(shop.topic, b"\x00\xff", tag="raw", keys=["a", "b"])
        await until(lambda: len(shop.rows()) == 1)
    (row,) = shop.rows()
    assert (row["body"], row["tag"], row["keys"]) == (b"\x00\xff", "raw", "a b")


async def test_other_handlers_of_the_topic_go_on_beside_the_sink(shop: Shop) -> None:
    app, seen = shop.app(), []

    @app.subscribe(shop.topic, start="first")
    async def handle(order: Order) -> None:
        seen.append(order.id)

    async with app:
        await shop.send(app, range(5))
        await shop.has(*range(5))
        await until(lambda: len(seen) >= 5)
    assert sorted(seen) == list(range(5))


async def test_queues_of_which_only_other_tags_come_are_moved_on_as_well(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "IDLE", 0.1)
    monkeypatch.setenv("ROCKETAPP_CONSUMER__LONG_POLL", "1")  # nothing that comes ends a pull

    def positions() -> int:
        return sum(ParquetStore(shop.table, f"shop/{shop.topic}", write=by_arrow).load().vector.values())

    async with shop.app(tags="rare") as app:
        for number in range(40):  # one after the other: every queue has some of them
            await app.publish(shop.topic, Order(number, "x"), tag="common")
        await app.publish(shop.topic, Order(40, "x"), tag="rare")
        await shop.has(40)
        await until(lambda: positions() == 41)
        for number in range(41, 50):
            await app.publish(shop.topic, Order(number, "x"), tag="common")
        await until(lambda: positions() == 50)
    assert shop.ids() == [40]


async def test_what_was_never_published_is_looked_for_again_and_again(shop: Shop) -> None:
    async with shop.app() as app:
        for number in range(2):
            left_over = shop.table / STAGING / f"batch{number}"
            left_over.mkdir(parents=True)
            os.utime(left_over, (0, 0))
            await shop.send(app, [number])
            await until(lambda: not left_over.exists())  # noqa: B023 - it is awaited here
    assert shop.ids() == [0, 1]


async def test_two_apps_share_the_queues_of_a_topic(shop: Shop) -> None:
    one, other = shop.app(), shop.app()
    async with one:
        await shop.send(one, range(40))
        async with other:
            await shop.send(one, range(40, 80))
            await shop.has(*range(80))
        await shop.send(one, range(80, 90))
        await shop.has(*range(90))
    assert sorted(row["id"] for row in shop.rows()) == list(range(90))
