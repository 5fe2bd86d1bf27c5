"""The commits of one sink in a Parquet directory: a file each, created if absent.

<table>/_rmq_log/<sink>/<sequence>.json
<table>/_rmq_log/<sink>/<sequence>.done   beside the newest one: its files are in place
"""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from time import time_ns
from typing import Any
from urllib.parse import quote

from rocketapp_lake.errors import FencedError, SinkError
from rocketapp_lake.records import decode
from rocketapp_lake.staging import make, sync

LOG = "_rmq_log"
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS}
"""What `link` raises where there are none."""


class ParquetLog:
    """What it holds is plain values: a commit as `records.encode` has it, and its files."""

    def __init__(self, table: Path, sink: str) -> None:
        self.path = table / LOG / quote(sink, safe="")
        self._known = 0
        """A number that has been seen."""

    def __repr__(self) -> str:
        return f"<ParquetLog {self.path}>"

    def newest(self) -> int:
        """The number of the newest commit; 0 without any."""
        if not self._known or not self._name(self._known).exists():
            # Other programs may leave files of their own in it.
            numbers = (entry.stem for entry in self.path.glob("*.json") if entry.stem.isdecimal())
            self._known = max(map(int, numbers), default=0)
        # Counted on: a directory with a file for each commit ever made is not listed again.
        while self._known and self._name(self._known + 1).exists():
            self._known += 1
        return self._known

    def entry(self, sequence: int) -> dict[str, Any] | None:
        """A commit; None when it is not there. Raises SinkError for one that is damaged."""
        return read(self._name(sequence))

    def create(self, sequence: int, content: bytes) -> None:
        """The commit point; `sync` makes it last. Raises FencedError if this number is taken."""
        make(self.path)
        name = self._name(sequence)
        coming = name.with_name(f".{name.name}.{os.getpid()}.{time_ns()}")
        try:
            with coming.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.link(coming, name)
        except FileExistsError:
            raise FencedError(f"{name}: another owner has committed it") from None
        except OSError as error:
            if error.errno in _NO_LINKS:
                raise SinkError(
                    f"{self.path}: the table has to be on a file system with hard links: {error}"
                ) from error
            raise
        finally:
            coming.unlink(missing_ok=True)

    def sync(self) -> None:
        """Commits that are there survive the machine: before their files are moved, which would be there without."""
        sync(self.path)

    def is_done(self, sequence: int) -> bool:
        """Whether the files of a commit were in place, whatever became of them since."""
        return self.mark(sequence).exists() or self._name(sequence + 1).exists()

    def done(self, sequence: int) -> None:
        """They are, and will be after a power cut."""
        self.mark(sequence).touch()
        self.mark(sequence - 1).unlink(missing_ok=True)

    def mark(self, sequence: int) -> Path:
        """The file that says so."""
        return self._name(sequence).with_suffix(".done")

    def _name(self, sequence: int) -> Path:
        return self.path / f"{sequence:020d}.json"


def read(file: Path) -> dict[str, Any] | None:
    """A commit; None when it is not there. Raises SinkError for one that is damaged."""
    try:
        found: dict[str, Any] = json.loads(file.read_bytes())
        decode(found)
        if not isinstance(found["files"], list):
            raise ValueError("it names no files")
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, AttributeError) as error:
        raise SinkError(f"{file} is damaged: restore it from a copy of the table: {error}") from None
    return found
