"""A roll-out in which two versions of an app differ in what is bad: each message is in one table, once."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest
from sink_shop import Landing, Order, all_rows, by_arrow, until

from rocketapp import Message, MessageQueue
from rocketapp.wire.layout import Record, encode_record
from rocketapp.wire.stored_records import stored_records
from rocketapp_lake.bad_rows import EARLIER, BadTable
from rocketapp_lake.batches import Batch
from rocketapp_lake.committer import Attempt, Done
from rocketapp_lake.delta import DeltaStore
from rocketapp_lake.errors import SinkError
from rocketapp_lake.iceberg import IcebergStore
from rocketapp_lake.options import FILES
from rocketapp_lake.parquet import ParquetStore
from rocketapp_lake.positions import Span
from rocketapp_lake.rows import Rows
from rocketapp_lake.typed_columns import typed_columns

STORES: dict[str, Any] = {"parquet": ParquetStore, "delta": DeltaStore, "iceberg": IcebergStore}


class Old(msgspec.Struct):
    """It calls 3 and 4 bad."""

    id: Annotated[int, msgspec.Meta(lt=3)]
    item: str


class New(msgspec.Struct):
    """It calls 0 and 4 bad."""

    id: Annotated[int, msgspec.Meta(ge=1, lt=4)]
    item: str


class Tables:
    """Which messages are in which of the two tables."""

    def __init__(self, landing: Landing, format: str) -> None:
        self._landing, self._format = landing, format

    def good(self) -> list[int]:
        return sorted(row["id"] for row in self._landing.rows(self._format))

    def bad(self) -> dict[int, str]:
        rows = self._landing.rows(self._format, "orders_bad")
        assert len({row["_rmq_offset"] for row in rows}) == len(rows)
        return {row["_rmq_offset"]: row["_rmq_problem"] for row in rows}


def only_the_first_commit_is_made(patch: pytest.MonkeyPatch, store: Any) -> None:
    """Of all stores of this kind together."""
    commit, made = store.commit, list[str]()

    def failing(self: Any, one: Any, rows: Any) -> None:
        if made:
            raise SinkError("refused")  # a stop does not wait for what does not pass by itself
        commit(self, one, rows)
        made.append(one.batch)

    patch.setattr(store, "commit", failing)


@pytest.mark.parametrize("format", FILES)
async def test_an_owner_that_dies_between_the_commits_of_its_tables_leaves_no_row_to_chance(
    format: str, landing: Landing, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables, shop = Tables(landing, format), landing.shop
    own = {"bad_rows": "table", "bad_rows_max_ratio": 1.0, "flush_rows": 5, "flush_seconds": 3600.0}
    with monkeypatch.context() as patch:
        only_the_first_commit_is_made(patch, STORES[format])
        async with landing.app(format, schema=Old, **own) as app:
            await app.publish_many(shop.topic, [Order(number, "x") for number in range(5)], order_key="one")
            await until(lambda: bool(shop.watch.reasons()))
    assert bool(tables.good()) != bool(tables.bad())
    async with landing.app(format, schema=New, **{**own, "flush_seconds": 0.2}):
        await until(lambda: len(tables.good()) + len(tables.bad()) >= 5 and shop.watch.held(shop.topic) == 0)
    assert sorted([*tables.good(), *tables.bad()]) == [0, 1, 2, 3, 4]


class Size(msgspec.Struct):
    """A row of the owners below."""

    size: int


class Owner:
    """A process with its own opinion of what is bad."""

    def __init__(self, path: Path, bad: Container[int]) -> None:
        def read(message: Message) -> Size:
            if message.offset in bad:
                raise ValueError(f"bad {message.offset}")
            return Size(message.offset)

        self.store = ParquetStore(path / "t", "one", write=by_arrow)
        self._rows = Rows(typed_columns(Size), read, "table", lambda: None)
        self._bad = BadTable(
            lambda: ParquetStore(path / "t_bad", "one/bad", write=by_arrow), "one/bad", self._rows, lambda: 1.0
        )

    def owed(self) -> list[int]:
        return self._bad.owed(QUEUE, self.store.load())

    def commits(self, batch: Batch) -> Done:
        make = self._rows.made
        return Attempt(self.store, "one", batch, make=make, now=lambda: 1.0, names_bad=True).run()

    def follows(self, batch: Batch, done: Done) -> None:
        self._bad.follow(batch, done.head, done.bad)


QUEUE = MessageQueue("orders", "broker-a", 0)


def batch_of(start: int, end: int) -> Batch:
    records = [Record(topic="orders", body=b"x", queue_offset=at, stored_ms=1) for at in range(start, end)]
    found = stored_records(b"".join(map(encode_record, records)), QUEUE)
    assert found is not None
    return Batch({QUEUE: [found]}, {QUEUE: Span(start, end)})


def bad_in(path: Path) -> dict[int, str]:
    rows = all_rows(path / "t_bad")
    assert len({row["_rmq_offset"] for row in rows}) == len(rows)
    return {row["_rmq_offset"]: row["_rmq_problem"] for row in rows}


def test_the_commit_decides_between_an_owner_that_is_frozen_behind_it_and_the_next_one(tmp_path: Path) -> None:
    old, new = Owner(tmp_path, {3, 4}), Owner(tmp_path, {0, 4, 5})
    first, second = batch_of(0, 5), batch_of(0, 6)
    frozen = old.commits(first)
    assert new.owed() == [3, 4]
    new.follows(second, new.commits(second))
    assert bad_in(tmp_path) == {3: EARLIER, 4: "bad 4", 5: "bad 5"}
    old.follows(first, frozen)
    assert len(bad_in(tmp_path)) == 3
    assert sorted(row["size"] for row in all_rows(tmp_path / "t")) == [0, 1, 2]
    assert new.owed() == []


def test_bad_rows_that_have_expired_before_they_were_put_aside_are_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    owner = Owner(tmp_path, {0, 3})
    owner.commits(batch_of(0, 5))
    left = replace(batch_of(2, 5), spans={QUEUE: Span(0, 5)})
    owner.follows(left, owner.commits(left))
    assert bad_in(tmp_path) == {3: "bad 3"}
    assert "sink one/bad: 1 bad rows are lost: their messages have expired" in caplog.text
    assert owner.owed() == []
