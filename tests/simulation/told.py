"""Parts of which bad histories are made by hand."""

from __future__ import annotations

from tests.simulation.history import Event, Finished, Sent, Started, Stored

A, B = "member-a", "member-b"
QUEUE, CALM, RETRY, DEAD = "moves:0", "orders:0", "%RETRY%group:0", "%DLQ%group:0"
ORDERLY = frozenset({"moves"})


def sent(at: float, number: int, *, queue: str = QUEUE, offset: int | None = None, key: str = "k") -> list[Event]:
    """A message that is stored and acknowledged; its offset is its number unless told."""
    return [Stored(at, queue, number if offset is None else offset, number), Sent(at, number, key, "ok")]


def started(at: float, number: int, *, member: str = A, queue: str = QUEUE, offset: int | None = None) -> list[Event]:
    return [Started(at, member, queue, number if offset is None else offset, number, 1)]


def ended(
    at: float, number: int, *, member: str = A, queue: str = QUEUE, offset: int | None = None, done: bool = True
) -> list[Event]:
    return [Finished(at, member, queue, number if offset is None else offset, number, 1, done)]


def handled(at: float, number: int, queue: str = QUEUE, member: str = A, offset: int | None = None) -> list[Event]:
    where = {"member": member, "queue": queue, "offset": offset}
    return started(at, number, **where) + ended(at + 0.5, number, **where)  # type: ignore[arg-type]


def running_long(at: float, number: int, queue: str = QUEUE) -> list[Event]:
    return started(at, number, queue=queue) + ended(at + 4, number, queue=queue)


def stored_copy(at: float, number: int, queue: str, offset: int = 0) -> list[Event]:
    return [Stored(at, queue, offset, number)]
