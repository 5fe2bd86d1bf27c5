from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_rocketmq.window import Pull, Window


class Broker:
    """A queue with the messages `kept`, which returns what a pull of a real one returns: up to a limit, and where to
    go on."""

    def __init__(self, kept: set[int], most: list[int]) -> None:
        self._kept, self._most, self._turn = kept, most, 0
        self.pulls = 0

    def answer(self, pull: Pull, count: int) -> tuple[int, list[int]]:
        self.pulls += 1
        limit = min(count, self._most[self._turn % len(self._most)])
        self._turn += 1
        found: list[int] = []
        offset = pull.offset
        while offset < pull.offset + 60 and len(found) < limit:
            if offset in self._kept:
                found.append(offset)
            offset += 1
        return offset, found


def read(window: Window, broker: Broker, choose: list[int]) -> tuple[list[int], int]:
    """What a read of the whole range gives, and the most pulls that were ever in flight."""
    flying: list[Pull] = []
    got: list[int] = []
    most = turn = 0
    while not window.is_done:
        flying += window.to_send()
        most = max(most, len(flying))
        assert flying, "the read is not done and nothing is asked"
        pull = flying.pop(choose[turn % len(choose)] % len(flying))
        turn += 1
        next_offset, found = broker.answer(pull, window.count(pull))
        window.arrived(pull, next_offset, bytes(str(found), "ascii"))
        for data, low, high in window.due():
            got += [offset for offset in eval(data) if low <= offset < high]
    return got, most


@given(
    start=st.integers(0, 50),
    size=st.integers(0, 400),
    holes=st.sets(st.integers(0, 450)),
    most=st.lists(st.integers(1, 40), min_size=1, max_size=5),
    choose=st.lists(st.integers(0, 20), min_size=1, max_size=20),
    depth=st.integers(1, 10),
    batch=st.integers(1, 40),
    filtered=st.booleans(),
)
def test_every_message_comes_once_and_in_order_however_replies_are_cut_and_reordered(
    start: int,
    size: int,
    holes: set[int],
    most: list[int],
    choose: list[int],
    depth: int,
    batch: int,
    filtered: bool,
) -> None:
    kept = set(range(500)) - holes
    window = Window(start, start + size, depth=depth, batch=batch, filtered=filtered)
    got, _ = read(window, Broker(kept, most), choose)
    assert got == sorted(kept & set(range(start, start + size)))


def test_full_replies_in_order_need_no_pull_twice() -> None:
    broker = Broker(set(range(1000)), [32])
    got, most = read(Window(0, 640, depth=8, batch=32), broker, [0])
    assert (len(got), broker.pulls, most) == (640, 20, 8)


def test_the_stride_follows_a_broker_that_returns_less() -> None:
    """One that reads from disk returns 8 for each pull. Few pulls are spent on finding out whether it returns more."""
    broker = Broker(set(range(10_000)), [8])
    got, _ = read(Window(0, 8000, depth=8, batch=32), broker, [0])
    assert len(got) == 8000
    assert broker.pulls < 1000 * 1.1


@pytest.mark.parametrize("given", [8, 32, 50])
def test_a_large_batch_costs_one_short_pull_where_the_broker_gives_less(given: int) -> None:
    broker = Broker(set(range(100_000)), [given])
    got, most = read(Window(0, 25_600, depth=8, batch=256), broker, [0])
    assert len(got) == 25_600
    assert most >= 8
    assert broker.pulls < 25_600 / given * 1.1 + 2


def test_the_stride_grows_again() -> None:
    window = Window(0, 100_000, depth=1, batch=32)
    broker = Broker(set(range(100_000)), [8])
    for _ in range(3):
        for pull in window.to_send():
            window.arrived(pull, broker.answer(pull, window.count(pull))[0], b"")
        list(window.due())
    broker = Broker(set(range(100_000)), [32])
    read(window, broker, [0])
    assert broker.pulls < 100_000 / 32 * 1.1


def test_what_was_in_flight_on_a_lost_connection_is_asked_again() -> None:
    window = Window(0, 96, depth=3, batch=32)
    (first,) = window.to_send()
    window.arrived(first, 32, b"first")
    assert [due.data for due in window.due()] == [b"first"]
    second, third = window.to_send()
    window.arrived(third, 96, b"third")
    window.restart()
    assert window.to_send() == [second, third]
