"""What a member does with messages that tools and other members have it consume."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from rocketapp.client.calls.messages import consume_directly
from rocketapp.wire.record import Message
from rocketapp.wire.requests.direct import SUCCESS, DirectRequest, DirectResult
from tests.simulation.cluster import Member
from tests.simulation.stage import scenario
from tests.simulation.test_roll_out import ORDERS, Groups
from tests.simulation.world import GROUP


class Calls:
    """A handler that notes which messages it has seen."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    async def __call__(self, message: Message) -> None:
        self.messages.append(message)


async def ask(asking: Member, asked: Member, message: Message, *, is_tool: bool) -> DirectResult:
    """Have a member consume a message, as a tool or another member does."""
    assert message.queue is not None
    broker, offset = message.queue.broker_name, message.offset
    request = DirectRequest(GROUP, asked.client.client_id, message.offset_message_id, message.topic, broker, offset)
    if is_tool:
        request = replace(request, broker_name="", queue_offset=-1)
    address = asking.client.broker_address(broker)
    assert address is not None

    async def asked_of_broker() -> DirectResult:
        return await consume_directly(await asking.client.connection(address), request, 12.0)

    return await asking.process.start(asked_of_broker())


@scenario
async def test_a_tool_gets_a_call_each_time_and_a_member_that_has_missed_an_answer_gets_that() -> None:
    stage, calls = Groups(ORDERS), Calls()
    await stage.begin()
    await stage.send_tags("a", 1)
    one = await stage.member(orders="a", handle=calls)
    await stage.until(lambda: len(calls.messages) == 1)
    for count in (2, 3):
        assert (await ask(one, one, calls.messages[0], is_tool=True)).result == SUCCESS
        assert len(calls.messages) == count
    for _ in range(2):
        assert (await ask(one, one, calls.messages[0], is_tool=False)).result == SUCCESS
        assert len(calls.messages) == 3
    await stage.end()


@scenario
async def test_a_message_that_is_offered_long_after_it_was_done_is_handled_again() -> None:
    stage, calls = Groups(ORDERS), Calls()
    await stage.begin()
    await stage.send_tags("a", 1)
    one = await stage.member(orders="a", handle=calls)
    await stage.until(lambda: len(calls.messages) == 1)
    await ask(one, one, calls.messages[0], is_tool=False)
    await asyncio.sleep(90)  # perhaps the offset was reset
    assert (await ask(one, one, calls.messages[0], is_tool=False)).result == SUCCESS
    assert len(calls.messages) == 3
    await stage.end()


@scenario
async def test_a_tool_that_does_not_name_the_broker_has_the_message_consumed_as_one_of_that_broker() -> None:
    stage, calls = Groups(ORDERS), Calls()
    await stage.begin()
    await stage.send_tags("a", 1)
    one = await stage.member(orders="a", handle=calls)
    await stage.until(lambda: len(calls.messages) == 1)
    await ask(one, one, calls.messages[0], is_tool=True)
    assert calls.messages[1].queue == calls.messages[0].queue
    await stage.end()
