"""Logs of the size that they have after months: how soon the embedded broker serves when it starts on one."""

from __future__ import annotations

from pathlib import Path

from rocketapp.broker.store.files import DirectoryFiles
from rocketapp.broker.store.store import MessageStore
from rocketapp.clock import SystemClock
from rocketapp.config.broker import BrokerConfig
from rocketapp.wire.layout import Record
from tests.faults.scenarios import Figures
from tests.peers.clusters import Embedded
from tests.peers.loading import Loader, Sent

_AT_ONCE, _QUEUES, _FLUSHED = 64, 8, 1 << 28
LONGEST_START = 5.0
"""Seconds within which it serves."""


def fill(directory: Path, log_bytes: int, *, body_bytes: int = 4096) -> int:
    """Write a store with so much in its log, as a broker does that is stopped then; returns its messages."""
    directory.mkdir(parents=True, exist_ok=True)
    store = MessageStore(DirectoryFiles(str(directory)), BrokerConfig(), SystemClock())
    batches = [
        [Record("old", bytes(body_bytes), b"", queue_id, born_ms=1, born_port=1, store_port=1)] * _AT_ONCE
        for queue_id in range(_QUEUES)
    ]
    count = flushed = 0
    while store.end_position < log_bytes:
        count += len(store.append_batch(batches[count // _AT_ONCE % _QUEUES]))
        if store.end_position - flushed > _FLUSHED:
            flushed = store.end_position
            store.flush()
    store.close()
    return count


def large_log(directory: Path, log_bytes: int, *, kills: int = 3) -> Figures:
    """Starts after a clean stop and after kills, each with messages behind the last flush; all is served."""
    count, starts, more = fill(directory / "data", log_bytes), list[float](), 2_000
    broker = Embedded(directory)
    try:
        starts.append(broker.seconds_to_serve)
        for _ in range(kills):
            Loader(broker.broker_address).send("old", 0, [Sent(b"new")] * more)
            broker.kill_broker()
            broker.start_again()
            starts.append(broker.seconds_to_serve)
        ends = sum(Loader(broker.broker_address).end("old", queue_id) for queue_id in range(_QUEUES))
    finally:
        broker.stop()
    assert ends == count + kills * more, (ends, count)
    figures = {"log_gib": round(log_bytes / (1 << 30), 1), "messages": ends, "kills": kills}
    assert max(starts) <= LONGEST_START, (starts, figures)
    return {**figures, "starts_s": [round(each, 2) for each in starts]}
