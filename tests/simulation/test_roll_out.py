"""Members of one group that subscribe differently, on an embedded broker in virtual time.

Nothing that a member wants is lost while they replace each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rocketapp.config.consumer import ConsumerConfig
from rocketapp.consumer.handler import ConsumedTopic
from rocketapp.consumer.rollout.check import LINGER, digest
from rocketapp.errors import ConfigError
from rocketapp.model import event as events
from rocketapp.wire.record import Message
from tests.simulation.cluster import Member
from tests.simulation.stage import Stage, scenario
from tests.simulation.world import GROUP, Topic, World, number_of

ORDERS = Topic(name="orders")
Handle = Callable[[Message], Awaitable[None]]


class Wanting(Member):
    """A member with subscriptions of its own: tags by topic."""

    def __init__(self, world: World, name: str, wants: dict[str, str], mode: str, handle: Handle | None) -> None:
        super().__init__(world, name)
        self._wants, self._mode, self._handle_one = wants, mode, handle
        self.taken: list[tuple[str | None, int]] = []
        """Tag and number of what its handlers did, in order."""

    def _subscribed(self) -> str:
        return digest({GROUP: self.topics()}, ConsumerConfig(**self.options()))

    def options(self) -> dict[str, Any]:
        return {**super().options(), "subscription_check": self._mode}

    def topics(self) -> list[ConsumedTopic]:
        shapes = {topic.name: topic for topic in self.world.topics}
        wanted = [replace(shapes.get(topic, Topic(name=topic)), tags=tags) for topic, tags in self._wants.items()]
        return [self.consumed(topic) for topic in wanted]

    async def handle(self, item: Message) -> None:
        if self._handle_one is not None:
            await self._handle_one(item)
        self.taken.append((item.tag, number_of(item.body)))

    def unmatched(self) -> int:
        return self.consumer.counters.unmatched

    def told(self, kind: type[events.Event]) -> list[Any]:
        return [event for _, name, event in self.world.observed if name == self.name and isinstance(event, kind)]


class Groups(Stage):
    """A stage whose members want different things."""

    async def member(
        self, *, check: str = "roll-out", handle: Handle | None = None, notes_in: Path | None = None, **wants: str
    ) -> Wanting:
        member = Wanting(self.world, f"member-{len(self.members) + 1}", wants, check, handle)
        member.notes_in = notes_in
        self.members.append(member)
        await member.join()
        return member

    async def send_tags(self, tags: str, times: int = 8, topic: str = "orders") -> set[tuple[str, int]]:
        """Every tag so often, spread over the queues; tag and number of each message."""
        return {(tag, await self.sender.send(topic, tag=tag)) for _ in range(times) for tag in tags}

    def taken(self) -> list[tuple[str | None, int]]:
        return [one for member in self.members if isinstance(member, Wanting) for one in member.taken]

    async def all_taken(self, sent: set[tuple[str, int]], seconds: float = 30.0) -> None:
        await self.until(lambda: set(self.taken()) >= sent, seconds)


@scenario
async def test_old_and_new_members_take_what_they_want_from_the_queues_of_each_other() -> None:
    stage = Groups(ORDERS, latency=0.002)
    await stage.begin()
    await stage.send_tags("ab", 1)
    old = await stage.member(orders="a || b")
    began = stage.now
    new = await stage.member(orders="b || c")
    assert stage.now - began < 2  # the old one has taken up the union
    sent = await stage.send_tags("abc")
    await stage.all_taken(sent)
    assert {tag for tag, _ in old.taken} == {"a", "b"}
    assert {tag for tag, _ in new.taken} == {"b", "c"}
    assert old.unmatched() == new.unmatched() == 0
    (begun,) = old.told(events.RollOut)
    assert "subscribes orders with b || c, this app with a || b; it pulls orders with a || b || c" in begun.text
    await stage.end()


@scenario
async def test_when_the_last_old_member_is_gone_the_union_shrinks_and_its_tag_is_unmatched() -> None:
    stage = Groups(ORDERS)
    await stage.begin()
    await stage.send_tags("ab", 1)
    old = await stage.member(orders="a || b")
    new = await stage.member(orders="b || c")
    assert await old.leave()
    await stage.until(lambda: new.told(events.RollOut)[-1].text == "", LINGER + 25, every=0.5)
    before = len(new.taken)
    sent = await stage.send_tags("abc")
    await stage.all_taken({one for one in sent if one[0] != "a"})
    assert len(new.taken) - before >= 16
    assert "a" not in {tag for tag, _ in new.taken}
    await stage.end()


@scenario
async def test_a_member_that_comes_back_at_once_has_not_ended_the_roll_out() -> None:
    stage = Groups(ORDERS)
    await stage.begin()
    await stage.send_tags("ab", 1)
    old = await stage.member(orders="a || b")
    new = await stage.member(orders="b || c")
    assert await old.leave()
    sent = await stage.send_tags("a")
    await asyncio.sleep(5)
    again = await stage.member(orders="a || b")
    await stage.all_taken(sent)
    assert new.unmatched() == 0
    assert {tag for tag, _ in again.taken} >= {"a"}
    await stage.end()


@scenario
async def test_a_member_without_the_guard_is_named_and_does_not_hold_up_the_start() -> None:
    stage = Groups(ORDERS)
    await stage.begin()
    await stage.send_tags("ab", 1)
    old = await stage.member(orders="a || b", check="off")
    began = stage.now
    new = await stage.member(orders="b || c")
    assert stage.now - began < 2
    (problem,) = new.told(events.SubscriptionsDiffer)
    assert f"member {old.client.client_id} cannot pull more of orders than it wants" in problem.problem
    # What it alone wants comes to it all the same: the new one pulls it, and the broker tells it what both want.
    sent = await stage.send_tags("ab")
    await stage.all_taken(sent)
    await stage.end()


@scenario
async def test_a_frozen_member_holds_up_a_start_for_seconds_and_is_named() -> None:
    stage = Groups(ORDERS)
    await stage.begin()
    first = await stage.send_tags("ab", 1)
    old = await stage.member(orders="a || b")
    old.freeze()
    began = stage.now
    new = await stage.member(orders="b || c")
    assert stage.now - began < 6
    (problem,) = new.told(events.SubscriptionsDiffer)
    assert problem.problem.startswith(f"not asked what they subscribe: {old.client.client_id} (")
    old.thaw()
    await stage.until(lambda: new.told(events.RollOut), 60, every=0.5)
    sent = await stage.send_tags("abc")
    await stage.all_taken(first | sent, 60)
    assert (old.unmatched(), new.unmatched()) == (0, 0), "what the frozen member may want waits for its word"
    await stage.end()


@pytest.mark.parametrize("check", ["refuse", "warn"])
@scenario
async def test_a_start_that_refuses_or_warns_names_the_member_the_topic_and_both_sides(check: str) -> None:
    stage = Groups(ORDERS)
    await stage.begin()
    await stage.send_tags("ab", 1)
    old = await stage.member(orders="a || b")
    words = f"member {old.client.client_id} and 1 more subscribe orders with a || b, this app with b || c"
    same = await stage.member(orders="b||a", check=check)
    assert same.told(events.SubscriptionsDiffer) == []
    if check == "refuse":
        with pytest.raises(ConfigError, match=r"consumer\.subscription_check: group group: ") as caught:
            await stage.member(orders="b || c", check=check)
        assert words in str(caught.value)
        refused = stage.members[-1]
        await refused.process.start(refused.leaving(0.0))
    else:
        new = await stage.member(orders="b || c", check=check)
        assert words in new.told(events.SubscriptionsDiffer)[0].problem
    await stage.end()


@scenario
async def test_an_orderly_queue_keeps_its_order_over_hand_overs() -> None:
    stage = Groups(Topic(name="orders", orderly=True), latency=0.002)
    await stage.begin()
    await stage.send_tags("ab", 1)
    order: list[int] = []

    async def note(message: Message) -> None:
        await asyncio.sleep(0.01)
        order.append(number_of(message.body))

    await stage.member(orders="a || b", handle=note)
    await stage.member(orders="b || c", handle=note)
    order.clear()
    sent = [await stage.sender.send("orders", "one key", tag=tag) for tag in "abcacbcab" * 3]
    await stage.until(lambda: len(order) >= len(sent))
    assert order == sent
    await stage.end()


@scenario
async def test_a_handler_that_fails_on_a_message_handed_over_retries_it() -> None:
    stage = Groups(ORDERS)
    await stage.begin()
    await stage.send_tags("ab", 1)
    failed: set[int] = set()

    async def once(message: Message) -> None:
        if message.tag == "c" and number_of(message.body) not in failed:
            failed.add(number_of(message.body))
            raise ValueError("not yet")

    old = await stage.member(orders="a || b")
    new = await stage.member(orders="b || c", handle=once)
    sent = await stage.send_tags("c", 8)
    await stage.all_taken(sent, 60)
    assert len(failed) == 8
    assert new.consumer.counters.retried == 8
    assert old.unmatched() == new.unmatched() == 0
    await stage.end()


@scenario
async def test_a_message_waits_for_a_paused_member_with_a_reason() -> None:
    stage = Groups(ORDERS)
    await stage.begin()
    await stage.send_tags("ab", 1)
    old = await stage.member(orders="a || b")
    new = await stage.member(orders="b || c")
    new.consumer.pause("orders", "stock is counted")
    sent = await stage.send_tags("c", 8)
    await stage.until(lambda: old.told(events.QueueBlocked), 30, every=0.5)
    reason = old.told(events.QueueBlocked)[0].reason
    assert "that this app has no handler for wait" in reason
    assert reason.endswith("topic orders is paused: stock is counted")
    new.consumer.resume("orders")
    await stage.all_taken(sent)
    await stage.until(lambda: old.told(events.Moving), 30)
    await stage.end()


@scenario
async def test_nothing_of_a_new_topic_is_missed_while_old_members_have_shares_of_its_queues() -> None:
    stage = Groups(ORDERS, Topic(name="refunds", start="last"))
    await stage.begin()
    await stage.send_tags("ab", 1)
    await stage.send_tags("x", 4, "refunds")
    old = await stage.member(orders="a || b")
    new = await stage.member(orders="a || b", refunds="*")
    sent = await stage.send_tags("y", 12, "refunds")
    await asyncio.sleep(10)
    waiting = sent - set(new.taken)
    assert waiting  # the share of the old member
    assert await old.leave()
    await stage.all_taken(sent)
    assert new.unmatched() == 0
    await stage.end()


@scenario
async def test_members_that_join_at_the_same_time_find_each_other_before_they_are_ready() -> None:
    stage = Groups(ORDERS, latency=0.002)
    await stage.begin()
    await stage.send_tags("abc", 1)
    joining = [
        Wanting(stage.world, f"member-{n + 1}", {"orders": tags}, "roll-out", None) for n, tags in enumerate("abc")
    ]
    stage.members += joining
    await asyncio.gather(*(member.join() for member in joining))
    sent = await stage.send_tags("abc")
    await stage.all_taken(sent)
    assert [member.unmatched() for member in joining] == [0, 0, 0]
    await stage.end()


@scenario
async def test_a_fresh_group_starts_at_once() -> None:
    stage = Groups(ORDERS)
    await stage.begin()
    await stage.send_tags("a", 1)
    began = stage.now
    alone = await stage.member(orders="a")
    assert stage.now - began < 0.5
    assert alone.told(events.RollOut) == alone.told(events.SubscriptionsDiffer) == []
    await stage.end()


@scenario
async def test_a_handler_that_takes_longer_than_brokers_wait_is_called_once() -> None:
    stage = Groups(ORDERS)
    await stage.begin()
    await stage.send_tags("ab", 1)
    calls: list[int] = []

    async def slowly(message: Message) -> None:
        if message.tag == "c":
            calls.append(number_of(message.body))
            await asyncio.sleep(35)

    old = await stage.member(orders="a || b")
    new = await stage.member(orders="b || c", handle=slowly)
    sent = await stage.send_tags("c", 8)
    await stage.all_taken(sent, 120)
    assert sorted(calls) == sorted(number for _, number in sent)
    assert new.consumer.counters.retried == 0
    assert any("has not ended yet" in event.reason for event in old.told(events.QueueBlocked))
    snapshot = old.consumer.snapshot()
    await stage.until(lambda: old.consumer.snapshot().forwarded == 4, 30)
    assert "this app with a || b" in snapshot.roll_out
    await stage.end()


@scenario
async def test_messages_of_one_key_keep_their_order_over_hand_overs() -> None:
    stage = Groups(Topic(name="orders", keyed=True), latency=0.002)
    await stage.begin()
    await stage.sender.send("orders", "k", tag="b")
    order: list[int] = []

    async def note(message: Message) -> None:
        await asyncio.sleep(0.01)
        order.append(number_of(message.body))

    await stage.member(orders="a || b", handle=note)
    new = await stage.member(orders="b || c", handle=note)
    await stage.until(lambda: order)
    order.clear()
    sent = [await stage.sender.send("orders", "k", tag="c") for _ in range(9)]
    await stage.until(lambda: len(order) >= len(sent))
    assert order == sent
    assert len(new.taken) >= 9
    await stage.end()


@scenario
async def test_a_leaving_member_does_not_wait_for_what_others_do_not_take() -> None:
    stage = Groups(ORDERS)
    await stage.begin()
    await stage.send_tags("ab", 1)
    old = await stage.member(orders="a || b")
    new = await stage.member(orders="b || c")
    new.consumer.pause("orders", "stock is counted")
    sent = await stage.send_tags("c", 8)
    await asyncio.sleep(2)
    began = stage.now
    assert await old.leave()
    assert stage.now - began < 10
    new.consumer.resume("orders")
    await stage.all_taken(sent, 60)  # what had waited comes by the retry topic
    await stage.end()
