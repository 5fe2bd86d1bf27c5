"""A real process on a real directory, killed at once, again and again."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path

from rocketapp.broker.store.files import DirectoryFiles
from tests.unit.broker.store.stores import bodies, open_store

WRITER = """
import itertools, sys
from rocketapp.broker.store.files import DirectoryFiles
from tests.unit.broker.store.stores import open_store, record

store = open_store(DirectoryFiles(sys.argv[1]))
for number in itertools.count(int(sys.argv[2])):
    store.append(record(b"%d:" % number + bytes(number * 37 % 2000), queue_id=number % 2))
    if number % 100 == 0:
        store.flush()
    print(number, flush=True)
"""


def test_a_killed_process_loses_nothing_that_it_had_said_was_stored(tmp_path: Path) -> None:
    root = Path(__file__).parents[4]
    said = -1
    for round_ in range(5):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path / "store"), str(said + 1)],
            stdout=subprocess.PIPE,
            text=True,
            cwd=root,
        )
        assert writer.stdout is not None
        with writer:
            lines = list(itertools.islice(writer.stdout, 150 + round_ * 77))
            writer.kill()
            lines += writer.stdout.read().splitlines()
        files = DirectoryFiles(str(tmp_path / "store"))
        store = open_store(files)
        numbers = [[int(body.partition(b":")[0]) for body in bodies(store, queue_id=queue_id)] for queue_id in (0, 1)]
        stored = max(numbers[0][-1], numbers[1][-1])
        assert numbers == [list(range(queue_id, stored + 1, 2)) for queue_id in (0, 1)]
        assert stored >= int(lines[-1]) >= said + 150
        said = stored
        store.close()
