"""The data that was certainly on disk at some moment, so that recovery can begin there.

Two files store it. `checkpoint` is Apache RocketMQ's: store times of the flushed data. At byte 256 of it,
which Apache RocketMQ does not read, we add how far the commit log was flushed, and the first of those times: a
different one is Apache RocketMQ's, which has written behind our position then. Both are in one sector. Our own
`recovery.hint` contains a position up to which the consume queues are complete, and their ends.

Rule: both are hints. Each is written after the data that it promises was synced, has a CRC, and is
used only as far as the log and the queues agree with it. Without them the log alone is enough.
"""

from __future__ import annotations

import struct
import zlib

import msgspec

from rocketapp.broker.store.files import SECTOR_BYTES, File, Files, read_whole, replace_whole

CHECKPOINT, HINT = "checkpoint", "recovery.hint"
CHECKPOINT_BYTES = 4096

_TIMES, _TIME, _INDEX_AT, _FLUSHED_AT = struct.Struct(">qq"), struct.Struct(">q"), 16, 32
"""Apache RocketMQ's numbers: store times of the flushed log and queues, and of the index; the log's flushed end."""
_OWN, _CRC, _OWN_AT = struct.Struct(">4sqq"), struct.Struct(">I"), 256
_CRC_AT, _MAGIC = _OWN_AT + _OWN.size, b"RAP2"


class Checkpoint:
    """The checkpoint file, kept open."""

    def __init__(self, files: Files) -> None:
        self._file: File = files.open(CHECKPOINT, create=True)
        if self._file.size() != CHECKPOINT_BYTES:
            self._file.truncate(CHECKPOINT_BYTES)
        data = self._data = bytearray(self._file.read(SECTOR_BYTES, 0))
        log_ms, queues_ms = _TIMES.unpack_from(data)
        magic, flushed, flushed_ms = _OWN.unpack_from(data, _OWN_AT)
        (crc,) = _CRC.unpack_from(data, _CRC_AT)
        is_ours = magic == _MAGIC and crc == zlib.crc32(data[_OWN_AT:_CRC_AT]) and flushed_ms == log_ms
        self.flushed: int | None = flushed if is_ours else None
        """The log was synced up to this position; None when that is unknown, or Apache RocketMQ has written since."""
        self.queues_flushed_ms: int = 0 if is_ours else max(min(log_ms, queues_ms), 0)
        """The store time up to which Apache RocketMQ has flushed its log and its consume queues; 0 if it has not."""

    def write(self, log_ms: int, flushed: int, queues_ms: int | None = None) -> None:
        """Write how far the log is synced, and the store times of the newest record there, and in the queues if new."""
        data = self._data
        _TIMES.pack_into(data, 0, log_ms, _TIMES.unpack_from(data)[1] if queues_ms is None else queues_ms)
        _TIME.pack_into(data, _FLUSHED_AT, flushed)
        _OWN.pack_into(data, _OWN_AT, _MAGIC, flushed, log_ms)
        _CRC.pack_into(data, _CRC_AT, zlib.crc32(data[_OWN_AT:_CRC_AT]))
        self._file.write(data, 0)
        self.flushed = flushed

    def say_indexed(self, last_ms: int) -> None:
        """Write how far the key index is. After a kill Apache RocketMQ deletes index files that go farther."""
        _TIME.pack_into(self._data, _INDEX_AT, last_ms)
        self._file.write(_TIME.pack(last_ms), _INDEX_AT)

    def sync(self) -> None:
        self._file.sync()

    def close(self) -> None:
        self._file.close()


class Hint(msgspec.Struct, frozen=True, rename="camel"):
    """States that the queues are complete for all records below `position`."""

    position: int
    last_record: int
    """Position of the record that ends at `position`; -1 if the log was empty."""
    queues: dict[str, dict[int, tuple[int, int]]] = {}
    """By topic and queue id: its max offset, and the log position of its last message (-1: none)."""


def load_hint(files: Files) -> Hint | None:
    """The hint; None if there is none, or it is damaged."""
    crc, _, text = (read_whole(files, HINT) or b"").rstrip(b"\n").partition(b"\n")
    return msgspec.json.decode(text, type=Hint) if crc == b"%08x" % zlib.crc32(text) else None


def save_hint(files: Files, hint: Hint) -> None:
    text = msgspec.json.encode(hint)
    replace_whole(files, HINT, b"%08x\n%s\n" % (zlib.crc32(text), text))


def forget_hint(files: Files) -> None:
    """Delete the hint before queues are rebuilt, so that a crash in between leaves no wrong promise."""
    files.remove(HINT)
    files.sync_directory("")
