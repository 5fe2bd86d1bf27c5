"""The members of a group are what all brokers together know; one that does not answer is not waited for."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rocketapp.consumer.member import Member
from rocketapp.consumer.queues.rebalancer import MemberLists
from rocketapp.tasks import Tasks
from tests.unit.scripted import Events, in_virtual_time


class Answering:
    """Brokers that name these members after these seconds."""

    def __init__(self, **answers: tuple[float, list[str]]) -> None:
        self._answers = answers

    @property
    def slaves(self) -> Answering:
        return self

    def is_new_stand_in(self, name: str) -> bool:
        return False

    def brokers_of(self, topic: str) -> list[str]:
        return list(self._answers)

    def is_connected(self, name: str) -> bool:
        return True

    async def members(self, name: str) -> list[str]:
        seconds, members = self._answers[name]
        await asyncio.sleep(seconds)
        return members


@pytest.mark.parametrize(
    ("seconds", "is_heard"),
    [(0.01, True), (0.3, True), (30.0, False)],
    ids=["at once", "over a slow network", "frozen"],
)
def test_a_broker_that_answers_a_little_later_is_heard_and_a_frozen_one_is_not_waited_for(
    seconds: float, is_heard: bool
) -> None:
    @in_virtual_time
    async def story() -> None:
        loop = asyncio.get_running_loop()
        brokers: Any = Answering(a=(0.01, ["me"]), b=(seconds, ["me", "frozen"]))
        tasks, member = Tasks(Events()), cast(Member, SimpleNamespace(brokers=brokers, client_id="me"))
        began = loop.time()
        found = await MemberLists(member, tasks).of("topic")
        assert found == ({"me", "frozen"} if is_heard else {"me"})
        assert loop.time() - began <= 0.5
        await tasks.close()

    story()
