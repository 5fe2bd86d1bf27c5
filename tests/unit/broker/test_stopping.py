"""A stop while a table is on its way to a slow disk."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from rocketapp.broker.core import Core
from rocketapp.broker.store import files
from rocketapp.broker.store.config_files import decode
from rocketapp.clock import SystemClock
from rocketapp.config.broker import BrokerConfig
from rocketapp.embedded.embedded import EmbeddedBroker
from rocketapp.model.event import unobserved
from tests.unit.broker.store.stores import record
from tests.unit.scripted import eventually


class SlowDisk:
    """A sync of the log waits from some moment on, until the broker that stops waits for it."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.is_slow = False
        self._has_begun, self._may_end, self._sync = threading.Event(), threading.Event(), files._sync_data
        patch.setattr(files, "_sync_data", self._slowly)

    def _slowly(self, number: int) -> None:
        if self.is_slow and threading.current_thread().name.startswith("rocketapp-broker-disk"):
            self._has_begun.set()
            assert self._may_end.wait(60)
        self._sync(number)

    async def syncs(self) -> None:
        """A sync has begun."""
        assert await asyncio.to_thread(self._has_begun.wait, 60)

    async def stop(self, broker: EmbeddedBroker, patch: pytest.MonkeyPatch) -> None:
        flusher = broker._broker._flusher  # type: ignore[union-attr]
        close = flusher.close

        def closed() -> None:
            self._may_end.set()
            close()

        patch.setattr(flusher, "close", closed)
        await broker.stop()


async def started(tmp_path: Path, **options: float) -> tuple[EmbeddedBroker, Core]:
    config = BrokerConfig(dir=str(tmp_path), listen="127.0.0.1:0", segment_bytes=1 << 20, **options)  # type: ignore[arg-type]
    broker = EmbeddedBroker(config=config, clock=SystemClock(), random=Random(1), observe=unobserved)
    await broker.start()
    return broker, broker._broker._core  # type: ignore[union-attr]


async def test_a_topic_whose_write_waits_for_a_sync_is_there_after_a_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = SlowDisk(monkeypatch)
    broker, core = await started(tmp_path, flush_interval=0.05)
    disk.is_slow = True
    core.store.append(record())
    await disk.syncs()
    broker.create_topic("orders")
    await eventually(lambda: not core.topics.dirty)
    await disk.stop(broker, monkeypatch)
    assert "orders" in decode((tmp_path / "config/topics.json").read_bytes())["topicConfigTable"]


async def test_offsets_whose_write_waits_for_a_sync_are_there_after_a_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = SlowDisk(monkeypatch)
    broker, core = await started(tmp_path, flush_interval=60.0, offsets_flush_interval=0.05)
    saving = broker._broker._saving  # type: ignore[union-attr]
    to_save = saving.offsets_to_save

    def appending() -> Callable[[], None] | None:
        save = to_save()
        if save is not None and not disk.is_slow:
            core.store.append(record())  # so that these offsets wait for the log
            disk.is_slow = True
        return save

    monkeypatch.setattr(saving, "offsets_to_save", appending)
    core.store.append(record())
    core.offsets.commit("billing", "T", 0, 1)
    await disk.syncs()
    await disk.stop(broker, monkeypatch)
    disk.is_slow = False
    again, core = await started(tmp_path)
    assert core.offsets.committed("billing", "T", 0) == 1
    await again.stop()
