"""The parts that the processes of a test run share out: what they name is there, and no test is left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import parts
from tests.parts import OnlyWhatWaits, mostly_waits

ROOT = Path(__file__).parents[2]


def test_each_room_that_is_named_is_there() -> None:
    rooms = [
        room
        for name, rooms in vars(parts).items()
        if name.startswith("_") and isinstance(rooms, tuple)
        for room in rooms
    ]
    assert len(rooms) > 30
    assert [room for room in rooms if not list(ROOT.glob(f"{room}*"))] == []


def test_a_process_that_waits_collects_all_that_waits_and_nothing_else(pytestconfig: pytest.Config) -> None:
    files = [path for folder in ("tests", "contrib") for path in (ROOT / folder).rglob("test_*.py")]
    ignored = OnlyWhatWaits().pytest_ignore_collect
    collected = {
        path
        for path in files
        if not any(
            ignored(part, pytestconfig) for part in (path, *path.parents) if part != ROOT and ROOT in part.parents
        )
    }
    assert collected == {path for path in files if mostly_waits(path.relative_to(ROOT).as_posix())} != set()
