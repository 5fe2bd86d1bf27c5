"""Members come, go, freeze and are cut off: who owns what, and what each of these once got wrong.

Every test below the first two is a lesson: a seed found it, and its story is told here without chance.
"""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from rocketapp.wire.codes import RequestCode
from rocketapp.wire.command import Command
from rocketapp.wire.record import Message
from tests.simulation import checks, ownership
from tests.simulation import history as facts
from tests.simulation.cluster import Member
from tests.simulation.stage import Stage, scenario
from tests.simulation.threads import block
from tests.simulation.world import Topic

ORDERS, MOVES = Topic(name="orders"), Topic(name="moves", orderly=True)


def owned_once(stage: Stage) -> bool:
    """Every queue of the topics, and the retry queue, has one owner who is there."""
    owners = stage.owners()
    joined = {member.name for member in stage.members if member.is_joined}
    queues = 4 * len(stage.world.topics) + 1
    return len(owners) == queues and all(len(names) == 1 and names[0] in joined for names in owners.values())


@pytest.mark.parametrize("topic", [ORDERS, MOVES], ids=["concurrent", "orderly"])
@scenario
async def test_forty_joins_and_leaves_in_quick_succession_leave_one_owner_per_queue(topic: Topic) -> None:
    random = Random(5)
    stage = Stage(topic, latency=0.005)
    await stage.begin()
    await stage.send(topic.name, 4)
    await stage.join()
    sending = [stage.sender.send_all(topic.name, f"k{number}", 60, lambda: 0.1) for number in range(6)]
    for _ in range(40):
        guest = await stage.join()
        await asyncio.sleep(random.choice((0.0, 0.02, 0.1, 0.4)))
        assert await guest.leave()
        await asyncio.sleep(random.choice((0.0, 0.05)))
    assert await stage.until(lambda: owned_once(stage), 3) <= 3
    await asyncio.gather(*sending)
    await stage.calm(30)
    assert len(stage.started()) == 364
    await stage.end()


@scenario
async def test_a_member_that_joins_and_one_that_is_killed_are_seen_within_three_seconds() -> None:
    stage = Stage(ORDERS, latency=0.005)
    await stage.begin()
    await stage.send("orders", 4)
    for _ in range(4):
        await stage.join()
        assert await stage.until(lambda: owned_once(stage), 3) <= 3
    for member in stage.members[:3]:
        member.crash()
        for event in [event for event in stage.world.history if isinstance(event, facts.Assigned)]:
            if event.member == member.name and member.name in stage.owners()[event.queue]:
                stage.world.history.append(facts.Released(stage.now, member.name, event.queue))
        assert await stage.until(lambda: owned_once(stage), 3) <= 3
    await stage.end()


@scenario
async def test_an_orderly_queue_goes_on_after_its_lease_ended_in_a_pause_and_was_renewed_at_once() -> None:
    """The runner found its lease over and ended; the renewal came a moment later, and was not noticed."""
    failed: list[float] = []

    async def behave(message: Message) -> None:
        if message.text() == "2" and len(failed) < 2:
            failed.append(stage.now)
            raise ValueError("no")

    stage = Stage(MOVES, behave=behave)
    await stage.begin()
    await stage.send("moves", 6, key="one queue")
    member = await stage.join()
    await stage.until(lambda: failed)
    member.freeze()
    await asyncio.sleep(40)
    member.thaw()
    await stage.until(lambda: {event.number for event in stage.done()} == set(range(1, 7)), 10)
    await stage.calm(10)
    assert len(failed) == 2
    await stage.end()


