"""The parts that the processes of a test run share out: what they name is there, and no test is left out."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests import parts
from tests.parts import COMPUTING, ByPart, mostly_waits

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


class Process:
    """One of the processes of a run, which is told by number what to run."""

    def __init__(self, number: int) -> None:
        self.gateway = SimpleNamespace(id=f"gw{number}")
        self.given: list[int] = []
        self.shutting_down = False

    def send_runtest_some(self, numbers: list[int]) -> None:
        self.given += numbers

    def shutdown(self) -> None:
        self.shutting_down = True


def test_a_process_helps_with_the_other_kind_when_nothing_of_its_own_is_left() -> None:
    waits, computes = range(6), range(10 * COMPUTING)
    tests = [f"tests/unit/cli/test_{n}.py::test" for n in waits] + [
        f"tests/unit/wire/test_{n}.py::test" for n in computes
    ]
    processes = [Process(number) for number in range(COMPUTING + 2)]
    config: Any = SimpleNamespace(option=SimpleNamespace(), getvalue=lambda _: ["popen"] * len(processes))
    scheduler = ByPart(config, None)
    for process in processes:
        scheduler.add_node(process)
        scheduler.add_node_collection(process, tests)
    scheduler.schedule()
    assert not any(mostly_waits(tests[number]) for number in processes[0].given)
    assert all(mostly_waits(tests[number]) for number in processes[-1].given)
    for turn in range(len(tests)):
        for process in processes:
            if turn < len(process.given):
                scheduler.mark_test_complete(process, process.given[turn])
    assert Counter(number for process in processes for number in process.given) == Counter(range(len(tests)))
    assert {mostly_waits(tests[number]) for number in processes[-1].given} == {True, False}
    assert all(process.shutting_down for process in processes)
