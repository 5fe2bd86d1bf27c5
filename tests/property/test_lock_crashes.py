"""Whatever moment a broker is killed at or loses its power: no lock that it granted goes to another client."""

from __future__ import annotations

import contextlib
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from rocketapp.broker.data_version import DataVersion
from rocketapp.broker.groups import GroupTable
from rocketapp.broker.locks import LockTable
from rocketapp.broker.offsets import OffsetTable
from rocketapp.broker.pop_modes import RequestModes
from rocketapp.broker.pop_order import PopOrder
from rocketapp.broker.saving import Saving
from rocketapp.broker.store.files import Files
from rocketapp.broker.topics import TopicTable
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


def opened(files: Files, time: Time) -> tuple[Saving, LockTable]:
    """The locks of a broker that starts on these files."""
    store = open_store(files)
    store.append(record(b"", "A", 0))
    version, locks = DataVersion(0.0), LockTable(60)
    saving = Saving(
        files,
        clock=time,
        observe=lambda _: None,
        topics=TopicTable(version, cluster="C", broker="broker-a", auto_create=True, queues=4),
        groups=GroupTable(version),
        offsets=OffsetTable(version),
        locks=locks,
        modes=RequestModes(),
        order=PopOrder(),
        monotonic=lambda: time.seconds,
    )
    saving.load_locks(store)
    saving.save_locks()
    return saving, locks


@given(st.integers(0, 2**32), st.integers(1, 150), st.booleans())
@settings(max_examples=150, deadline=None)
def test_no_crash_gives_a_lock_to_a_second_client(seed: int, stop_at: int, with_power: bool) -> None:
    def stop(number: int, name: str, path: str) -> None:
        if number >= stop_at:
            raise Stopped

    random, time, disk = Random(seed), Time(), Disk()
    saving, locks = opened(disk, time)
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
                saving.save_locks()
            else:
                granted = locks.lock("G", queues, client, time.seconds)
                saving.save_locks()
                holders.update(dict.fromkeys(granted, (client, time.seconds)))
    disk.on_call = None
    files = disk.killed() if with_power else disk.without_power(random)
    time.seconds += random.choice((0, 3, 25))
    _, locks = opened(files, time)
    for queue, (holder, told) in holders.items():
        if time.seconds - told <= 30:  # as long as a holder trusts its lock
            for client in CLIENTS:
                assert client == holder or locks.lock("G", [queue], client, time.seconds) == []