@scenario
async def test_a_lease_that_ended_while_its_member_was_frozen_is_not_revived_by_a_renewal() -> None:
    """Others had the lock meanwhile and gave it back: the renewal was granted, and the old session went on."""
    failed: list[float] = []

    async def behave(message: Message) -> None:
        if message.text() == "3" and not failed:
            failed.append(stage.now)
            await asyncio.sleep(1)
            raise ValueError("no")

    stage = Stage(MOVES, behave=behave)
    await stage.begin()
    await stage.send("moves", 6, key="one queue")
    first = await stage.join()
    await stage.until(lambda: failed)
    first.freeze()  # in the middle of the handler: its pause before the retry comes after the thaw
    stage.world.network.cut(first.name)
    second = await stage.join()
    await stage.until(lambda: len({event.number for event in stage.done()}) == 6, 62)
    assert await second.leave()
    thawed = stage.now
    first.thaw()
    await stage.send("moves", 1, key="one queue")
    await stage.until(lambda: 7 in {event.number for event in stage.done()}, 10)
    assert [event.number for event in stage.started() if event.at >= thawed] == [7]
    await stage.calm(10)
    await stage.end()


@pytest.mark.parametrize("question", [1, 2, 3])
@scenario
async def test_a_start_position_that_was_looked_up_before_a_freeze_is_not_committed_after_it(question: int) -> None:
    """The group had no offset when the member asked; another one had begun, and gone on, when it committed."""
    stage = Stage(ORDERS)
    await stage.begin()
    await stage.send("orders", 40)
    first = Member(stage.world, "member-1")
    stage.members.append(first)
    asked: list[Command] = []

    def freeze_at(command: Command) -> Command | None:
        about = command.fields or {}
        if command.code == RequestCode.QUERY_CONSUMER_OFFSET and (about["topic"], about["queueId"]) == ("orders", "2"):
            asked.append(command)
            if len(asked) == question:
                first.freeze()
        return None

    stage.broker.overhear(freeze_at)
    joining = asyncio.get_running_loop().create_task(first.join())
    await stage.until(lambda: first.process.is_frozen)
    await stage.join()
    await stage.until(lambda: "orders@broker-a:2" in {event.queue for event in stage.done()}, 40)
    await asyncio.sleep(10)
    first.thaw()
    await joining
    await stage.calm(30)
    assert checks.commits_back(stage.world.history) == []
    await stage.end()


@pytest.mark.parametrize("seconds", [2.0, 4.5])
@scenario
async def test_the_first_pull_after_a_member_stood_still_carries_no_offset_over_that_of_a_next_owner(
    seconds: float,
) -> None:
    """Only five seconds were taken for long, and a next owner begins after 1.4 s."""

    async def behave(message: Message) -> None:
        await asyncio.sleep(0.05)

    stage = Stage(Topic(name="orders", concurrency=4), behave=behave, latency=0.002)
    await stage.begin()
    first = await stage.join()
    sending = [stage.sender.send_all("orders", f"k{number}", 400, lambda: 0.04) for number in range(4)]
    await asyncio.sleep(8.03)
    first.freeze()
    began = stage.now
    await stage.join()
    await asyncio.sleep(began + seconds - stage.now)
    first.thaw()
    await asyncio.gather(*sending)
    await asyncio.sleep(30)
    assert checks.commits_back(stage.world.history) == []
    assert checks.lost(stage.world.history) == []
    await stage.end()


@pytest.mark.parametrize("which", [0, 1])
@scenario
async def test_a_member_that_waits_for_a_frozen_broker_as_it_joins_hears_of_the_next_one(which: int) -> None:
    """It looked at the group again only when its start offsets were known, and kept queues that another one had.

    What it gave away meanwhile is not said to stand still.
    """
    stage = Stage(ORDERS, brokers=2, latency=0.1)
    await stage.begin()
    frozen = stage.brokers[which]
    asked: list[Command] = []
    await stage.send("orders", 40)

    def freeze_at(command: Command) -> Command | None:
        if command.code == RequestCode.QUERY_CONSUMER_OFFSET and not asked:
            asked.append(command)
            frozen.freeze()
        return None

    frozen.overhear(freeze_at)
    joining = [asyncio.get_running_loop().create_task(stage.join())]
    await stage.until(lambda: frozen.process.is_frozen)
    await stage.join()
    await asyncio.gather(*joining)
    await asyncio.sleep(1)
    began = [event.queue for event in stage.world.history if isinstance(event, facts.Assigned)]
    assert len(began) == len(set(began)), began
    frozen.thaw()
    await stage.calm(60)
    for member in stage.members:
        assert member.consumer.snapshot().blocked == {}
    await stage.end()


