"""The tables of its master that a slave has on its own disk."""

from __future__ import annotations

import errno
import json
from copy import deepcopy

import pytest

from rocketapp.broker.replication import slave
from rocketapp.broker.store.config_files import GROUPS
from rocketapp.broker.store.files import File, MemoryFiles
from rocketapp.wire.codes import RequestCode, ResponseCode
from tests.unit.broker.replication.test_slave import Node, eventually_async, pair
from tests.unit.scripted import eventually


async def retries(node: Node) -> dict[str, int]:
    """By group, of those that the test makes."""
    answer = await node.client.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    table = json.loads(answer.body)["subscriptionGroupTable"]
    return {name: group["retryMaxTimes"] for name, group in table.items() if name in ("billing", "shipping")}


async def test_what_a_slave_says_of_groups_survives_a_kill(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slave, "INTERVAL", 0.1)
    async with pair() as (first, second):
        made = dict[str, int]()
        for name, most in (("billing", 3), ("shipping", 4), ("billing", 5)):
            body = json.dumps({"groupName": name, "retryMaxTimes": most}).encode()
            answer = await first.client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body)
            assert answer.code == ResponseCode.SUCCESS
            made[name] = most
            await eventually_async(lambda: retries(second), made)
        killed = deepcopy(second.files)
    third = await Node(killed).start()
    try:
        assert await retries(third) == {"billing": 5, "shipping": 4}
    finally:
        await third.stop()


class _Full(MemoryFiles):
    """It has no room for groups while that is said, and counts how often it was asked."""

    is_full, asked = False, 0

    def open(self, path: str, *, create: bool = False) -> File:
        if self.is_full and path.startswith(GROUPS):
            self.asked += 1
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().open(path, create=create)


async def test_what_a_slave_could_not_write_is_taken_over_again_when_there_is_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(slave, "INTERVAL", 0.1)
    first, files = await Node().start(), _Full()
    second = await Node(files, role="slave", id=1, master=first.address).start()
    try:
        await eventually_async(lambda: retries(second), {})
        files.is_full = True
        body = json.dumps({"groupName": "billing", "retryMaxTimes": 3}).encode()
        await first.client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body)
        await eventually(lambda: files.asked > 1)
        files.is_full = False
        await eventually_async(lambda: retries(second), {"billing": 3})
        assert files.asked > 1
    finally:
        await second.stop()
        await first.stop()
