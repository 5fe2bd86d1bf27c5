"""Ten days of a broker: what it weighs stays what it was, nothing is lost, and no group gets anything twice.

They pass in memory. What a broker keeps open is counted on a disk, where files leave by the hour.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketapp.broker.replication import slave
from rocketapp.wire.codes import RequestCode, ResponseCode
from tests.unit.broker.life import DAY, HOUR, live
from tests.unit.broker.replication.test_slave import Node
from tests.unit.broker.store.stores import SEGMENT, SetClock
from tests.unit.broker.test_transactions import COMMIT, end, half
from tests.unit.scripted import eventually
from tests.virtual import run_virtual

DAYS = 10
A_GROUP = 500
"""Bytes that a group and its retry topic take in the tables for ever, as in Apache RocketMQ: each day brings one."""


def test_ten_days_leave_nothing_behind() -> None:
    weights = run_virtual(lambda: live(DAYS), limit=(DAYS + 1) * DAY)
    early, late = weights[3], weights[-1]
    days = late.day - early.day
    assert late.stored_bytes < 1.05 * early.stored_bytes, weights
    assert max(weight.files for weight in weights) < 45, weights
    assert late.table_bytes - early.table_bytes < days * A_GROUP, weights
    assert late.objects - early.objects < days * 60, weights
    assert max(weight.start_bytes for weight in weights) < 8 << 20, weights


HOURS, FIRST_HOURS = 40, 10
AT_MOST = 6
"""Files of the log after an hour: those of two hours that are kept, the last ones, and one that a slave is sent."""


async def test_no_file_that_has_left_stays_open_at_a_master_or_at_its_slave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slave, "INTERVAL", 0.1)
    clock = SetClock()
    often = {"clean_interval": 0.02, "flush_interval": 0.02, "index_slots": 101, "index_items": 512}
    options = {"delete_when": ";".join(map(str, range(24))), "reserved_hours": 2.0, **often}
    directories = [tmp_path / "master", tmp_path / "slave"]
    first = await Node(clock=clock, dir=str(directories[0]), **options).start()
    second = Node(clock=clock, dir=str(directories[1]), role="slave", id=1, master=first.address, **options)
    try:
        await second.start()
        try:
            most, seen = 0, set[Path]()
            for hour in range(HOURS):
                await an_hour(first, hour)
                seen = seen.union(*map(log_files, directories))
                clock.time += HOUR
                await eventually(lambda: all(len(log_files(each)) <= AT_MOST for each in directories), 30)
                if hour < FIRST_HOURS:
                    most = max(most, descriptors())
            # One more each hour would be 30 more; a few are open for a moment.
            await eventually(lambda: descriptors() <= most + 5, 10)
            assert len(seen) > HOURS
        finally:
            await second.stop()
    finally:
        await first.stop()


async def an_hour(node: Node, hour: int) -> None:
    """More than a segment of messages, with keys, a transaction, and a topic that is gone an hour later."""
    for number in range(8):
        answer = await node.client.send(
            "bills", b"x" * (SEGMENT // 7), f"KEYS\x01{hour}-{number}\x02", queue_id=number % 4
        )
        assert answer.code == ResponseCode.SUCCESS, answer.remark
    assert await end(node.client, await half(node.client), COMMIT) == ResponseCode.SUCCESS
    await node.client.send(f"temporary-{hour}", queue_id=0)
    await node.client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": f"temporary-{hour - 1}"})
    for queue_id in range(4):
        assert await node.client.messages("bills", (hour + 1) * 2 - 1, queue_id=queue_id)


def log_files(directory: Path) -> set[Path]:
    return set((directory / "commitlog").glob("*"))


def descriptors() -> int:
    """How many this process has."""
    return len(list(Path("/dev/fd").iterdir()))
