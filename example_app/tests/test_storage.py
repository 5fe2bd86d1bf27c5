"""The books of the shop, opened by several processes at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

from sqlalchemy.orm import Session

from example_app import storage
from example_app.parts import parts


def test_workers_that_start_together_fill_the_shelf_once(tmp_path: Path) -> None:
    together = Barrier(4)

    def start(_: int) -> None:
        together.wait()
        storage.open_books(parts.shelf())

    with parts.database_file.override(str(tmp_path / "new.db")):
        with ThreadPoolExecutor(4) as workers:
            assert list(workers.map(start, range(4))) == [None] * 4
        with Session(storage.engine) as session:
            assert parts.shelf().pieces(session) == {"tea": 10, "coffee": 10, "cocoa": 10}
