"""What a process has in flight, and what others learn of it when it dies."""

from __future__ import annotations

import contextlib
import errno
import gc
import json
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rocketapp.consumer.journal import Journal
from rocketapp.model.message_queue import MessageQueue
from rocketapp.state.quarantine import FORGOTTEN_AFTER
from tests.unit.cpu import cheapest
from tests.unit.scripted import ClockAt

QUEUE = MessageQueue("topic", "broker-a", 0)
DYING = """
import os, sys
from pathlib import Path
from rocketapp.clock import SystemClock
from rocketapp.consumer.journal import Journal
from rocketapp.model.message_queue import MessageQueue

journal = Journal(Path(sys.argv[1]), SystemClock(), print)
journal.note().write(journal.recorder("group", MessageQueue("topic", "broker-a", 0))(4, 6))
print("in flight", flush=True)
sys.stdin.readline()
os._exit(9)
"""


def opened(directory: Path, now: float = 1000.0) -> Journal:
    return Journal(directory, ClockAt(now), lambda _: None)


def of_file(directory: Path) -> dict[str, dict[str, list[float]]]:
    found: dict[str, dict[str, list[float]]] = json.loads((directory / "quarantine.json").read_text() or "{}")
    return found


def test_a_queue_that_begins_right_after_a_death_knows_what_is_quarantined(tmp_path: Path) -> None:
    dying = [sys.executable, "-c", DYING, str(tmp_path)]
    with subprocess.Popen(dying, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == "in flight\n"
        journal = opened(tmp_path)
        assert journal.quarantined("group", QUEUE, 0) == {}
        process.communicate("\n")
    assert set(journal.quarantined("group", QUEUE, 0)) == {4, 5, 6}
    # What lies below the offset at which it begins was finished by others.
    assert set(journal.quarantined("group", QUEUE, 6)) == {6}
    journal.close()
    assert set(of_file(tmp_path)["group topic@broker-a:0"]) == {"6"}


def test_what_several_workers_of_a_dead_process_had_in_flight_is_said_once(tmp_path: Path) -> None:
    """Workers that share a run of messages have a slot each."""
    others = "for first in (4, 4, 7):\n    journal.note().write(journal.recorder('group', QUEUE)(first, first + 2))\n"
    several = DYING.replace('print("in', 'QUEUE = MessageQueue("topic", "broker-a", 0)\n' + others + 'print("in')
    subprocess.run(
        [sys.executable, "-c", several, str(tmp_path)], input="\n", text=True, capture_output=True, check=False
    )
    told = list[str]()
    Journal(tmp_path, ClockAt(1000.0), told.append).close()
    assert len(told) == 1
    assert f"in flight (group {QUEUE} #4 to #6, group {QUEUE} #7 to #9): each handler" in told[0]


def test_what_is_lifted_by_one_process_is_not_quarantined_by_another(tmp_path: Path) -> None:
    quarantine = {"group topic@broker-a:0": {str(offset): [1, 0, 1000.0, False] for offset in range(3)}}
    (tmp_path / "quarantine.json").write_text(json.dumps(quarantine))
    one, other = opened(tmp_path), opened(tmp_path)
    for offset in (1, 2):
        one.lift("group", QUEUE, offset)
    one.lift("group", QUEUE, 0)
    assert other.quarantined("group", QUEUE, 0) == {}
    one.close()
    other.close()


def test_thousands_of_messages_are_lifted_without_holding_up_the_process(tmp_path: Path) -> None:
    quarantine = {"group topic@broker-a:0": {str(offset): [1, 0, 1000.0, False] for offset in range(5000)}}

    def lift_most() -> float:
        (tmp_path / "quarantine.json").write_text(json.dumps(quarantine))
        journal = opened(tmp_path)
        began = time.process_time()
        for offset in range(4000):
            journal.lift("group", QUEUE, offset)
        spent = time.process_time() - began
        journal.close()
        return spent

    assert cheapest(lift_most, within=1.0) < 1.0
    assert len(of_file(tmp_path)["group topic@broker-a:0"]) == 1000


def test_messages_that_no_process_of_the_machine_met_for_a_day_leave_the_quarantine(tmp_path: Path) -> None:
    (tmp_path / "quarantine.json").write_text(json.dumps({"group topic@broker-a:0": {"5": [1, 0, 1000.0, False]}}))
    opened(tmp_path, now=1001.0 + FORGOTTEN_AFTER).close()
    assert of_file(tmp_path) == {}


def test_the_record_has_its_place_on_the_disk_before_the_first_message(tmp_path: Path) -> None:
    """A sparse file on a disk that becomes full would end the process when it is written to."""
    journal = opened(tmp_path)
    (path,) = tmp_path.glob("*.hand")
    found = path.stat()
    assert found.st_blocks * 512 >= found.st_size > 0
    journal.close()
    assert not list(tmp_path.glob("*.hand"))


def test_a_queue_whose_name_has_no_place_on_the_disk_takes_no_other_ones(tmp_path: Path) -> None:
    script = DYING.replace(
        "journal.note",
        "import resource\n"
        "size = os.stat(next(Path(sys.argv[1]).glob('*.hand'))).st_size\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (size + 5, -1))\n"
        "journal.note().write(journal.recorder('group', MessageQueue('long', 'broker-a', 0))(0, 7))\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1))\n"
        "journal.note",
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], input=b"\n", stdout=subprocess.DEVNULL, check=False)
    journal = opened(tmp_path)
    assert set(journal.quarantined("group", QUEUE, 0)) == {4, 5, 6}
    journal.close()


