"""Many messages of Apache RocketMQ land in a directory of Parquet files, and the app is killed on the way.

The app is the one of the kill runs, with a sink or, as the control, with a handler that appends its batches. It is a
process group of its own, killed as a whole when a part of the rows is there, and started again at once. Afterwards each
offset of each queue has to be there once; with the handler some have to be there twice.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.peers.clusters import Apache
from tests.peers.waiting import wait_until
from tests.spark.cluster import TOPIC, fill

APP = Path(__file__).parents[2] / "contrib" / "rocketapp-lake" / "tests" / "sink" / "kills.py"
COLUMNS = ["_rmq_topic", "_rmq_broker", "_rmq_queue", "_rmq_offset"]
BATCH = 20_000
PATIENCE = 900.0
"""Seconds for each part of the run."""
BEGAN = time.monotonic()


class Files:
    """Of one table, as a reader sees them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._rows: dict[Path, int] = {}

    def whole(self) -> dict[Path, int]:
        """Those that can be read, and their rows: a handler that is killed leaves torn ones as well."""
        found = {}
        for file in self.path.rglob("*.parquet"):
            if any(part.startswith(("_", ".")) for part in file.relative_to(self.path).parts):
                continue
            if file not in self._rows:
                try:
                    self._rows[file] = pq.read_metadata(file).num_rows
                except (OSError, pa.ArrowException):
                    continue
            found[file] = self._rows[file]
        return found

    def rows(self) -> int:
        return sum(self.whole().values())

    def distinct(self) -> int:
        """Places of messages that are there."""
        parts = [pq.ParquetFile(file).read(columns=COLUMNS) for file in self.whole()]
        return int(pa.concat_tables(parts).group_by(COLUMNS).aggregate([]).num_rows) if parts else 0


class App:
    """Of which one at a time runs."""

    def __init__(self, directory: Path, format: str, *, is_naive: bool) -> None:
        self._command = [sys.executable, str(APP), "--app", "--format", format, *(["--naive"] if is_naive else [])]
        self._log = directory / "app.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, start_new_session=True, stdout=log, stderr=log)

    def kill(self) -> None:
        if self._process is None:
            return
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def said(self) -> str:
        return self._log.read_text()[-4000:]


def run(directory: Path, *, count: int, kills: int, format: str, is_naive: bool) -> dict[str, Any]:
    """The figures of one run."""
    broker = Apache(directory / "broker", heap="1g")
    app, files = App(directory, format, is_naive=is_naive), Files(directory / "table")
    files.path.mkdir()
    options = {"table": str(files.path), "flush_rows": BATCH, "flush_seconds": 2.0}
    os.environ |= {
        "ROCKETAPP_CLIENT__NAME_SERVER": broker.name_server,
        "ROCKETAPP_CONSUMER__CRASH_DIR": "",
        "ROCKETAPP_SPARK__CONF": "spark.driver.memory=1g",
        "KILLS_SINK": json.dumps({"table": str(files.path)} if is_naive else options),
    }
    try:
        fill(broker.broker_address, count)
        _tell(f"{count} messages are in {TOPIC}", files)
        began = time.monotonic()
        app.start()
        for number in range(1, kills + 1):
            _wait(f"part {number} of the rows", lambda: files.rows() >= count * number // (kills + 1), app)  # noqa: B023
            threading.Event().wait(2 * random.random())
            app.kill()
            _tell(f"kill {number}", files)
            app.start()
        _wait("as many rows as messages", lambda: files.rows() >= count, app)
        _wait("every message", lambda: files.distinct() >= count, app)
        seconds = time.monotonic() - began
    finally:
        app.kill()
        broker.stop()
    rows, distinct = files.rows(), files.distinct()
    return {
        "format": format,
        "naive": is_naive,
        "messages": count,
        "kills": kills,
        "seconds": round(seconds, 1),
        "files": len(files.whole()),
        "rows": rows,
        "distinct": distinct,
        "lost": count - distinct,
        "duplicates": rows - distinct,
    }


def is_right(figures: dict[str, Any]) -> bool:
    """Nothing is lost, and nothing twice there, unless that is what has to be shown."""
    return figures["lost"] == 0 and (figures["duplicates"] > 0) == figures["naive"]


def _wait(what: str, holds: Any, app: App) -> None:
    try:
        wait_until(holds, within=PATIENCE, what=what, every=1.0)
    except Exception as error:
        raise TimeoutError(f"{what}: {error}\n{app.said()}") from error


def _tell(what: str, files: Files) -> None:
    print(f"{time.monotonic() - BEGAN:6.1f} s  {what}, {files.rows()} rows", file=sys.stderr, flush=True)
