"""Messages in pieces, as pulls bring them, for tests of what gathers and commits them."""

from __future__ import annotations

from rocketapp.plugin import StoredRecords


class Item(StoredRecords):
    """Messages with these offsets, which came together. Two with the same ones are equal."""

    __slots__ = ("offsets",)

    def __init__(self, offsets: tuple[int, ...], each: int = 1) -> None:
        """`each`: bytes of each."""
        self.offsets = offsets
        self.offset, self.end, self.size = offsets[0], offsets[-1] + 1, each * len(offsets)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Item) and self.offsets == other.offsets

    def __hash__(self) -> int:
        return hash(self.offsets)

    def __len__(self) -> int:
        return len(self.offsets)

    def since(self, offset: int) -> Item | None:
        left = tuple(at for at in self.offsets if at >= offset)
        return Item(left, self.size // len(self)) if left else None


def one(offset: int, size: int = 1) -> Item:
    return Item((offset,), size)


def items(*offsets: int, size: int = 1) -> list[Item]:
    """Each alone."""
    return [one(offset, size) for offset in offsets]


def halves(*offsets: int) -> list[Item]:
    """The first ones together, and the others."""
    middle = len(offsets) // 2
    return [Item(part) for part in (offsets[:middle], offsets[middle:]) if part]
