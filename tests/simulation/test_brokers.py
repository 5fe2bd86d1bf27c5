"""The simulated broker has Apache's threads for administrators, and runs out of them as Apache's does."""

from __future__ import annotations

import asyncio

import pytest

from rocketapp.client.calls import offsets
from rocketapp.errors import BrokerError
from rocketapp.model.message_queue import MessageQueue
from rocketapp.wire.codes import ResponseCode
from rocketapp.wire.record import Message
from tests.simulation import history as facts
from tests.simulation.brokers import ADMIN_THREADS
from tests.simulation.stage import scenario
from tests.simulation.test_direct_calls import ask
from tests.simulation.test_roll_out import ORDERS, Groups, Wanting


async def end_of_queue(member: Wanting) -> int:
    """What a member asks of a broker all the time; Apache's serves it in the same threads as administrators."""

    async def asked() -> int:
        connection = await member.client.connection("10.0.0.1:9876")
        return await offsets.max_offset(connection, MessageQueue("orders", "broker-a", 0), timeout=30.0)

    return await member.process.start(asked())


@pytest.mark.parametrize(("held", "seconds"), [(ADMIN_THREADS - 1, 8.0), (ADMIN_THREADS, 3.0), (ADMIN_THREADS, 8.0)])
@scenario
async def test_messages_that_members_are_asked_to_consume_hold_the_threads_of_a_broker(
    held: int, seconds: float
) -> None:
    stage, slow = Groups(ORDERS), False
    messages: list[Message] = []

    async def handle(message: Message) -> None:
        messages.append(message)
        await asyncio.sleep(seconds if slow else 0)

    await stage.begin()
    member = await stage.member(orders="a", handle=handle)
    for _ in range(held):
        await stage.send_tags("a", 1)
    await stage.until(lambda: len(messages) == held)
    slow = True
    asking = [asyncio.ensure_future(ask(member, member, one, is_tool=True)) for one in messages[:held]]
    await stage.until(lambda: len(messages) == 2 * held)
    began = stage.now
    if held < ADMIN_THREADS:
        await end_of_queue(member)
        assert stage.now - began < 0.01
    elif seconds < 5:
        await end_of_queue(member)
        assert seconds - 0.1 < stage.now - began < seconds + 0.1
    else:
        with pytest.raises(BrokerError) as caught:
            await end_of_queue(member)
        assert caught.value.code == ResponseCode.SYSTEM_BUSY
        assert facts.Fault(stage.now, facts.REFUSED, "broker-a: request 30") in stage.world.history
    await asyncio.gather(*asking)
    assert stage.broker.threads.longest == pytest.approx(seconds, abs=0.1)
    await stage.end()
