"""Where the messages with a key are: the index files, in Apache RocketMQ's format.

A file holds a header, a table of slots and items in the order of the log. A slot leads to the newest item whose hash
belongs there, and each item to the one before it. Only hashes are kept, so whoever asks compares the keys.

Rule: items are synced before slots lead to them, and slots before the header counts the items. The last position in
the header is where the index goes on: what follows in the log is taken in again after a crash.
Java: IndexService, IndexFile.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from operator import mul
from typing import NamedTuple

from rocketapp.broker.store.files import File, Files, read_readable
from rocketapp.broker.store.stored import Stored
from rocketapp.wire import properties as names
from rocketapp.wire.java import string_hash
from rocketapp.wire.record import TRANSACTION_MASK, TRANSACTION_ROLLBACK

DIRECTORY = "index"
_HEADER, _SLOT, _ITEM = struct.Struct(">qqqqii"), struct.Struct(">i"), struct.Struct(">iqii")
"""First and last store time and position, used slots, items; of an item: hash, position, seconds, the one before."""
_MOST_WALKED = 20_000
"""Items that one question looks at: other requests wait meanwhile, some 20 ms."""
_MOST_TOPICS = 4096
_POWERS = [pow(31, power, 1 << 32) for power in range(128)]


class KeyHash:
    """The hash of `topic#key`, as Java makes it. That of the topic is kept, which halves the time."""

    def __init__(self) -> None:
        self._topics: dict[str, int] = {}

    def of(self, topic: str, key: bytes) -> int:
        if len(key) >= len(_POWERS) or not key.isascii():
            total = string_hash(f"{topic}#{key.decode('utf-8', 'replace')}")
        else:
            begun = self._topics.get(topic)
            if begun is None:
                if len(self._topics) >= _MOST_TOPICS:
                    self._topics.clear()
                begun = self._topics[topic] = string_hash(f"{topic}#")
            last = len(key)
            total = begun * _POWERS[last] + sum(map(mul, reversed(key), _POWERS))
            total = (total + 0x8000_0000 & 0xFFFF_FFFF) - 0x8000_0000
        return abs(total) if total != -0x8000_0000 else 0


def _keys(stored: Stored) -> Iterator[bytes]:
    if stored.sys_flag & TRANSACTION_MASK == TRANSACTION_ROLLBACK:
        return
    unique = names.unique_id_of(stored.raw_properties)
    if unique:
        yield unique
    yield from (names.keys_of(stored.raw_properties) or b"").split()


class ToSync(NamedTuple):
    """What is to become durable of one file: the slots that lead to its new items, and the header that counts them."""

    file: IndexFile
    slots: dict[int, int]
    header: bytes


class IndexFile:
    """One file. Items that were put are in memory until `write`, and the slots that lead to them until `synced`."""

    def __init__(self, name: str, file: File, slots: int, items: int) -> None:
        self.name: str = name
        self.file: File = file
        self.is_new: bool = False
        self._slots, self._items = slots, items
        self._put_slots: dict[int, int] = {}
        self._put_items = bytearray()
        header = _HEADER.unpack(read_readable(file, _HEADER.size, 0, b"\xff").ljust(_HEADER.size, b"\0"))
        self.first_ms: int = header[0]
        self.last_ms: int = header[1]
        self.first: int = header[2]
        self.last: int = header[3]
        self._used: int = header[4]
        self._count: int = header[5] or 1

    @property
    def is_usable(self) -> bool:
        return self.file.size() == self.size_of(self._slots, self._items) and 0 < self._count <= self._items

    @property
    def is_full(self) -> bool:
        return self._count >= self._items

    @staticmethod
    def size_of(slots: int, items: int) -> int:
        return _HEADER.size + slots * _SLOT.size + items * _ITEM.size

    def put(self, key_hash: int, stored: Stored) -> None:
        if self._count == 1:
            self.first_ms, self.first = stored.stored_ms, stored.physical
        slot = key_hash % self._slots
        before = self._newest(slot)
        self._used += not before
        seconds = min(max(stored.stored_ms - self.first_ms, 0) // 1000, 0x7FFF_FFFF)
        self._put_items += _ITEM.pack(key_hash, stored.physical, seconds, before)
        self._put_slots[slot] = self._count
        self._count += 1
        self.last_ms, self.last = stored.stored_ms, stored.physical

    def write(self) -> bool:
        """Write the items that were put; False if none was. An OSError leaves them to be written by the next call."""
        if not self._put_items:
            return False
        begin = self._count - len(self._put_items) // _ITEM.size
        self.file.write(self._put_items, self._item_at(begin))
        self._put_items = bytearray()
        return True

    def to_sync(self) -> ToSync:
        header = _HEADER.pack(self.first_ms, self.last_ms, self.first, self.last, self._used, self._count)
        return ToSync(self, dict(self._put_slots), header)

    def sync(self, slots: dict[int, int], header: bytes) -> None:
        self.file.sync()
        self._write_slots(slots)
        self.file.sync()
        self.file.write(header, 0)
        if self.is_full:
            self.file.sync()  # before the file after it counts anything

    def synced(self, slots: dict[int, int]) -> bool:
        """These slots are in the file; whether all are."""
        for slot, item in slots.items():
            if self._put_slots.get(slot) == item:
                del self._put_slots[slot]
        return not self._put_slots

    def _write_slots(self, slots: dict[int, int]) -> None:
        for slot, item in slots.items():
            self.file.write(_SLOT.pack(item), _HEADER.size + slot * _SLOT.size)

    def take_back_slots(self) -> None:
        """After a crash: let slots lead to what is counted, where they lead to items behind it."""
        slots: dict[int, int] = {}
        for item in range(self._count, self._items):
            key_hash, physical, _, _ = self._read_item(item)
            if not key_hash and not physical:
                break
            slot = key_hash % self._slots
            slots[slot] = self._newest(slot)
        if slots:
            self._write_slots(slots)
            self.file.sync()

    def find(self, key_hash: int, begin_ms: int, end_ms: int) -> Iterator[int]:
        """The positions of what was written with this hash and time, the newest first, and -1 for each other item."""
        item = self._newest(key_hash % self._slots)
        while item:
            found, physical, seconds, before = self._read_item(item)
            stored_ms = self.first_ms + seconds * 1000
            yield physical if found == key_hash and begin_ms - 1000 < stored_ms <= end_ms else -1
            item = before if 0 < before < item else 0

    def _newest(self, slot: int) -> int:
        known = self._put_slots.get(slot)
        if known is not None:
            return known
        item: int = _SLOT.unpack(self.file.read(_SLOT.size, _HEADER.size + slot * _SLOT.size))[0]
        while item >= self._count:  # a crash came before it was counted
            before = self._read_item(item)[3] if item < self._items else 0
            item = before if before < item else 0
        return max(item, 0)

    def _read_item(self, item: int) -> tuple[int, int, int, int]:
        key_hash, physical, seconds, before = _ITEM.unpack(self.file.read(_ITEM.size, self._item_at(item)))
        return key_hash, physical, seconds, before

    def _item_at(self, item: int) -> int:
        return _HEADER.size + self._slots * _SLOT.size + item * _ITEM.size


class KeyIndex:
    """All index files of one store."""

    def __init__(self, files: Files, now: Callable[[], float], *, slots: int, items: int) -> None:
        self._files, self._now, self._slots, self._items = files, now, slots, items
        self._hash = KeyHash()
        self._opened: list[IndexFile] = []
        """The oldest first."""
        for name in files.names(DIRECTORY):
            if len(name) == 17 and name.isdigit():
                opened = IndexFile(name, files.open(f"{DIRECTORY}/{name}"), slots, items)
                if opened.is_usable:
                    opened.take_back_slots()
                    self._opened.append(opened)
                else:  # of other sizes, or damaged: it is left alone, and what it held is taken in again
                    opened.file.close()
        self._unsynced: list[IndexFile] = []
        self.position: int = max((file.last for file in self._opened), default=0)
        """What lies before this position of the log was taken in."""

    def __repr__(self) -> str:
        return f"<KeyIndex {len(self._opened)} files, to {self.position}>"

    @property
    def last_ms(self) -> int:
        """The store time of the last message that was taken in."""
        return self._opened[-1].last_ms if self._opened else 0

    def follow(self, records: Iterable[Stored]) -> int:
        """Take in these records, in the order of the log; return how many they were."""
        key_hash, count = self._hash.of, 0
        self._write()  # what a full disk refused comes first
        for stored in records:
            for key in _keys(stored):
                file = self._opened[-1] if self._opened else self._new_file()
                if file.is_full:
                    self._write()
                    file = self._new_file()
                file.put(key_hash(stored.topic, key), stored)
            self.position = stored.physical + stored.size
            count += 1
        self._write()
        return count

    def to_sync(self) -> list[ToSync]:
        """What was written and is not durable. Pass it to `sync`, and then to `synced`."""
        return [file.to_sync() for file in self._unsynced]

    def sync(self, taken: list[ToSync]) -> None:
        """Make it durable, and count it. Any thread may call it."""
        for file, slots, header in taken:
            if file.is_new:
                self._files.sync_directory(DIRECTORY)
                file.is_new = False
            file.sync(slots, header)

    def synced(self, taken: list[ToSync]) -> None:
        for file, slots, _ in taken:
            if file.synced(slots):
                self._unsynced.remove(file)

    def find(self, topic: str, key: str, begin_ms: int, end_ms: int) -> Iterator[int]:
        """Positions of messages that may have this key and time, the newest first. It ends after many that have not."""
        wanted, left = self._hash.of(topic, key.encode("utf-8", "replace")), _MOST_WALKED
        for file in reversed(self._opened):
            if file.first_ms > end_ms or file.last_ms < begin_ms:
                continue
            for physical in file.find(wanted, begin_ms, end_ms):
                left -= 1
                if not left:
                    return
                if physical >= 0:
                    yield physical

    def begin_at(self, position: int) -> list[str]:
        """Forget the files that lead below this position only, but not the newest; return their paths."""
        gone = [file for file in self._opened[:-1] if file.last < position]
        for file in gone:
            self._opened.remove(file)
            file.file.close()
        return [f"{DIRECTORY}/{file.name}" for file in gone]

    def close(self) -> None:
        for file in self._opened:
            file.file.close()
        self._opened = []

    def _write(self) -> None:
        if self._opened and self._opened[-1].write() and self._opened[-1] not in self._unsynced:
            self._unsynced.append(self._opened[-1])

    def _new_file(self) -> IndexFile:
        """A new file. Its name is the time, and later than all others."""
        stamp = datetime.fromtimestamp(self._now())
        name = f"{stamp:%Y%m%d%H%M%S}{stamp.microsecond // 1000:03}"
        taken = self._files.names(DIRECTORY)
        if taken and name <= taken[-1]:
            name = f"{int(taken[-1]) + 1:017}"
        file = self._files.open(f"{DIRECTORY}/{name}", create=True)
        file.truncate(IndexFile.size_of(self._slots, self._items))
        opened = IndexFile(name, file, self._slots, self._items)
        opened.is_new = True  # a loss of power may take its name
        self._opened.append(opened)
        return opened
