"""Where the messages with a key are: the index files, in Apache RocketMQ's format.

A file holds a header, a table of slots and items in the order of the log. A slot leads to the newest item whose hash
belongs there, and each item to the one before it. Only hashes are kept, so whoever asks compares the keys.

Keys are in memory when they come, and found there; from time to time any thread writes them, many at once.

Rule: items are synced before slots lead to them, and slots before the header counts the items. The last position in
the header is where the index goes on: what follows in the log is taken in again after a crash.
Java: IndexService, IndexFile.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import lru_cache, partial
from itertools import chain, groupby

from rocketapp.broker.store.files import File, Files, read_readable
from rocketapp.broker.store.stored import Stored
from rocketapp.wire import properties as names
from rocketapp.wire.java import string_hash
from rocketapp.wire.layout import TRANSACTION_MASK, TRANSACTION_ROLLBACK

DIRECTORY = "index"
_HEADER, _ITEM, _SLOT_BYTES = struct.Struct(">qqqqii"), struct.Struct(">iqii"), 4
"""First and last store time and position, used slots, items; of an item: hash, position, seconds, the one before."""
_PART = 65_536
"""Items that are saved at once, which need some MB meanwhile. With fewer, slots are read and written more often."""
_SLOT_SHIFT, _ITEM_MASK = 32, (1 << 32) - 1
"""A lead is a slot and an item of it as one number: sorted, leads have the order of the slots, and in one of items."""
_GROUP_SLOTS = 4096
"""Slots that are read, or written, by one call: those between two wanted ones cost less than another call."""
_MOST_WALKED = 20_000
"""Items that one question looks at: other requests wait meanwhile, some 20 ms."""
_MOST_AT_ONCE = 4096
"""Keys after which the next record is left for another turn of the loop. Until it ends each takes ten times as much
memory as then."""
_MOST_TOPICS = 4096
"""Topics whose hash is kept."""
_POWERS = [pow(31, power, 1 << 32) for power in range(128)]
_DIGITS = b"0123456789abcdefghijklmnopqrstu"
_ONES = bytes(_DIGITS[letter % 31] for letter in range(256))
_TENS = bytes(_DIGITS[letter // 31] for letter in range(256))
"""A letter as two digits of base 31, in which Python reads a whole key faster than it walks through a few letters."""


class KeyHash:
    """The hash of `topic#key`, as Java makes it."""

    def __init__(self) -> None:
        self._of_topic: Callable[[str], int] = lru_cache(_MOST_TOPICS)(lambda topic: string_hash(f"{topic}#"))

    def of(self, topic: str, key: bytes) -> int:
        if 0 < len(key) < len(_POWERS) and key.isascii():
            total = int(key.translate(_ONES), 31) + int(key.translate(_TENS), 31) * 31
            total += self._of_topic(topic) * _POWERS[len(key)]
        else:
            total = string_hash(f"{topic}#{key.decode('utf-8', 'replace')}")
        total &= 0xFFFF_FFFF
        return total if total < 0x8000_0000 else 0x1_0000_0000 - total & 0x7FFF_FFFF


class IndexFile:
    """One file. Items that were put are in memory until they are saved."""

    def __init__(self, files: Files, name: str, slots: int, items: int, *, create: bool = False) -> None:
        self.name: str = name
        self._files, self._slots, self._items = files, slots, items
        self._file: File = files.open(self.path, create=create)
        self._is_new = create
        """Whether a loss of power may take its name."""
        if create:
            try:
                self._file.truncate(self._item_at(items))
            except OSError:
                self._file.close()
                raise
        header = _HEADER.unpack(read_readable(self._file, _HEADER.size, 0, b"\xff").ljust(_HEADER.size, b"\0"))
        self.first_ms: int = header[0]
        self.last_ms: int = header[1]
        self.first: int = header[2]
        self.last: int = header[3]
        self._used: int = header[4]
        self._count: int = header[5] or 1
        """The number of the first item that is not saved."""
        self._hashes, self._positions, self._seconds = array("i"), array("q"), array("i")
        """The items from there on. They do not lead to those before them yet."""
        self.room: int = items - self._count
        """How many more there may be."""

    @property
    def path(self) -> str:
        return f"{DIRECTORY}/{self.name}"

    @property
    def is_usable(self) -> bool:
        return self._file.size() == self._item_at(self._items) and 0 < self._count <= self._items

    @property
    def unsaved(self) -> int:
        """How many items are in memory only."""
        return len(self._hashes)

    def put(self, items: list[tuple[int, int, int]]) -> int:
        """Add the first of these items (hash, position, store time). Returns how many there was room for."""
        hashes, positions, times_ms = zip(*items[: self.room], strict=True)
        if not self.first_ms:
            self.first_ms, self.first = times_ms[0], positions[0]
        self._hashes.extend(hashes)
        self._positions.extend(positions)
        for at_ms, several in groupby(times_ms):
            seconds = (at_ms - self.first_ms) // 1000
            self._seconds.fromlist([seconds if 0 <= seconds < 0x8000_0000 else 0] * len(list(several)))
        self.room -= len(hashes)
        self.last_ms, self.last = times_ms[-1], positions[-1]
        return len(hashes)

    def saving(self, unsaved: int, last_ms: int) -> Iterator[Callable[[], None]]:
        """Save this many items, the last of which has this store time: see `KeyIndex.saving`."""
        while unsaved:
            count = min(unsaved, _PART)
            columns = self._hashes[:count], self._positions[:count], self._seconds[:count]
            yield partial(self._save, columns, (self.first_ms, last_ms, self.first, columns[1][-1]))
            self._count += count
            del self._hashes[:count], self._positions[:count], self._seconds[:count]
            unsaved -= count

    def _save(self, columns: tuple[array[int], ...], header: tuple[int, int, int, int]) -> None:
        file, first, hashes = self._file, self._count, columns[0]
        count = first + len(hashes)
        leads = sorted(key_hash % self._slots << _SLOT_SHIFT | item for item, key_hash in enumerate(hashes, first))
        before = self._before(leads)
        file.write(_items(*columns, before), self._item_at(first))
        if self._is_new:
            self._files.sync_directory(DIRECTORY)
            self._is_new = False
        file.sync()
        self._write_slots(leads)
        file.sync()
        used = self._used + before.count(0)
        file.write(_HEADER.pack(*header, used, count), 0)
        if count >= self._items:
            file.sync()  # before the file after it counts anything
        self._used = used

    def close(self) -> None:
        self._file.close()

    def repair_slots(self) -> None:
        """After a crash: reset slots that lead to items which the header does not count."""
        slots = set[int]()
        for item in range(self._count, self._items):
            key_hash, physical, _, _ = self._read_item(item)
            if not key_hash and not physical:
                break
            slots.add(key_hash % self._slots)
        if slots:
            self._write_slots(sorted(slot << _SLOT_SHIFT | self._newest(slot) for slot in slots))
            self._file.sync()

    def find(self, key_hash: int, begin_ms: int, end_ms: int) -> Iterator[int]:
        """The positions of items with this hash and time, newest first, and -1 for each other item."""
        for item in self._put_with(key_hash):
            physical, seconds = self._positions[item], self._seconds[item]
            yield physical if begin_ms - 1000 < self.first_ms + seconds * 1000 <= end_ms else -1
        item = self._newest(key_hash % self._slots)
        while item:
            found, physical, seconds, before = self._read_item(item)
            stored_ms = self.first_ms + seconds * 1000
            yield physical if found == key_hash and begin_ms - 1000 < stored_ms <= end_ms else -1
            item = before if 0 < before < item else 0

    def _put_with(self, key_hash: int) -> Iterator[int]:
        """Unsaved items with this hash, newest first."""
        wanted, hashes = array("i", (key_hash,)).tobytes(), self._hashes.tobytes()
        at = len(hashes)
        while (at := hashes.rfind(wanted, 0, at + len(wanted) - 1)) >= 0:
            if not at % len(wanted):
                yield at // len(wanted)

    def _newest(self, slot: int) -> int:
        """The newest saved item of this slot; 0 for none."""
        return self._newest_counted(self._read_slots(slot, slot)[0])

    def _newest_counted(self, item: int) -> int:
        """This item, or the first before it in its slot that is saved; 0 for none."""
        while item >= self._count:  # a crash, or an error, came before it was counted
            before = self._read_item(item)[3] if item < self._items else 0
            item = before if before < item else 0
        return max(item, 0)

    def _before(self, leads: list[int]) -> array[int]:
        """For each item that is saved next the one before it in its slot. Their leads are sorted."""
        first, before = self._count, array("i", bytes(4 * len(leads)))
        last = newest = -1
        for slots, start, near in self._slot_groups(leads):
            for lead in near:
                slot, item = lead >> _SLOT_SHIFT, lead & _ITEM_MASK
                if slot != last:
                    newest = self._newest_counted(slots[slot - start])
                before[item - first] = newest
                last, newest = slot, item
        return before

    def _write_slots(self, leads: list[int]) -> None:
        """Let slots lead to these items; of one slot, to the last."""
        for slots, start, near in self._slot_groups(leads):
            for lead in near:
                slots[(lead >> _SLOT_SHIFT) - start] = lead & _ITEM_MASK
            self._file.write(_big_endian(slots), self._slot_at(start))

    def _slot_groups(self, leads: list[int]) -> Iterator[tuple[array[int], int, list[int]]]:
        """Groups of slots near each other: their contents, the first slot, and their part of the sorted leads."""
        begin = 0
        while begin < len(leads):
            end = bisect_left(leads, leads[begin] + (_GROUP_SLOTS << _SLOT_SHIFT), begin)
            start, stop = leads[begin] >> _SLOT_SHIFT, leads[end - 1] >> _SLOT_SHIFT
            yield self._read_slots(start, stop), start, leads[begin:end]
            begin = end

    def _read_slots(self, first: int, last: int) -> array[int]:
        """The slots from this number to that, inclusive."""
        slots = array("i", self._file.read((last - first + 1) * _SLOT_BYTES, self._slot_at(first)))
        _big_endian(slots)
        return slots

    def _read_item(self, item: int) -> tuple[int, int, int, int]:
        key_hash, physical, seconds, before = _ITEM.unpack(self._file.read(_ITEM.size, self._item_at(item)))
        return key_hash, physical, seconds, before

    @staticmethod
    def _slot_at(slot: int) -> int:
        return _HEADER.size + slot * _SLOT_BYTES

    def _item_at(self, item: int) -> int:
        """The byte at which an item lies. The last item ends where the file does."""
        return _HEADER.size + self._slots * _SLOT_BYTES + item * _ITEM.size


def _big_endian(numbers: array[int]) -> bytes:
    """Convert numbers between memory and file."""
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers.tobytes()


def _items(*columns: array[int]) -> bytes:
    """Items as `_ITEM` packs them, but a column at once: hashes, positions, seconds, items before."""
    hashes, positions, seconds, before = (array("i", _big_endian(column)) for column in columns)
    data = array("i", bytes(_ITEM.size * len(hashes)))
    for number, column in enumerate((hashes, positions[0::2], positions[1::2], seconds, before)):
        data[number::5] = column
    return data.tobytes()


class KeyIndex:
    """All index files of one store."""

    def __init__(self, files: Files, now: Callable[[], float], *, slots: int, items: int) -> None:
        self._files, self._now, self._slots, self._items = files, now, slots, items
        self._hash = KeyHash()
        self._opened: list[IndexFile] = []
        """The oldest first."""
        for name in files.names(DIRECTORY):
            if len(name) == 17 and name.isdigit():
                opened = IndexFile(files, name, slots, items)
                if opened.is_usable:
                    opened.repair_slots()
                    self._opened.append(opened)
                else:  # of other sizes, or damaged: it is left alone, and what it held is taken in again
                    opened.close()
        self.position: int = max((file.last for file in self._opened), default=0)
        """What lies before this position of the log was taken in."""

    def __repr__(self) -> str:
        return f"<KeyIndex {len(self._opened)} files, to {self.position}>"

    @property
    def last_ms(self) -> int:
        """The store time of the last indexed message."""
        return self._opened[-1].last_ms if self._opened else 0

    @property
    def unsaved(self) -> int:
        """How many keys are only in memory."""
        return sum(file.unsaved for file in self._opened)

    def follow(self, records: Iterable[Stored]) -> int:
        """Index these records, in log order, until there are many keys. Returns how many records were indexed.

        Raises OSError when a new file cannot be created; what lies before `position` is indexed then.
        """
        hash_of, unique_id_of, keys_of, count, end = self._hash.of, names.unique_id_of, names.keys_of, 0, self.position
        items = list[tuple[int, int, int]]()
        for physical, size, topic, _, _, sys_flag, stored_ms, raw, _ in records:
            if sys_flag & TRANSACTION_MASK != TRANSACTION_ROLLBACK:
                unique, others = unique_id_of(raw), keys_of(raw)
                for key in (unique, *others.split()) if others else (unique,):
                    if key:
                        items.append((hash_of(topic, key), physical, stored_ms))
            end = physical + size
            count += 1
            if len(items) >= _MOST_AT_ONCE:
                break
        self._put(items)
        self.position = end
        return count

    def _put(self, items: list[tuple[int, int, int]]) -> None:
        """Move these items into the files. The records before the first that is left are indexed."""
        while items:
            self.position = items[0][1]
            file = self._opened[-1] if self._opened and self._opened[-1].room else self._new_file()
            del items[: file.put(items)]

    def saving(self) -> Iterator[Callable[[], None]]:
        """Save what was added so far, in steps that any thread may run. No step follows an OSError."""
        return chain.from_iterable([file.saving(file.unsaved, file.last_ms) for file in self._opened])

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
        """Forget the files that lead below this position only, but not the newest; return their paths.

        One that is not saved stays: another thread may be writing it.
        """
        gone = [file for file in self._opened[:-1] if file.last < position and not file.unsaved]
        for file in gone:
            self._opened.remove(file)
            file.close()
        return [file.path for file in gone]

    def close(self) -> None:
        for file in self._opened:
            file.close()
        self._opened = []

    def _new_file(self) -> IndexFile:
        """A new file. Its name is the time, and later than all others."""
        stamp = datetime.fromtimestamp(self._now())
        name = f"{stamp:%Y%m%d%H%M%S}{stamp.microsecond // 1000:03}"
        taken = self._files.names(DIRECTORY)
        if taken and name <= taken[-1]:
            name = f"{int(taken[-1]) + 1:017}"
        self._opened.append(IndexFile(self._files, name, self._slots, self._items, create=True))
        return self._opened[-1]
