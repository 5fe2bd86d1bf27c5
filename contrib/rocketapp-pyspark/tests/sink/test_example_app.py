"""The example app has a table that Spark writes."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from sink_shop import Shop, until

from example_app.model import PAYMENTS, Order, Payment

pytestmark = pytest.mark.timeout(300)


def files(folder: Path) -> list[pq.ParquetFile]:
    return [pq.ParquetFile(file) for file in folder.glob("lake/payments/*.parquet")]


async def test_a_payment_of_the_example_app_is_a_row_of_a_file_of_spark(
    shop: Shop, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "example_app.lake", raising=False)
    app: Any = import_module("example_app.lake").app
    async with app:
        await app.publish(PAYMENTS, Payment(order=Order("1", "Ada", "tea", 2, "4711"), cents=700))
        await until(lambda: bool(files(tmp_path)))
    (file,) = files(tmp_path)
    assert file.metadata.created_by.startswith("parquet-mr")
    (row,) = file.read().to_pylist()
    assert (row["cents"], row["order"]["customer"]) == (700, "Ada")
