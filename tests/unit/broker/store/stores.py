"""Small stores and what is in them."""

from __future__ import annotations

import math
from typing import Any

from rocketapp.broker.store.files import File, Files, MemoryFiles
from rocketapp.broker.store.store import MessageStore
from rocketapp.config.broker import BrokerConfig
from rocketapp.errors import StoreError
from rocketapp.model.event import Event
from rocketapp.wire.layout import Record, decode_record

SEGMENT = 65_536


class SetClock:
    """A clock that stands until it is set."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self.time = now

    def now(self) -> float:
        return self.time


class Events(list[Event]):
    """Everything that was told."""

    def __call__(self, event: Event) -> None:
        self.append(event)

    def of(self, kind: type[Event]) -> list[Event]:
        return [event for event in self if isinstance(event, kind)]


class Watched(MemoryFiles):
    """Files that note down what is read from them, and which are open."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[tuple[str, int]] = []
        """Path and bytes of each read."""
        self.opened: list[str] = []
        """Paths of the files that are open."""

    def open(self, path: str, *, create: bool = False) -> File:
        file = super().open(path, create=create)
        self.opened.append(path)
        return _WatchedFile(file, path, self)  # type: ignore[return-value]

    def bytes_read(self, directory: str) -> list[int]:
        """How many bytes each read brought of a file below that directory; what was noted is forgotten."""
        found = [size for path, size in self.reads if path.startswith(f"{directory}/")]
        self.reads.clear()
        return found


class _WatchedFile:
    def __init__(self, file: File, path: str, files: Watched) -> None:
        self._file, self._path, self._files = file, path, files

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def read(self, size: int, at: int) -> bytes:
        data = self._file.read(size, at)
        self._files.reads.append((self._path, len(data)))
        return data

    def close(self) -> None:
        self._files.opened.remove(self._path)
        self._file.close()


def config(*, flush: str = "async", segment_bytes: int = SEGMENT, **more: Any) -> BrokerConfig:
    return BrokerConfig(segment_bytes=segment_bytes, flush=flush, **more)


def open_store(
    files: Files | None = None,
    *,
    clock: SetClock | None = None,
    observe: Events | None = None,
    flush: str = "async",
    segment_bytes: int = SEGMENT,
    role: str = "async_master",
) -> MessageStore:
    return MessageStore(
        MemoryFiles() if files is None else files,
        config(flush=flush, segment_bytes=segment_bytes, role=role),
        SetClock() if clock is None else clock,
        Events() if observe is None else observe,
    )


def commit(store: MessageStore) -> None:
    """Sync what replies wait for, as a broker does with `flush = "sync"`."""
    flush = store.begin_flush(log_only=True)
    if flush is not None:
        flush.run()
        store.end_flush(flush)


def record(
    body: bytes = b"hello", topic: str = "T", queue_id: int = 0, *, tag: str = "", sys_flag: int = 0, more: bytes = b""
) -> Record:
    raw = b"UNIQ_KEY\x01AAAABBBB\x02" + (f"TAGS\x01{tag}\x02".encode() if tag else b"") + more
    return Record(
        topic, body, raw, queue_id, sys_flag=sys_flag, born_ms=1_600_000_000_000, born_port=4000, store_port=10911
    )


def messages(store: MessageStore, topic: str = "T", queue_id: int = 0) -> list[Record]:
    """All messages of a queue that can be read, taken apart; their offsets are checked."""
    offset, found = store.min_offset(topic, queue_id), []
    while offset < store.max_offset(topic, queue_id):
        result = store.read(topic, queue_id, offset, max_messages=32, max_bytes=1 << 30)
        assert result.next_offset > offset
        at = 0
        taken = []
        while at < len(result.body):
            taken.append(decode_record(result.body, at))
            at += int.from_bytes(result.body[at : at + 4], "big")
        assert len(taken) == result.count
        assert all(offset <= each.queue_offset < result.next_offset for each in taken)
        found += taken
        offset = result.next_offset
    return found


def delete_topic(store: MessageStore, topic: str, files: Files | None = None) -> None:
    """Delete a topic's queues, and their files from these. Raises StoreError: it was not deleted."""
    doomed = store.begin_delete({topic: math.inf})
    store.distrust_hint()
    store.flush()
    try:
        paths = store.end_delete(doomed)
    except StoreError:
        store.cancel_delete(doomed)
        raise
    for path in paths:
        if files is not None:
            files.remove(path)
    store.deleted(doomed)


def bodies(store: MessageStore, topic: str = "T", queue_id: int = 0) -> list[bytes]:
    return [each.body for each in messages(store, topic, queue_id)]