@scenario
async def test_a_retry_topic_that_comes_to_a_broker_later_is_shared_in_seconds() -> None:
    """A broker makes it at the first heartbeat, and members ask for its route every 30 s."""
    stage = Stage(ORDERS, brokers=2, latency=0.02)
    await stage.begin()
    stage.brokers[1].freeze()
    await stage.join()
    await stage.join()
    await asyncio.sleep(1)
    stage.brokers[1].thaw()
    await asyncio.sleep(3)
    await stage.join()
    await asyncio.sleep(5)
    owners: dict[str, set[str]] = {}
    for event in stage.world.history:
        if isinstance(event, facts.Assigned):
            owners.setdefault(event.queue, set()).add(event.member)
        elif isinstance(event, facts.Released):
            owners[event.queue].discard(event.member)
    assert {queue: members for queue, members in owners.items() if len(members) != 1} == {}
    assert sum(facts.is_copy(queue) for queue in owners) == 2
    await stage.end()


@pytest.mark.parametrize("is_cut", [False, True], ids=["connected", "cut"])
@pytest.mark.parametrize("seconds", [1.0, 10.0, 40.0, 70.0, 130.0])
@scenario
async def test_a_frozen_member_whose_queues_went_to_others_takes_no_offset_back(seconds: float, is_cut: bool) -> None:
    async def behave(message: Message) -> None:
        await asyncio.sleep(0.3)

    stage = Stage(ORDERS, behave=behave, latency=0.005)
    await stage.begin()
    await stage.send("orders", 40)
    first = await stage.join()
    await stage.until(lambda: len(stage.done()) >= 12)
    first.freeze()
    if is_cut:
        stage.world.fault(facts.CUT, first.name)
        stage.world.network.cut(first.name)
    await stage.join()
    count = min(200, int(seconds) * 2 + 60)  # for half a minute after it goes on, or until then
    sending = stage.sender.send_all("orders", "", count, lambda: 0.5)
    await asyncio.sleep(seconds)
    first.thaw()
    await sending
    await stage.calm(30)
    assert {event.number for event in stage.done()} == set(range(1, 41 + count))
    await stage.end()


@scenario
async def test_who_takes_a_queue_of_a_member_that_came_and_left_waits_for_the_one_before() -> None:
    """The last list of members said that the guest owned it, and the guest was gone: but it had never got it."""

    async def behave(message: Message) -> None:
        await asyncio.sleep(0.9)

    stage = Stage(ORDERS, behave=behave)
    await stage.begin()
    first = await stage.join()
    await asyncio.sleep(30)
    await stage.send("orders", 40)
    await stage.until(lambda: first.running == 40)
    first.freeze()
    guest, _ = await asyncio.gather(stage.join(), stage.join())  # each asks the frozen one, for three seconds
    await guest.leave()
    await asyncio.sleep(0.3)
    first.thaw()
    await stage.calm(30)
    assert len(stage.started()) == 40
    await stage.end()


@scenario
async def test_what_arrives_while_a_queue_changes_hands_is_handled_once() -> None:
    """Everything was committed, so the next owner began at once; the one before had not heard of it, and pulled on."""
    stage = Stage(ORDERS, latency=0.02)
    await stage.begin()
    await stage.send("orders", 4)
    sending = [stage.sender.send_all("orders", "", 400, lambda: 0.013) for _ in range(4)]
    await stage.join()
    for _ in range(5):
        guest = await stage.join()
        await asyncio.sleep(0.7)
        assert await guest.leave()
        await asyncio.sleep(0.3)
    await asyncio.gather(*sending)
    await stage.calm(30)
    assert len(stage.started()) == 1604
    await stage.end()


