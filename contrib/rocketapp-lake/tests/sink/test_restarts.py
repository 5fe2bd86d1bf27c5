"""Brokers that are restarted in turn while a topic lands: nothing is lost, and nothing is there twice."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from sink_shop import Order, Watch, lake_plugin, until

from rocketapp import RocketApp, RocketAppError
from rocketapp.plugin import events
from tests.peers.loading import Loader
from tests.peers.pairs import TOPIC, Pair, embedded_pair


async def feed(app: RocketApp, sent: list[int], ended: asyncio.Event) -> None:
    for number in itertools.count():
        with suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), 0.05)
            return
        with suppress(RocketAppError):  # not stored, or perhaps stored
            await app.publish(TOPIC, Order(number, "x"))
            sent.append(number)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with embedded_pair(tmp_path) as pair:
        yield pair


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_a_rolling_restart_under_a_sink_loses_and_doubles_nothing(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers = pair.brokers
    monkeypatch.setenv("ROCKETAPP_CLIENT__NAME_SERVER", pair.name_server)
    monkeypatch.setenv("ROCKETAPP_CONSUMER__CRASH_DIR", "")
    for broker in brokers:
        loader = Loader(broker.broker_address)
        loader.make_topic(TOPIC, 2)
        loader.close()
    table, watch = tmp_path / "table", Watch()
    app: Any = RocketApp("shop", plugins=[*lake_plugin(), watch])
    app.sink(TOPIC, table=table, schema=Order, flush_seconds=0.5)

    def rows(columns: list[str]) -> list[dict[str, Any]]:
        if not DeltaTable.is_deltatable(str(table)):
            return []
        found: list[dict[str, Any]] = DeltaTable(table).to_pyarrow_table(columns=columns).to_pylist()
        return found

    async def goes_on() -> None:
        count = len(rows(["id"]))
        await until(lambda: len(rows(["id"])) > count + 20, every=0.5)

    sent: list[int] = []
    ended = asyncio.Event()
    async with app, asyncio.TaskGroup() as tasks:
        feeding = tasks.create_task(feed(app, sent, ended))
        await goes_on()
        for broker in brokers:
            await asyncio.to_thread(broker.stop)
            await asyncio.to_thread(broker.start_again)
            await goes_on()
        ended.set()
        await feeding
        await until(lambda: {*sent} <= {row["id"] for row in rows(["id"])}, every=0.5)
    places = rows(["_rmq_broker", "_rmq_queue", "_rmq_offset"])
    assert len({tuple(place.values()) for place in places}) == len(places)
    assert {place["_rmq_broker"] for place in places} == {broker.broker_name for broker in brokers}
    failures = [event.error for event in watch.events if isinstance(event, events.LoopFailed)]
    assert not [error for error in failures if error.startswith("plugin ")], failures
