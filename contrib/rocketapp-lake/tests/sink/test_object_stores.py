"""Delta tables in S3, by a server of it on loopback: the same suite, and no secret is told."""

from __future__ import annotations

import logging
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import boto3
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from sink_shop import Shop, until

from rocketapp import ConfigError, SetupError
from rocketapp_lake.conformance import LANE, GrowingSuite, Span, StoreSuite, commit_of, put, rows_of
from rocketapp_lake.delta import DeltaStore
from rocketapp_lake.errors import FencedError
from rocketapp_lake.settings import LakeConfig, storage_of

SECRET = "open-sesame"


class Bucket:
    """A table in it, read by Delta's library."""

    def __init__(self, endpoint: str, name: str) -> None:
        self.place = f"s3://{name}/lake/orders"
        self.storage = {
            "aws_endpoint_url": endpoint,
            "aws_allow_http": "true",
            "aws_region": "us-east-1",
            "aws_access_key_id": "shop",
            "aws_secret_access_key": SECRET,
        }

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


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """In a process of its own: the library waits for answers without giving this one a chance to give them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            end = time.monotonic() + 100
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), timeout=1).close()
                    break
                except OSError:
                    assert server.poll() is None and time.monotonic() < end
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()


@pytest.fixture
def table(endpoint: str, request: pytest.FixtureRequest) -> Bucket:
    name = f"shop{abs(hash(request.node.nodeid))}"
    keys = {"aws_access_key_id": "shop", "aws_secret_access_key": SECRET, "region_name": "us-east-1"}
    boto3.client("s3", endpoint_url=endpoint, **keys).create_bucket(Bucket=name)
    return Bucket(endpoint, name)


class TestDeltaInS3(StoreSuite, GrowingSuite):
    """The suites of all stores."""


@pytest.mark.parametrize("has_rows", [True, False])
def test_a_stale_owner_is_fenced(table: Bucket, has_rows: bool) -> None:
    put(table.store("one"), "a", 0)
    stale = table.store("one")
    head = stale.load()
    put(table.store("one"), "b", 1)
    with pytest.raises(FencedError):
        stale.commit(commit_of(head, "c", {LANE: Span(1, 2)}), rows_of(1) if has_rows else None)
    assert sorted(row["id"] for row in table.rows()) == [0, 1]


def test_positions_outlive_the_log(table: Bucket) -> None:
    put(table.store("one"), "a", 0, 1)
    delta = table.delta()
    for _ in range(3):
        delta.alter.set_table_properties({"delta.logRetentionDuration": "interval 0 seconds"})
    delta.create_checkpoint()
    delta.cleanup_metadata()
    assert dict(table.store("one").load().vector) == {LANE: 2}


async def test_a_topic_lands_in_a_bucket_and_no_secret_is_told(
    shop: Shop, table: Bucket, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    told = "[" + ", ".join(f"'{name}={value}'" for name, value in table.storage.items()) + "]"
    monkeypatch.setenv("ROCKETAPP_LAKE__STORAGE", told)
    async with shop.app(format="delta", table=table.place) as app:
        await shop.send(app, range(20))
        await until(lambda: len(table.rows()) == 20)
    assert sorted(row["id"] for row in table.rows()) == list(range(20))
    assert SECRET not in caplog.text + repr(table.store("one"))


def test_a_setting_of_a_store_that_cannot_be_read_is_named_without_its_value() -> None:
    with pytest.raises(ConfigError) as caught:
        storage_of(LakeConfig(storage=(SECRET,)))
    assert (str(caught.value).startswith("lake.storage[0]"), SECRET in str(caught.value)) == (True, False)
    assert SECRET not in repr(LakeConfig(storage=(SECRET,)))


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
