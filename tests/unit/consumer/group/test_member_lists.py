"""The members of a group are what all brokers together know; one that does not answer is not waited for."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rocketapp.consumer.member import Member
from rocketapp.consumer.queues.rebalancer import MemberLists
from rocketapp.tasks import Tasks, is_set_by
from tests.unit.scripted import Events, in_virtual_time


class Answering:
    """Brokers that name these members after these seconds."""

    def __init__(self, **answers: tuple[float, list[str]]) -> None:
        self.answers = answers

    @property
    def slaves(self) -> Answering:
        return self

    def is_new_stand_in(self, name: str) -> bool:
        return False

    def brokers_of(self, topic: str) -> list[str]:
        return list(self.answers)

    def is_connected(self, name: str) -> bool:
        return True

    async def members(self, name: str) -> list[str]:
        seconds, members = self.answers[name]
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
        tasks = Tasks(Events())
        member = cast(Member, SimpleNamespace(brokers=brokers, client_id="me", tasks=tasks))
        began = loop.time()
        found = await MemberLists(member, asyncio.Event()).of("topic")
        assert found == ({"me", "frozen"} if is_heard else {"me"})
        assert loop.time() - began <= 0.5
        await tasks.close()

    story()


def test_who_is_named_too_late_is_heard_by_the_next_look_and_slow_brokers_are_not_asked_for_ever() -> None:
    @in_virtual_time
    async def story() -> None:
        brokers: Any = Answering(a=(0.01, ["me"]), b=(0.6, ["me", "slow"]), c=(0.7, ["me", "slow"]))
        tasks = Tasks(Events())
        member = cast(Member, SimpleNamespace(brokers=brokers, client_id="me", tasks=tasks))
        lists = MemberLists(member, news := asyncio.Event())

        async def looks() -> list[frozenset[str] | None]:
            """What a look finds, and the others that it calls for."""
            found, is_news = list[frozenset[str] | None](), True
            while is_news and len(found) < 20:
                news.clear()
                lists.begin()
                found.append(await lists.of("topic"))
                is_news = await is_set_by(news, asyncio.get_running_loop().time() + 20)
            return found

        first, *others = await looks()
        assert first == {"me"}
        assert others[-1] == {"me", "slow"}
        assert len(others) <= 2
        # Nothing has changed, so no further look is called for.
        assert await looks() == [{"me", "slow"}]
        # Who has left is forgotten as soon as a broker says so, however late.
        brokers.answers["b"] = brokers.answers["c"] = 0.6, ["me"]
        assert (await looks())[-1] == {"me"}
        # One that does not answer at all names nobody.
        brokers.answers["b"] = brokers.answers["c"] = 1e9, ["me", "frozen"]
        assert await looks() == [{"me"}]
        await tasks.close()

    story()
