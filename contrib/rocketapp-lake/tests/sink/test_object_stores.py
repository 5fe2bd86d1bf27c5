"""Delta tables in S3, by a server of it on loopback: the same suite, and no secret is told."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

import pytest
import s3
from click.testing import CliRunner
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from sink_shop import Shop, until
from store_suite import QUEUE, Span, StoreSuite, commit_of, put, rows_of

from rocketapp import ConfigError, SetupError
from rocketapp_lake.commands import command
from rocketapp_lake.delta import DeltaStore
from rocketapp_lake.errors import FencedError
from rocketapp_lake.settings import LakeConfig, storage_of


class Place:
    """A table in the bucket, read by Delta's library."""

    def __init__(self, endpoint: str, name: str) -> None:
        self.place = f"s3://{s3.BUCKET}/{name}/orders"
        self.storage = s3.storage(endpoint)

    def store(self, sink: str) -> DeltaStore:
        return DeltaStore(self.place, sink, storage=self.storage)

    def rows(self) -> Sequence[Mapping[str, Any]]:
        try:
            found: list[dict[str, Any]] = self.delta().to_pyarrow_table().to_pylist()
        except TableNotFoundError:
            return []
        return found

    def delta(self) -> DeltaTable:
        return DeltaTable(self.place, storage_options=self.storage)


@pytest.fixture
def table(endpoint: str) -> Place:
    return Place(endpoint, uuid4().hex)


class TestDeltaInS3(StoreSuite):
    """The suites of all stores."""


@pytest.mark.parametrize("has_rows", [True, False])
def test_a_stale_owner_is_fenced(table: Place, has_rows: bool) -> None:
    put(table.store("one"), "a", 0)
    stale = table.store("one")
    head = stale.load()
    put(table.store("one"), "b", 1)
    with pytest.raises(FencedError):
        stale.commit(commit_of(head, "c", {QUEUE: Span(1, 2)}), rows_of(1) if has_rows else None)
    assert sorted(row["id"] for row in table.rows()) == [0, 1]


def test_positions_outlive_the_log(table: Place) -> None:
    put(table.store("one"), "a", 0, 1)
    delta = table.delta()
    for _ in range(3):
        delta.alter.set_table_properties({"delta.logRetentionDuration": "interval 0 seconds"})
    delta.create_checkpoint()
    delta.cleanup_metadata()
    assert dict(table.store("one").load().vector) == {QUEUE: 2}


async def test_a_topic_lands_in_a_bucket_and_no_secret_is_told(
    shop: Shop, table: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("ROCKETAPP_LAKE__STORAGE", s3.as_setting(table.storage))
    async with shop.app(format="delta", table=table.place) as app:
        await shop.send(app, range(20))
        await until(lambda: len(table.rows()) == 20)
    assert sorted(row["id"] for row in table.rows()) == list(range(20))
    assert s3.SECRET not in caplog.text + repr(table.store("one"))


def test_the_commands_read_the_options_of_stores_that_apps_read(table: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    put(table.store("one"), "a", 0, 1)
    monkeypatch.setenv("ROCKETAPP_LAKE__STORAGE", s3.as_setting(table.storage))
    shown = CliRunner().invoke(command, ["show", table.place])
    assert (shown.exit_code, "next #2" in shown.output) == (0, True), shown.output
    monkeypatch.setenv("ROCKETAPP_LAKE__STORAGE", s3.SECRET)
    refused = CliRunner().invoke(command, ["show", table.place])
    assert (refused.exit_code, "lake.storage[0]" in refused.output) == (1, True), refused.output
    assert s3.SECRET not in refused.output


def test_a_setting_of_a_store_that_cannot_be_read_is_named_without_its_value() -> None:
    with pytest.raises(ConfigError) as caught:
        storage_of(LakeConfig(storage=(s3.SECRET,)))
    assert (str(caught.value).startswith("lake.storage[0]"), s3.SECRET in str(caught.value)) == (True, False)
    assert s3.SECRET not in repr(LakeConfig(storage=(s3.SECRET,)))


@pytest.mark.parametrize(
    ("place", "format", "problem"),
    [
        ("hdfs://name/orders", "delta", "give a path, or the URL of one of s3, s3a, abfs, abfss, az, gs"),
        ("s3:///", "delta", "give a path, or the URL of one of s3"),
        ("s3://shop/orders", "parquet", "or format='delta'"),
    ],
)
def test_other_places_are_refused_where_the_sink_is_declared(place: str, format: str, problem: str, shop: Shop) -> None:
    with pytest.raises(SetupError, match=problem):
        shop.app(table=place, format=format)


@pytest.mark.parametrize("place", ["s3://shop/orders", "abfss://lake@shop.dfs.core.windows.net/orders", "gs://a/b"])
def test_places_of_object_stores_are_taken(place: str, shop: Shop) -> None:
    assert shop.app(table=place, format="delta").name == "shop"
