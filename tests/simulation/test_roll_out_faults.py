"""A roll-out in bad company: members that leave, hang, come back, and brokers that do not answer."""

from __future__ import annotations

import asyncio

import pytest

from rocketapp.client import instance
from rocketapp.model import event as events
from rocketapp.wire.record import Message
from tests.simulation.stage import scenario
from tests.simulation.test_roll_out import ORDERS, Groups, Wanting
from tests.simulation.world import Topic, number_of


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
async def test_a_member_that_hangs_neither_holds_up_the_start_of_another_one_nor_passes_over_what_that_wants() -> None:
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
    sent = await stage.send_tags("ab")
    hung.thaw()
    await stage.all_taken(sent)
    assert {tag for tag, _ in new.taken} == {"b"}
    assert hung.unmatched() == 0  # it got messages of one that it had not heard of
    await stage.end()


class Named(Wanting):
    """Its client id is always the same, as that of a Java client with an instance name."""

    async def connect(self) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(instance, "make_client_id", lambda *_, **__: "10.0.1.7@billing")
            await super().connect()


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


class Slow:
    """A handler that takes its time, and notes how many of its calls run at once."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.running, self.most, self.ended = seconds, 0, 0, [0]

    async def __call__(self, message: Message) -> None:
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(self.seconds)
        self.running -= 1
        self.ended.append(number_of(message.body))


@scenario
async def test_a_member_that_stops_waits_for_what_another_one_does_for_it_as_for_its_own_handlers() -> None:
    stage, slow = Groups(ORDERS), Slow(25.0)
    await stage.begin()
    await stage.send_tags("ab", 1)
    old = await stage.member(orders="a || b")
    new = await stage.member(orders="b || c", handle=slow)
    sent = await stage.send_tags("c", 8)
    await asyncio.sleep(1)
    assert await old.leave()
    await stage.all_taken(sent, 90)
    await asyncio.sleep(60)
    assert sorted(number for tag, number in new.taken if tag == "c") == sorted(number for _, number in sent)
    await stage.end()


@scenario
async def test_in_order_no_other_member_is_asked_while_one_that_is_not_seen_may_be_at_it() -> None:
    stage, slow = Groups(Topic(name="orders", orderly=True), latency=0.05), Slow(5.0)
    await stage.begin()
    await stage.send_tags("a", 1)
    await stage.member(orders="a")
    others = [await stage.member(orders="b", handle=slow) for _ in range(2)]
    # The queue of this key is one of the first member.
    sent = [await stage.sender.send("orders", "D", tag="b") for _ in range(4)]
    await stage.until(lambda: slow.running)
    at_it, _ = others  # the first message of a queue is offered to the first of them
    stage.world.network.hold(at_it.name)
    stage.world.network.cut(at_it.name)
    await asyncio.sleep(3)
    stage.world.network.release(at_it.name)
    await stage.until(lambda: set(slow.ended) >= set(sent), 120)
    assert slow.most == 1
    await stage.end()


@pytest.mark.parametrize("topic", [ORDERS, Topic(name="orders", orderly=True)], ids=["concurrent", "orderly"])
@scenario
async def test_what_a_member_that_was_killed_had_taken_goes_to_another_one_that_subscribes_alike(topic: Topic) -> None:
    stage, slow = Groups(topic), [Slow(8.0), Slow(8.0)]
    await stage.begin()
    await stage.sender.send("orders", "D", tag="a")
    await stage.member(orders="a")  # the queue of this key is its own
    equals = [await stage.member(orders="b", handle=each) for each in slow]
    sent = {("b", await stage.sender.send("orders", "D", tag="b")) for _ in range(4)}
    await stage.until(lambda: any(each.running for each in slow))
    killed = next(at for at, each in enumerate(slow) if each.running)
    equals[killed].crash(silently=False)
    stage.members.remove(equals[killed])
    await stage.all_taken(sent, 180)
    assert set(equals[1 - killed].taken) >= sent - set(equals[killed].taken)
    await stage.end()


@scenario
async def test_a_start_goes_on_waiting_for_a_member_while_the_broker_does_not_answer() -> None:
    stage = Groups(ORDERS, latency=0.05)
    await stage.begin()
    await stage.send_tags("ab", 1)
    old = await stage.member(orders="a || b")
    new = Wanting(stage.world, "member-2", {"orders": "b || c"}, "roll-out", None)
    stage.members.append(new)
    joining = asyncio.ensure_future(new.join())
    await stage.until(lambda: new.told(events.RollOut))
    old.freeze()
    await asyncio.sleep(5)
    stage.broker.freeze()
    await asyncio.sleep(6)
    stage.broker.thaw()
    await asyncio.sleep(1)
    old.thaw()
    await joining
    assert old.consumer.running_info(brief=True).pulled == {"orders": "a || b || c"}
    await stage.end()


@scenario
async def test_in_order_a_queue_is_not_begun_beside_a_message_of_it_that_was_taken_for_its_owner_before() -> None:
    stage, slow = Groups(Topic(name="orders", orderly=True)), Slow(90.0)
    await stage.begin()
    await stage.send_tags("a", 1)
    owner = await stage.member(orders="a")
    await stage.member(orders="b", handle=slow)
    sent = [await stage.sender.send("orders", "D", tag="b") for _ in range(2)]
    await stage.until(lambda: slow.running)
    owner.crash()
    await stage.until(lambda: set(slow.ended) >= set(sent), 500)
    assert slow.most == 1
    await stage.end()
