"""The parts that the processes of a test run share out: what they name is there, and no test is left out."""

from __future__ import annotations

from pathlib import Path

from tests import parts

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