@scenario
async def test_one_leaves_as_another_joins_and_no_member_needs_the_list_between() -> None:
    """One member saw the group without either and took a queue; another saw only the end, and took it for free."""
    stage = Stage(ORDERS, latency=0.02)
    await stage.begin()
    await stage.send("orders", 4)
    sending = [stage.sender.send_all("orders", "", 700, lambda: 0.013) for _ in range(4)]
    for _ in range(4):
        await stage.join()
    for delay in (0.0, 0.01, 0.02, 0.03, 0.04, 0.06, 0.08, 0.1):
        leaving = asyncio.get_running_loop().create_task(stage.members[-3].leave())
        await asyncio.sleep(delay)
        await stage.join()
        assert await leaving
        await asyncio.sleep(1.0)
    await asyncio.gather(*sending)
    await stage.calm(30)
    assert len(stage.started()) == 2804
    await stage.end()


@scenario
async def test_a_member_that_drains_for_long_finishes_and_lowers_no_offset_of_who_got_its_queue() -> None:
    """It commits when it is through; what the next owner of a queue has committed by then stays."""

    async def behave(message: Message) -> None:
        if message.text() == "1" and stage.now < 5:
            await asyncio.sleep(40)

    stage = Stage(ORDERS, behave=behave)
    await stage.begin()
    await stage.send("orders", 40)
    first = await stage.join()
    await stage.until(lambda: len(stage.done()) == 39)
    leaving = asyncio.get_running_loop().create_task(first.leave(drain_timeout=60))
    await asyncio.sleep(1)
    await stage.join()
    await stage.join()
    await stage.send("orders", 40)
    await stage.until(lambda: {event.number for event in stage.done()} == set(range(1, 81)), 50)
    assert await leaving
    await asyncio.sleep(60)
    assert checks.commits_back(stage.world.history) == []
    assert checks.commits_ahead(stage.world.history) == []
    assert checks.lost(stage.world.history) == []
    assert stage.broker.lag() == {}
    await stage.end()


@scenario
async def test_a_member_that_drains_commits_what_ends_while_other_handlers_still_run() -> None:
    """It committed when it was told to stop, and again when its last handler ended; all between was handled twice."""

    async def behave(message: Message) -> None:
        await asyncio.sleep(20 if message.text() == "20" else 0.3)

    stage = Stage(ORDERS, behave=behave)
    await stage.begin()
    await stage.send("orders", 20, key="one queue")
    first = await stage.join()
    await stage.until(lambda: len(stage.started()) == 20)
    leaving = asyncio.get_running_loop().create_task(first.leave(drain_timeout=60))
    await stage.join()
    await stage.join()
    await stage.until(lambda: len({event.member for event in stage.started()}) == 2)
    assert {event.number for event in stage.started() if event.member != first.name} == {20}
    assert await leaving
    await stage.calm(60)
    await stage.end()


@pytest.mark.parametrize("crash", [False, True], ids=["stopped", "killed"])
@scenario
async def test_after_a_restart_of_the_broker_everybody_keeps_its_queues(crash: bool) -> None:
    """The member that came back first got the queues of the others, who believed that they still had them."""

    async def behave(message: Message) -> None:
        await asyncio.sleep(0.05)

    stage = Stage(ORDERS, MOVES, behave=behave, latency=0.01)
    await stage.begin()
    for topic in ("orders", "moves"):
        await stage.send(topic, 4)
    for _ in range(4):
        await stage.join()
    sending = [stage.sender.send_all(topic, "", 200, lambda: 0.1) for topic in ("orders", "moves")]
    await asyncio.sleep(8)
    before = stage.owners()
    for outage in (0.0, 3.0, 20.0):
        if crash:
            stage.broker.crash()
        else:
            await stage.broker.stop()
        await asyncio.sleep(outage)
        await stage.broker.start()
        await asyncio.sleep(6)
    await asyncio.gather(*sending)
    await stage.calm(30)
    assert stage.owners() == before
    starts = [(event.queue, event.offset) for event in stage.started()]
    assert len(starts) == len(set(starts))
    await stage.end()


