"""Pulls that wait for room, and what makes room."""

from __future__ import annotations

import asyncio

from rocketapp.consumer.flow import Flow
from rocketapp.consumer.work import Queue
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
    queue: Queue = ProcessQueue(QUEUE, 0)
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
