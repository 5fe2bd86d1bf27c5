"""Pulls that wait for room, and what makes room."""

from __future__ import annotations

import asyncio

from rocketapp.consumer.pull.flow_control import Flow
from rocketapp.model.message_queue import MessageQueue
from rocketapp.state.cache_budget import CacheBudget
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.state.pull_gate import PullGate
from rocketapp.wire.record import Message, Record, decode_records, encode_record
from tests.unit.scripted import in_virtual_time

QUEUE = MessageQueue("topic", "broker-a", 0)


def message(offset: int) -> Message:
    record = Record("topic", b"body", queue_offset=offset)
    return decode_records(encode_record(record), QUEUE)[0]


class Others:
    """What another group of the app holds."""

    size = 0


@in_virtual_time
async def test_a_budget_that_others_filled_meanwhile_is_looked_at_until_they_have_finished() -> None:
    budget, others = CacheBudget(10_000), Others()
    budget.join(others)
    flow = Flow(PullGate(max_messages=1, max_bytes=1 << 20, max_span=100, budget=budget), budget)
    queue: ProcessQueue[Message] = ProcessQueue(QUEUE, 0)
    flow.join(queue)
    only = message(0)
    queue.put([only])
    waiting = asyncio.ensure_future(flow.opened(queue, orderly=False))
    await asyncio.sleep(1)
    # Closed by its own count. Now others fill the budget, and only then the queue itself becomes empty.
    others.size = 20_000
    budget.took(20_000)
    queue.finish(only)
    await asyncio.sleep(1)
    assert not waiting.done()
    others.size = 0
    async with asyncio.timeout(1):
        await waiting


class Counted:
    """Holds as much as it is told, and counts who asks."""

    held = asked = 0

    @property
    def size(self) -> int:
        self.asked += 1
        return self.held


@in_virtual_time
async def test_a_look_at_a_full_budget_walks_over_the_queues_once_however_many_wait() -> None:
    budget, others = CacheBudget(10_000), Counted()
    budget.join(others)
    flow = Flow(PullGate(max_messages=10, max_bytes=1 << 20, max_span=100, budget=budget), budget)
    queues: list[ProcessQueue[Message]] = [ProcessQueue(QUEUE._replace(queue_id=number), 0) for number in range(100)]
    for queue in queues:
        flow.join(queue)
    others.held = 20_000
    budget.took(20_000)
    waiting = [asyncio.ensure_future(flow.opened(queue, orderly=False)) for queue in queues]
    await asyncio.sleep(0.5)
    others.asked = 0
    await asyncio.sleep(1)
    assert 18 <= others.asked <= 22
    others.held = 0
    async with asyncio.timeout(1):
        await asyncio.gather(*waiting)
