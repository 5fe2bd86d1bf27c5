"""An answer to a pop that comes late: its messages are hidden since the broker sent it, not since it came."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from rocketapp.state.pop_queue import hidden_since
from rocketapp.transport.connection import Connection
from rocketapp.wire.codes import RequestCode
from rocketapp.wire.command import Command
from rocketapp.wire.requests.pop import PopRequest
from tests.unit.consumer.pop.pop_cluster import PopCluster, popped
from tests.unit.consumer.pop.test_pop import TIMES, Seen
from tests.unit.scripted import eventually, in_virtual_time


class LatePops(PopCluster):
    def __init__(self) -> None:
        super().__init__()
        self.late = 0.0
        """Seconds that the next answer with messages takes."""
        self.held_for: set[float] = set()
        """For how many seconds requests may be held."""

    def answer(self, name: str, connection: Connection, command: Command) -> Command | None:
        answer = super().answer(name, connection, command)
        if command.code != RequestCode.POP_MESSAGE:
            return answer
        self.held_for.add(PopRequest.from_fields(command.fields).poll_ms / 1000)
        if answer is not None and answer.body and self.late:
            late, self.late = self.late, 0.0
            self.loop.call_later(late, connection.reply, answer)
            return None
        return answer


@in_virtual_time
async def test_a_late_answer_to_a_pop_is_hidden_anew_in_time() -> None:
    cluster, slow, others = LatePops(), Seen(takes=30.0), Seen()
    await cluster.start()
    (queue,) = cluster.create("topic", queues=1)
    cluster.send(queue, b"slow")
    cluster.late = 8.0
    config = replace(TIMES, pop_invisible_time=10.0)
    member = await cluster.member(popped(slow), config=config).start()
    other = await cluster.member(popped(others), config=config).start()
    await eventually(lambda: bool(slow) or bool(others), seconds=20)
    await asyncio.sleep(60)
    assert len(slow) + len(others) == 1
    assert await member.stop() and await other.stop()


@in_virtual_time
async def test_a_request_is_held_so_briefly_that_a_late_answer_can_be_hidden_anew() -> None:
    cluster = LatePops()
    await cluster.start()
    cluster.create("topic", queues=1)
    config = replace(TIMES, long_poll=15.0, pop_invisible_time=12.0)
    member = await cluster.member(popped(Seen()), config=config).start()
    await asyncio.sleep(30)
    assert cluster.held_for == {6.0}
    assert await member.stop()


def test_messages_count_as_hidden_since_the_request_or_half_of_their_time() -> None:
    assert hidden_since(100.0, 15.0, 100.1, 60.0) == 100.0
    assert hidden_since(100.0, 15.0, 115.0, 20.0) == 105.0  # it may have been held
    assert hidden_since(100.0, 15.0, 170.0, 60.0) == 100.0  # it was late
