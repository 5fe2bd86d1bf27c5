"""Members with different subscriptions join, leave, die, freeze and lose their connections, as a seed says.

One member that wants each tag lives all the time, so each message has to be handled by a member that wants it.
"""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from rocketapp.wire.record import Message
from tests.simulation.stage import scenario
from tests.simulation.test_roll_out import Groups, Wanting
from tests.simulation.world import Topic

SEEDS, STEPS = 12, 25
STEP = "send", "send", "join", "leave", "crash", "freeze", "cut"


class RollOut:
    """One run."""

    def __init__(self, seed: int) -> None:
        self._random = random = Random(seed)
        topic = Topic(name="orders", orderly=seed % 4 == 3, keyed=seed % 4 == 2)
        self._stage = Groups(topic, latency=random.choice((0.0, 0.002, 0.02)), brokers=random.choice((1, 1, 2)))
        self._lasting: list[Wanting] = []
        self._passing: list[Wanting] = []
        self._sent: set[tuple[str, int]] = set()

    async def run(self) -> int:
        """Returns how many messages were unmatched. Raises AssertionError when one is not handled in time."""
        stage = self._stage
        await stage.begin()
        await stage.send_tags("abc", 1)
        self._lasting = [await self._member(tags) for tags in ("a || b", "b || c")]
        await asyncio.sleep(1)
        for _ in range(STEPS):
            await self._step(self._random.choice(STEP))
            await asyncio.sleep(self._random.choice((0, 0.1, 1, 5)))
        await self._send(3)
        await stage.all_taken(self._sent, 400)
        unmatched = sum(member.unmatched() for member in (*self._lasting, *self._passing))
        await stage.end()
        return unmatched

    async def _step(self, step: str) -> None:
        if step == "send":
            await self._send(3)
        elif step == "join" and len(self._passing) < 3:
            self._passing.append(await self._member(self._random.choice(("a", "a || b", "b || c", "c", "*"))))
        elif step == "leave" and self._passing:
            await self._one_that_goes().leave()
        elif step == "crash" and self._passing:
            self._one_that_goes().crash()
        elif step == "freeze":
            await self._freeze()
        elif step == "cut":
            self._stage.world.network.cut(self._any().name)

    async def _freeze(self) -> None:
        member = self._any()
        member.freeze()
        await self._send(2)
        await asyncio.sleep(self._random.choice((0.5, 3, 12)))
        member.thaw()

    async def _member(self, tags: str) -> Wanting:
        return await self._stage.member(handle=self._handle, orders=tags)

    async def _send(self, times: int) -> None:
        for tag in "abc" * times:
            self._sent.add((tag, await self._stage.sender.send("orders", self._random.choice("xyz"), tag=tag)))

    async def _handle(self, message: Message) -> None:
        await asyncio.sleep(self._random.choice((0, 0, 0.01, 0.5)))

    def _any(self) -> Wanting:
        return self._random.choice(self._lasting + self._passing)

    def _one_that_goes(self) -> Wanting:
        return self._passing.pop(self._random.randrange(len(self._passing)))


@pytest.mark.parametrize("seed", range(SEEDS))
@scenario
async def test_each_message_is_handled_by_a_member_that_wants_it(seed: int) -> None:
    assert await RollOut(seed).run() == 0
