"""A roll-out in bad company: members that leave, hang, come back, and brokers that do not answer."""

from __future__ import annotations

import asyncio

import pytest

from rocketapp.client import instance
from rocketapp.model import event as events
from tests.simulation.stage import scenario
from tests.simulation.test_roll_out import ORDERS, Groups, Wanting


@scenario
async def test_a_member_that_starts_soon_after_the_last_old_one_has_left_is_ready_at_once() -> None:
    stage = Groups(ORDERS)
    await stage.begin()
    await stage.send_tags("ab", 1)
    old = await stage.member(orders="a || b")
    await stage.member(orders="b || c")
    assert await old.leave()
    await asyncio.sleep(1)
    began = stage.now
    late = await stage.member(orders="b || c")
    assert stage.now - began < 2
    assert late.told(events.SubscriptionsDiffer) == []
    await stage.end()


@scenario
async def test_a_member_that_hangs_does_not_hold_up_the_start_of_one_that_comes_after_it() -> None:
    stage = Groups(ORDERS)
    await stage.begin()
    await stage.send_tags("ab", 1)
    hung = await stage.member(orders="a")
    hung.freeze()
    await stage.member(orders="a")
    await asyncio.sleep(0.5)
    began = stage.now
    new = await stage.member(orders="b")
    assert stage.now - began < 5  # 3 of them for the one that hangs
    hung.thaw()
    await asyncio.sleep(5)
    sent = await stage.send_tags("ab")
    await stage.all_taken(sent)
    assert len(new.taken) >= 8
    await stage.end()


class Named(Wanting):
    """Its client id is always the same, as that of a Java client with an instance name."""

    async def _connect(self) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(instance, "make_client_id", lambda *_: "10.0.1.7@billing")
            await super()._connect()


@scenario
async def test_a_member_that_comes_back_under_its_old_name_is_asked_again() -> None:
    stage = Groups(ORDERS)
    await stage.begin()
    await stage.send_tags("ab", 1)
    first = await stage.member(orders="a")
    before, after = (
        Named(stage.world, f"member-{n}", {"orders": tag}, "roll-out", None) for n, tag in ((2, "b"), (3, "c"))
    )
    stage.members += [before, after]
    await before.join()
    assert await before.leave()
    await asyncio.sleep(2)
    await after.join()
    await asyncio.sleep(2)
    sent = await stage.send_tags("ac")
    await stage.all_taken(sent)
    assert first.unmatched() == 0
    await stage.end()
