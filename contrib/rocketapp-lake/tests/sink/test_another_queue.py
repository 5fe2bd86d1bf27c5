"""A queue of the same name that is not the one that was read: nothing of it is passed over in silence."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from sink_shop import Landing, Shop, by_arrow, lake_plugin, until

from rocketapp import RocketApp
from rocketapp.testing.broker import serving
from rocketapp_lake.options import FILES
from rocketapp_lake.parquet import ParquetStore

OLD, NEW = range(100), range(100, 400)


async def send(shop: Shop, app: Any, numbers: range) -> None:
    for number in numbers:  # one after the other: every queue has some of them
        await shop.send(app, [number])


@pytest.mark.timeout(300)
@pytest.mark.parametrize("format", [*FILES, "sql"])
async def test_of_a_fresh_broker_that_has_more_messages_than_the_old_one_none_is_lost(
    format: str, shop: Shop, landing: Landing, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ids() -> list[int]:
        return sorted(row["id"] for row in landing.rows(format))

    async with landing.app(format) as app:
        await send(shop, app, OLD)
        await until(lambda: ids() == list(OLD))
    with serving() as fresh:
        monkeypatch.setenv("ROCKETAPP_CLIENT__NAME_SERVER", fresh)
        async with RocketApp("shop", plugins=lake_plugin()) as app:
            await send(shop, app, NEW)
        async with landing.app(format) as app:
            await until(lambda: len(shop.watch.reasons()) >= 4)
            assert all("is another queue" in reason for reason in shop.watch.reasons()), shop.watch.reasons()
            missing = re.findall(r"(\d+) messages below that were never stored", " ".join(shop.watch.reasons()))
            assert sum(map(int, missing)) == len(OLD)  # of the new ones, as many as the table has of the old ones
        assert ids() == list(OLD)
        async with landing.app(format, on_offset_reset="new_epoch"):
            await until(lambda: ids() == [*OLD, *NEW])


async def test_a_queue_is_known_again_by_the_last_message_that_was_read_also_if_it_has_no_row(
    shop: Shop, landing: Landing, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("rocketapp_lake.writer.IDLE", 0.1)
    monkeypatch.setenv("ROCKETAPP_CONSUMER__LONG_POLL", "1")  # nothing that comes ends a pull
    async with landing.app("parquet", tags="wanted") as app:
        await send(shop, app, OLD)
        store = ParquetStore(tmp_path / "orders", f"shop/{shop.topic}", write=by_arrow)
        await until(lambda: sum(store.load().vector.values()) == len(OLD))
    assert shop.rows() == []
    with serving() as fresh:
        monkeypatch.setenv("ROCKETAPP_CLIENT__NAME_SERVER", fresh)
        async with RocketApp("shop", plugins=lake_plugin()) as app:
            await send(shop, app, NEW)
        async with landing.app("parquet", tags="wanted"):
            await until(lambda: len(shop.watch.reasons()) >= 4)
            assert all("is another queue" in reason for reason in shop.watch.reasons()), shop.watch.reasons()
