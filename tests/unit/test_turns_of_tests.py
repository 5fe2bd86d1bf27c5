"""A repeated test waits until no other one runs, and keeps others from beginning."""

from __future__ import annotations

import multiprocessing
from multiprocessing.connection import Connection
from pathlib import Path

from tests.turns_of_tests import Turns


def _take(place: Path, alone: bool, said: Connection) -> None:
    turns = Turns(place)
    said.send("begins")
    turns.take(alone=alone)
    said.send("has it")
    said.recv()
    turns.give_back()


def _asks(place: Path, *, alone: bool) -> Connection:
    ours, its = multiprocessing.Pipe()
    multiprocessing.get_context("fork").Process(target=_take, args=(place, alone, its), daemon=True).start()
    assert ours.recv() == "begins"
    return ours


def test_shares_are_held_side_by_side_and_one_that_is_alone_waits_for_all_of_them(tmp_path: Path) -> None:
    first, second = Turns(tmp_path), Turns(tmp_path)
    first.take(alone=False)
    second.take(alone=False)
    alone = _asks(tmp_path, alone=True)
    assert not alone.poll(0.2)
    first.give_back()
    assert not alone.poll(0.2)
    late = _asks(tmp_path, alone=False)
    second.give_back()
    assert alone.recv() == "has it"
    assert not late.poll(0.2)
    alone.send("go on")
    assert late.recv() == "has it"
    late.send("go on")
    first.close()
    second.close()


def test_who_has_a_share_and_is_repeated_waits_for_the_others_only(tmp_path: Path) -> None:
    turns = Turns(tmp_path)
    turns.take(alone=False)
    turns.take(alone=True)
    other = _asks(tmp_path, alone=False)
    assert not other.poll(0.2)
    turns.give_back()
    assert other.recv() == "has it"
    other.send("go on")
    turns.close()
