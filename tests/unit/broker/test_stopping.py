"""A stop while a table is on its way to a slow disk."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from rocketapp.broker.store.config_files import decode
from rocketapp.broker.store.files import DirectoryFiles, File
from rocketapp.wire.codes import RequestCode
from rocketapp.wire.requests.offsets import CommitRequest, QueryOffsetRequest
from tests.unit.broker.asking import Running


class SlowDisk(DirectoryFiles):
    """From some moment on each sync of the log waits until it may end; a broker that stops waits for it."""

    def __init__(self, path: Path, patch: pytest.MonkeyPatch) -> None:
        super().__init__(str(path))
        self.is_slow = False
        self.begun, self.may_end = threading.Semaphore(0), threading.Semaphore(0)
        shutdown = ThreadPoolExecutor.shutdown

        def last(threads: ThreadPoolExecutor, *args: Any, **options: Any) -> None:
            self.is_slow = False
            self.may_end.release()
            shutdown(threads, *args, **options)

        patch.setattr(ThreadPoolExecutor, "shutdown", last)

    def open(self, path: str, *, create: bool = False) -> File:
        file = super().open(path, create=create)
        return _SlowFile(file, self) if path.startswith("commitlog/") else file  # type: ignore[return-value]

    async def syncs(self) -> None:
        """One more sync has begun."""
        assert await asyncio.to_thread(self.begun.acquire, timeout=60)


class _SlowFile:
    def __init__(self, file: File, disk: SlowDisk) -> None:
        self._file, self._disk = file, disk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def sync(self) -> None:
        if self._disk.is_slow:
            self._disk.begun.release()
            assert self._disk.may_end.acquire(timeout=60)
        self._file.sync()


def test_a_topic_whose_write_waits_for_a_sync_is_there_after_a_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        disk = SlowDisk(tmp_path, monkeypatch)
        broker = Running(disk, flush_interval=0.05)  # type: ignore[arg-type]
        await broker.start()
        client = await broker.client()
        await client.send("others")
        disk.is_slow = True
        await client.send("others")
        await disk.syncs()
        broker.broker.running.create_topic("orders")
        for _ in range(10):  # no answer comes before its write, which begins to wait
            await asyncio.sleep(0)
        await broker.broker.stop()
        assert "orders" in decode((tmp_path / "config/topics.json").read_bytes())["topicConfigTable"]

    asyncio.run(story())


def test_offsets_whose_write_waits_for_a_sync_are_there_after_a_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        disk = SlowDisk(tmp_path, monkeypatch)
        broker = Running(disk, flush_interval=60.0, offsets_flush_interval=0.05)  # type: ignore[arg-type]
        await broker.start()
        client = await broker.client()
        await client.send("orders")
        await client.heartbeat("billing", "orders")  # once it knows the group, no answer waits for the disk
        disk.is_slow = True
        await client.send("orders")
        await disk.syncs()
        await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, CommitRequest("billing", "orders", 0, 1).to_fields())
        await client.send("orders")  # so that these offsets wait for the log once more
        disk.may_end.release()
        await disk.syncs()
        await broker.broker.stop()
        again = Running(DirectoryFiles(str(tmp_path)))  # type: ignore[arg-type]
        await again.start()
        client = await again.client()
        answer = await client.ask(
            RequestCode.QUERY_CONSUMER_OFFSET, QueryOffsetRequest("billing", "orders", 0).to_fields()
        )
        assert answer.fields["offset"] == "1"
        await again.broker.stop()

    asyncio.run(story())
