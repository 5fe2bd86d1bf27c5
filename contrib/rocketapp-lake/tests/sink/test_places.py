"""A relative path is the one that it was when it was written, wherever the program goes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from sink_shop import all_rows, by_arrow
from store_suite import put

from rocketapp_lake.declared import Sink
from rocketapp_lake.delta import DeltaStore
from rocketapp_lake.formats import FORMATS
from rocketapp_lake.parquet import ParquetStore
from rocketapp_lake.settings import LakeConfig
from rocketapp_lake.store import Store

STORES: dict[str, Callable[[], Store]] = {
    "parquet": lambda: ParquetStore("table", "one", write=by_arrow),
    "delta": lambda: DeltaStore("table", "one"),
}


@pytest.mark.parametrize("open_store", STORES.values(), ids=STORES)
def test_a_store_stays_where_it_was_opened(
    open_store: Callable[[], Store], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    store = open_store()
    put(store, "a", 0)
    monkeypatch.chdir("elsewhere")
    put(store, "c", 1)
    assert sorted(row["id"] for row in all_rows(tmp_path / "table")) == [0, 1]
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize("format", ["parquet", "delta"])
def test_a_store_is_opened_where_its_sink_was_declared(
    format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    sink = Sink.of("shop", "orders", {"table": "table", "format": format, "name": "one"}, "here")
    monkeypatch.chdir("elsewhere")
    put(FORMATS[format].new_store(sink, LakeConfig(), None), "a", 0)
    assert len(list((tmp_path / "table").glob("*.parquet"))) == 1