@scenario
async def test_a_member_that_was_away_waits_for_who_is_not_through_with_a_queue() -> None:
    """It compared the list of members with the one of before its absence, and took a queue for free that was not."""

    async def behave(message: Message) -> None:
        await asyncio.sleep(0.9 if stage.now > 30 else 0.01)

    stage = Stage(ORDERS, behave=behave)
    await stage.begin()
    first, second = await stage.join(), await stage.join()
    await stage.send("orders", 8)
    await stage.until(lambda: len(stage.done()) == 8)
    second.freeze()
    stage.world.network.cut(second.name)
    first.crash()
    await stage.join()
    await asyncio.sleep(40)
    await stage.send("orders", 8)
    await stage.until(lambda: stage.members[2].running == 8)
    second.thaw()
    await asyncio.sleep(30)
    # These two are what it gets now and did not have before.
    again = [
        event
        for event in stage.started()
        if event.at > 30 and event.queue in ("orders@broker-a:0", "orders@broker-a:1")
    ]
    assert [event.member for event in again] == ["member-3"] * 4
    assert {event.number for event in stage.done()} == set(range(1, 17))
    assert checks.commits_back(stage.world.history) == []
    assert stage.owners()["orders@broker-a:0"] == ["member-1", "member-2"]  # a crash releases nothing
    await stage.end()


@scenario
async def test_a_member_that_was_away_for_under_a_second_lowers_no_offset_of_the_interim_owner() -> None:
    """It read its offset at once, when the interim owner had committed nothing, and committed below that one later."""
    stage: Stage

    async def behave(message: Message) -> None:
        is_first = message.queue is not None and message.queue.queue_id == 0 and stage.now < away
        await asyncio.sleep(3 if is_first else 0.3)

    away = 1e9
    stage = Stage(Topic(name="orders", concurrency=8), behave=behave, latency=0.005)
    await stage.begin()
    members = [await stage.join() for _ in range(2)]
    await asyncio.sleep(5)
    await stage.send("orders", 80)
    await stage.until(lambda: len(stage.done()) >= 44)
    (name,) = stage.owners()["orders@broker-a:0"]
    (first,) = (member for member in members if member.name == name)
    away = stage.now
    stage.world.network.cut(first.name)
    stage.world.network.hold(first.name)
    await asyncio.sleep(0.7)
    stage.world.network.release(first.name)
    await asyncio.sleep(30)
    assert len({event.number for event in stage.done()}) == 80
    assert checks.commits_back(stage.world.history) == []
    await stage.end()


@scenario
async def test_a_member_that_is_told_to_stop_while_it_hands_queues_over_commits_what_they_finish() -> None:
    """The second that a handed over queue gets ended what `--drain-timeout` allows, and the next owner stops too."""

    async def behave(message: Message) -> None:
        await asyncio.sleep(5 if stage.now > 10 else 0)

    stage = Stage(ORDERS, behave=behave, latency=0.005)
    await stage.begin()
    first, second = await stage.join(), await stage.join()
    await asyncio.sleep(10 - stage.now + 1)
    await stage.send("orders", 8)
    await stage.until(lambda: second.running)
    leaving = asyncio.ensure_future(first.leave(drain_timeout=0.01))
    third = await stage.join()
    await asyncio.sleep(0.3)
    assert all(await asyncio.gather(second.leave(drain_timeout=60), third.leave()))
    await leaving
    assert not {"orders@broker-a:2", "orders@broker-a:3"} & set(stage.broker.lag())
    await stage.end()


