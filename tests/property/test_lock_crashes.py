"""Whatever moment a broker is killed at or loses its power: no lock that it granted goes to another client."""

from __future__ import annotations

import contextlib
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from rocketapp.broker.lock_file import LockFile
from rocketapp.broker.locks import LockTable
from rocketapp.broker.store.files import Files
from rocketapp.model.message_queue import MessageQueue
from tests.unit.broker.store.disk import Disk, Stopped
from tests.unit.broker.store.stores import open_store, record

QUEUES = [MessageQueue("A", "broker-a", queue_id) for queue_id in range(4)]
CLIENTS = ["one", "two", "three"]


class Time:
    """Both clocks; they agree."""

    seconds = 1000.0

    def now(self) -> float:
        return 1e9 + self.seconds


def opened(files: Files, time: Time) -> tuple[LockFile, LockTable]:
    """The locks of a broker that starts on these files."""
    store, locks = open_store(files), LockTable(60)
    store.append(record(b"", "A", 0))
    file = LockFile(files, locks, clock=time, monotonic=lambda: time.seconds, observe=lambda _: None, in_thread=False)
    file.load(store)
    file.save_now()
    return file, locks


@given(st.integers(0, 2**32), st.integers(1, 150), st.booleans())
@settings(max_examples=150, deadline=None)
def test_no_crash_gives_a_lock_to_a_second_client(seed: int, stop_at: int, with_power: bool) -> None:
    def stop(number: int, name: str, path: str) -> None:
        if number >= stop_at:
            raise Stopped

    random, time, disk = Random(seed), Time(), Disk()
    file, locks = opened(disk, time)
    disk.calls, disk.on_call = 0, stop
    holders: dict[MessageQueue, tuple[str, float]] = {}
    """Who was told of a lock, and when."""
    with contextlib.suppress(Stopped):
        for _ in range(60):
            time.seconds += random.choice((0, 1, 5, 20))
            client, queues = random.choice(CLIENTS), random.sample(QUEUES, random.randint(1, 4))
            if random.random() < 0.3:
                for queue in queues:
                    if holders.get(queue, ("", 0.0))[0] == client:
                        del holders[queue]
                locks.unlock("G", queues, client)
                file.save_now()
            else:
                granted = locks.lock("G", queues, client, time.seconds)
                file.save_now()
                holders.update(dict.fromkeys(granted, (client, time.seconds)))
    disk.on_call = None
    files = disk.killed() if with_power else disk.without_power(random)
    time.seconds += random.choice((0, 3, 25))
    _, locks = opened(files, time)
    for queue, (holder, told) in holders.items():
        if time.seconds - told <= 30:  # as long as a holder trusts its lock
            for client in CLIENTS:
                assert client == holder or locks.lock("G", [queue], client, time.seconds) == []
