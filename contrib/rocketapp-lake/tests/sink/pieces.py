"""Messages in pieces, as pulls bring them, for tests of what gathers and commits them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Item:
    """Messages with these offsets, which came together (rocketapp_lake.batches.Piece)."""

    offsets: tuple[int, ...]
    each: int = 1
    """Bytes of each."""

    @property
    def offset(self) -> int:
        return self.offsets[0]

    @property
    def end(self) -> int:
        return self.offsets[-1] + 1

    @property
    def size(self) -> int:
        return self.each * len(self.offsets)

    def __len__(self) -> int:
        return len(self.offsets)

    def since(self, offset: int) -> Item | None:
        left = tuple(at for at in self.offsets if at >= offset)
        return Item(left, self.each) if left else None


def one(offset: int, size: int = 1) -> Item:
    return Item((offset,), size)


def items(*offsets: int, size: int = 1) -> list[Item]:
    """Each alone."""
    return [one(offset, size) for offset in offsets]


def halves(*offsets: int) -> list[Item]:
    """The first ones together, and the others."""
    middle = len(offsets) // 2
    return [Item(part) for part in (offsets[:middle], offsets[middle:]) if part]
