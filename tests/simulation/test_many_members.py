"""What members of a large group ask each other: nothing among equals, and in a roll-out a bounded number a second.

60 members, or 200 with ROCKETAPP_FAULTS=full: what it costs to compute grows with their square.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter

from rocketapp.consumer.rollout.check import _A_SECOND
from rocketapp.wire.codes import RequestCode
from rocketapp.wire.command import Command
from tests.simulation.stage import scenario
from tests.simulation.test_roll_out import ORDERS, Groups, Wanting

HALF = 100 if os.environ.get("ROCKETAPP_FAULTS") == "full" else 30


class Questions:
    """The questions of members to members, as their broker hears them: how many in which second."""

    def __init__(self, stage: Groups) -> None:
        self.in_second: Counter[int] = Counter()
        self._stage = stage
        stage.broker.overhear(self._hear)

    def _hear(self, command: Command) -> None:
        if command.code == RequestCode.GET_CONSUMER_RUNNING_INFO:
            self.in_second[int(self._stage.now)] += 1


async def joined(stage: Groups, count: int, tags: str) -> list[Wanting]:
    """So many members start in the same moment."""
    first = len(stage.members) + 1
    members = [Wanting(stage.world, f"member-{first + n}", {"orders": tags}, "roll-out", None) for n in range(count)]
    stage.members += members
    await asyncio.gather(*(member.join() for member in members))
    return members


@scenario
async def test_of_members_that_start_at_once_and_subscribe_alike_none_asks_another_one() -> None:
    stage = Groups(ORDERS, latency=0.002, rebalance_interval=20.0)
    await stage.begin()
    await stage.send_tags("a", 1)
    questions = Questions(stage)
    await joined(stage, 2 * HALF, "a || b")
    await asyncio.sleep(10)
    assert questions.in_second.total() == 0
    await stage.end()


@scenario
async def test_a_roll_out_asks_a_bounded_number_of_questions_a_second_however_many_members_there_are() -> None:
    stage = Groups(ORDERS, latency=0.002)
    await stage.begin()
    await stage.send_tags("ab", 1)
    old = await joined(stage, HALF, "a || b")
    questions = Questions(stage)
    new = await joined(stage, HALF, "b || c")
    sent = await stage.send_tags("abc")
    await stage.all_taken(sent, 60)
    await asyncio.sleep(30)
    assert max(questions.in_second.values()) <= 5 * _A_SECOND
    assert questions.in_second.total() <= 15 * HALF  # with everybody asking everybody 2 * HALF * HALF
    assert sum(member.unmatched() for member in (*old, *new)) == 0
    await stage.end()
