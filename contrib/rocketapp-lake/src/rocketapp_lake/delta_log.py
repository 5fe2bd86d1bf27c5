"""What a Delta log says of sinks: its commits one by one, and the transactions that checkpoints keep.

The library tells a transaction by its name. Which names there are, and what a commit was, is read here, from the files
of the log (Delta's transaction protocol, "Commit Provenance Information" and "Transaction Identifiers").
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pyarrow.parquet as pq

from rocketapp_lake.errors import SinkError
from rocketapp_lake.lanes import Lane
from rocketapp_lake.records import Commit, decode

LOG = "_delta_log"
RECORD = "rocketapp"
"""Where a commit of a sink says what it is, as JSON."""
NONE = -1
"""The version of a lane that the sink does not have any more."""
MEND = "go on with `rocketapp sink rebase`, from where the rows in the table end"


@dataclass(frozen=True, slots=True)
class Entry:
    """One version of a table."""

    version: int
    info: Mapping[str, Any]
    """Its provenance."""
    transactions: Mapping[str, int]

    @property
    def commit(self) -> Commit | None:
        """The commit of a sink that it is."""
        record = self.info.get(RECORD)
        return None if record is None else decode(json.loads(record))

    @property
    def restores(self) -> int | None:
        """The older version that it brings back, if it does that. Raises SinkError when it does not say which."""
        if self.info.get("operation") != "RESTORE":
            return None
        version = self.info.get("operationParameters", {}).get("version")
        if version is None:
            raise SinkError(f"version {self.version} restored the table by time, to a version it does not name: {MEND}")
        return int(version)


def entry(table: Path, version: int) -> Entry | None:
    """None when the log does not have it any more."""
    try:
        lines = (table / LOG / f"{version:020d}.json").read_bytes().splitlines()
    except FileNotFoundError:
        return None
    info: dict[str, Any] = {}
    transactions: dict[str, int] = {}
    for line in lines:
        if line.startswith(b'{"commitInfo"'):
            info = json.loads(line)["commitInfo"]
        elif line.startswith(b'{"txn"'):
            found = json.loads(line)["txn"]
            transactions[found["appId"]] = found["version"]
    return Entry(version, info, transactions)


def entries(table: Path, newest: int) -> Iterator[Entry]:
    """From this version back to the oldest one that the log has."""
    for version in range(newest, -1, -1):
        found = entry(table, version)
        if found is None:
            return
        yield found


def contained(table: Path, newest: int) -> Iterator[Entry]:
    """The same, without what a restore took back: the commits whose rows are in the table, unless they were deleted.

    Raises SinkError when a restore says nothing of which they are.
    """
    version, is_restored = newest, False
    while version >= 0:
        found = entry(table, version)
        if found is None:
            if is_restored:
                raise SinkError(f"{table} was restored to version {version}, which its log has no more: {MEND}")
            return
        restored = found.restores
        is_restored = restored is not None
        if restored is None:
            yield found
            version -= 1
        else:
            version = restored


def transactions(table: Path, newest: int) -> dict[str, int]:
    """All transactions of a version: those of the newest checkpoint, and of what came after it.

    Raises SinkError when versions between these are gone: what is left would say that a queue was never seen.
    """
    at, found = _checkpoint(table, newest)
    behind = [*_behind(table, newest, at)]
    oldest = behind[-1].version if behind else newest + 1
    if oldest > at + 1:
        raise SinkError(
            f"{table}: its log lacks version {oldest - 1}, and has no checkpoint behind it that can be read here: "
            f"write one as Parquet files (delta.checkpointPolicy=classic)"
        )
    for one in reversed(behind):
        found |= one.transactions
    return found


def _behind(table: Path, newest: int, checkpoint: int) -> Iterator[Entry]:
    for one in entries(table, newest):
        if one.version <= checkpoint:
            return
        yield one


def _checkpoint(table: Path, newest: int) -> tuple[int, dict[str, int]]:
    """The newest checkpoint up to this version; -1 for none."""
    versions = {int(file.name[:20]) for file in (table / LOG).glob("*.checkpoint*.parquet")}
    at = max((version for version in versions if version <= newest), default=-1)
    found: dict[str, int] = {}
    for file in (table / LOG).glob(f"{at:020d}.checkpoint*.parquet") if at >= 0 else ():
        for row in pq.read_table(file, columns=["txn"])["txn"].drop_null().to_pylist():
            found[row["appId"]] = row["version"]
    return at, found


# Names of transactions.


def sink_id(sink: str) -> str:
    """Its version is the sequence of the sink."""
    return f"{RECORD}/{quote(sink, safe='')}"


def lane_id(sink: str, lane: Lane) -> str:
    """Its version is the next offset of the lane."""
    return "/".join([sink_id(sink), *(quote(str(part), safe="") for part in lane)])


def sinks_of(found: Mapping[str, int]) -> dict[str, int]:
    """Sequences by sink."""
    parts = {name: name.split("/") for name in found}
    return {unquote(part[1]): found[name] for name, part in parts.items() if part[0] == RECORD and len(part) == 2}


def vector_of(found: Mapping[str, int], sink: str) -> dict[Lane, int]:
    """Where a sink stands."""
    prefix, vector = f"{sink_id(sink)}/", dict[Lane, int]()
    for name, version in found.items():
        if name.startswith(prefix) and version != NONE:
            topic, broker, *numbers = map(unquote, name.removeprefix(prefix).split("/"))
            vector[Lane(topic, broker, *map(int, numbers))] = version
    return vector
