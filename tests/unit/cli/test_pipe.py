"""How lines reach the other process: whole, whatever the pipe holds at once; how either learns that it is gone."""

from __future__ import annotations

import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from rocketapp.cli.processes.pipe import MOST_WAITING, Pipe

LONG = b"x" * 5_000_000


@pytest.fixture
def ends() -> Iterator[tuple[Pipe, socket.socket]]:
    """One end of a pipe, and the other one as it is."""
    ours, theirs = socket.socketpair()
    pipe = Pipe(ours)
    yield pipe, theirs
    pipe.close()
    theirs.close()


def listening(
    pipe: Pipe, hear: Callable[[bytes], None], is_there: Callable[[], bool] = lambda: True
) -> threading.Thread:
    listener = threading.Thread(target=pipe.listen, args=(hear, is_there), daemon=True)
    listener.start()
    return listener


def test_a_line_that_the_pipe_does_not_hold_arrives_without_another_one(ends: tuple[Pipe, socket.socket]) -> None:
    pipe, other = ends
    pipe.tell(LONG)
    found: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    listening(Pipe(other), found.put)
    assert found.get(timeout=10) == LONG


def test_what_may_be_skipped_is_left_out_while_many_lines_wait(ends: tuple[Pipe, socket.socket]) -> None:
    pipe, other = ends
    for _ in range(MOST_WAITING):
        pipe.tell(LONG)
    pipe.tell(b"a status", may_skip=True)
    pipe.tell(b"the end")
    found: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    listening(Pipe(other), found.put)
    assert [found.get(timeout=10) for _ in range(MOST_WAITING + 1)] == [*[LONG] * MOST_WAITING, b"the end"]


def test_the_last_word_is_with_the_other_process_before_this_one_ends(ends: tuple[Pipe, socket.socket]) -> None:
    pipe, other = ends
    pipe.tell(b"the end")
    pipe.flush(10)
    other.setblocking(False)
    assert other.recv(100) == b"the end\n"


def test_what_a_process_said_last_is_heard_though_another_one_holds_its_end_open(
    ends: tuple[Pipe, socket.socket],
) -> None:
    pipe, other = ends
    other.sendall(b"the end\n")
    found: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    listener = listening(pipe, found.put, lambda: False)
    listener.join(10)
    assert not listener.is_alive() and found.get(timeout=0) == b"the end"


def test_a_process_that_goes_without_reading_ends_the_pipe(ends: tuple[Pipe, socket.socket]) -> None:
    pipe, other = ends
    pipe.tell(b"not read")
    other.sendall(b"the end\n")
    other.close()
    found: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    listening(pipe, found.put).join(10)  # not in this thread: what it starts would not hear signals any more
    assert found.get(timeout=0) == b"the end"


def test_the_end_of_the_other_process_ends_a_line_that_is_on_its_way(ends: tuple[Pipe, socket.socket]) -> None:
    pipe, other = ends
    pipe.tell(LONG)
    other.close()
    pipe.tell(b"to nobody")
    pipe.flush(10)
    began = time.monotonic()
    pipe.flush(10)  # nothing is left
    assert time.monotonic() - began < 5


def test_a_pipe_that_is_closed_leaves_no_thread() -> None:
    before = set(threading.enumerate())
    ours, theirs = socket.socketpair()
    pipe = Pipe(ours)
    (sender,) = set(threading.enumerate()) - before
    pipe.tell(LONG)
    pipe.close()
    sender.join(10)
    assert not sender.is_alive()
    theirs.close()