@scenario
async def test_a_thread_that_outlives_its_drain_keeps_its_queue_until_the_lock_expires() -> None:
    """The member left its lock to expire, then told the broker that it left, and the broker freed the lock."""
    stage = Stage(Topic(name="moves", orderly=True, sync=True), block=lambda message: block(20.0), latency=0.005)
    await stage.begin()
    await stage.send("moves", 4, key="one queue")
    first = await stage.join()
    await stage.until(lambda: first.running)
    await stage.join()
    assert not await first.leave(drain_timeout=1)
    await asyncio.sleep(12)
    assert len(stage.started()) == 1
    assert ownership.overlaps(stage.world.history, {"moves"}) == []
    await stage.until(lambda: len(stage.done()) >= 4, 150)
    await stage.end()


@scenario
async def test_a_member_that_stops_does_not_wait_for_a_broker_that_it_dials() -> None:
    stage = Stage(ORDERS, latency=0.005, brokers=2)
    await stage.begin()
    first, second = await stage.join(), await stage.join()
    await asyncio.sleep(5)
    stage.brokers[1].crash(listed=1e9)
    stage.world.network.hold(stage.brokers[1].address)
    await asyncio.sleep(0.1)
    second.crash()
    await asyncio.sleep(1)
    began = stage.now
    await first.leave()
    assert stage.now - began < 1.5
    await stage.end()


@scenario
async def test_a_broker_that_a_name_server_does_not_name_for_two_seconds_costs_no_repetition() -> None:
    """Its queues were given away as to another member, which cut their handlers, and came back after half a minute."""

    async def behave(message: Message) -> None:
        await asyncio.sleep(4)

    stage = Stage(ORDERS, behave=behave, latency=0.005, brokers=2)
    await stage.begin()
    member = await stage.join()
    await asyncio.sleep(5)
    await stage.send("orders", 16)
    await asyncio.sleep(0.5)
    stage.brokers[1].hide(True)
    member.client.routes.refresh_soon("orders")
    await asyncio.sleep(2)
    stage.brokers[1].hide(False)
    await stage.until(lambda: len(stage.done()) == 16, 12)
    await stage.until(lambda: all(len(names) == 1 for names in stage.owners().values()), 5)
    assert len(stage.started()) == 16
    await stage.calm(8)
    await stage.end()


@scenario
async def test_a_queue_whose_broker_no_route_names_is_committed_when_its_handlers_end() -> None:
    async def behave(message: Message) -> None:
        await asyncio.sleep(4)

    stage = Stage(ORDERS, behave=behave, latency=0.005, brokers=2)
    await stage.begin()
    member = await stage.join()
    await asyncio.sleep(5)
    await stage.send("orders", 8)
    await asyncio.sleep(0.5)
    hidden = stage.brokers[1]
    hidden.hide(True)
    for topic in ("orders", "%RETRY%group"):
        member.client.routes.refresh_soon(topic)
    await asyncio.sleep(1)
    assert member.client.broker_address(hidden.name) == hidden.address
    await stage.until(lambda: len(stage.done()) == 8, 5)
    await asyncio.sleep(1)
    assert not any(hidden.lag().values())
    assert member.client.broker_address(hidden.name) is None
    hidden.hide(False)
    await stage.calm(60)
    await stage.end()


@scenario
async def test_a_master_that_comes_back_at_another_address_gets_its_locks_asked_for_at_once() -> None:
    async def behave(message: Message) -> None:
        await asyncio.sleep(0.1)

    stage = Stage(MOVES, behave=behave, latency=0.005, brokers=2)
    await stage.begin()
    member = await stage.join()
    await asyncio.sleep(5)
    moved = stage.brokers[1]
    sending = stage.sender.send_all("moves", "", 200, lambda: 0.1)
    await asyncio.sleep(5)
    moved.crash()
    moved.address = "10.0.9.9:9876"
    await moved.start()
    began = stage.now
    await stage.until(lambda: any(f"@{moved.name}:" in each.queue for each in stage.started() if each.at > began), 8)
    assert member.is_joined
    await sending
    await stage.until(lambda: not any(moved.lag().values()), 20)
    await stage.end()