class Ended(BaseException):
    """Stands for the end of the process."""


@pytest.mark.parametrize("what", ["the next run", "the end of a run", "the end of a quarantined message"])
def test_a_process_without_its_descriptors_ends_while_what_was_in_flight_is_noted_down(
    tmp_path: Path, what: str
) -> None:
    def end(code: int) -> None:
        raise Ended(code)

    (tmp_path / "quarantine.json").write_text(json.dumps({"group topic@broker-a:0": {"4": [1, 0, 1000.0, False]}}))
    broken = Journal(tmp_path, ClockAt(1000.0), lambda _: None, end)
    note = broken.note()
    assert note is not None
    note.write(broken.recorder("group", QUEUE)(4, 4))
    close_descriptors_of(tmp_path)
    with pytest.raises(Ended, match="1"):
        if what == "the next run":
            note.write(broken.recorder("group", QUEUE)(7, 7))
        elif what == "the end of a run":
            note.clear()
        else:
            broken.lift("group", QUEUE, 4)
    del note, broken
    gc.collect()  # the lock of a mapped file lasts as long as the map
    (found,) = opened(tmp_path).quarantined("group", QUEUE, 0).items()
    assert (found[0], found[1].crashes) == (4, 2)


def close_descriptors_of(directory: Path) -> None:
    """As a handler does that closes all there are."""
    for one in list(Path("/proc/self/fd").iterdir()):
        with contextlib.suppress(OSError):
            if str(directory) in str(one.readlink()):
                os.close(int(one.name))


def test_a_queue_has_its_number_before_a_thread_takes_a_message_of_it(tmp_path: Path) -> None:
    """Two that wrote names at once would write them at one place of the file."""
    journal = opened(tmp_path)
    (path,) = tmp_path.glob("*.hand")
    record = journal.recorder("group", QUEUE)
    before = path.read_bytes()
    assert before.endswith(b"group topic@broker-a:0\n")
    record(4, 6)
    assert path.read_bytes() == before
    journal.close()


def test_a_queue_that_was_begun_on_a_full_disk_is_noted_down_when_there_is_room_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "no space left on device")

    journal = opened(tmp_path)
    with monkeypatch.context() as disk:
        disk.setattr(os, "pwrite", is_full)
        record = journal.recorder("group", QUEUE)
        nothing = record(4, 4)
    assert record(4, 4) != nothing
    (path,) = tmp_path.glob("*.hand")
    assert path.read_bytes().endswith(b"group topic@broker-a:0\n")
    journal.close()


def test_names_that_two_threads_write_at_once_have_a_place_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, both, write = opened(tmp_path), threading.Barrier(2), os.pwrite

    def meet(file: int, data: bytes, at: int) -> int:
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(0.2)  # as far as they may be here together
        return write(file, data, at)

    monkeypatch.setattr(os, "pwrite", meet)
    queues = [MessageQueue("topic", "broker-a", number) for number in range(2)]
    with ThreadPoolExecutor(2) as threads:
        records = list(threads.map(lambda queue: journal.recorder("group", queue)(4, 4), queues))
    assert len(set(records)) == 2
    (path,) = tmp_path.glob("*.hand")
    names = path.read_bytes().rpartition(b"\0")[2].split()
    assert sorted(names) == sorted(b"group topic@broker-a:0 group topic@broker-a:1".split())
    journal.close()
