"""What comes while a call is suspended is called in a run of its own, which is noted down."""

from __future__ import annotations

import asyncio
from pathlib import Path
from struct import iter_unpack

from rocketapp.consumer.handler import Handler
from rocketapp.consumer.journal import Journal
from rocketapp.consumer.modes.by_message import MessageMode
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.testing.virtual_time import VirtualClock
from rocketapp.wire.record import Message
from tests.unit.consumer.fake_cluster import consumed_by, subscription
from tests.unit.consumer.modes.contexts import DeadLetters, ScriptedLock, mode_context, under
from tests.unit.consumer.reports import QUEUE, message
from tests.virtual import run_virtual

SLOTS = 1000
"""Slots at the front of a journal that are looked at."""


def in_flight(directory: Path) -> list[tuple[int, int]]:
    """The spans of offsets in the one journal of this directory: what the next process would find."""
    (path,) = directory.glob("*.hand")
    with path.open("rb") as file:
        return [(low, high) for number, low, high in iter_unpack("<Iqq", file.read(20 * SLOTS)) if number]


def test_a_message_that_came_during_a_run_is_noted_down_while_it_is_called(tmp_path: Path) -> None:
    async def main() -> None:
        journal = Journal(tmp_path, VirtualClock(asyncio.get_running_loop()), print)
        noted: dict[int, list[tuple[int, int]]] = {}

        async def call(message: Message) -> None:
            noted[message.offset] = in_flight(tmp_path)
            await asyncio.sleep(0.4)

        topic = consumed_by(Handler(subscription(orderly=True), call))
        mode = MessageMode(
            [topic], mode_context(topic.handlers, dead_letters=DeadLetters(), journal=journal), in_order=True
        )
        queue: ProcessQueue[Message] = ProcessQueue(QUEUE, 0)
        delivery = mode.open(under(ScriptedLock(), queue))
        for at in range(2):
            queue.put([message(at)])
            delivery.deliver([message(at)])
            await asyncio.sleep(0.2)
        await asyncio.sleep(5)
        await mode.callers.stop()
        journal.close()
        for offset, spans in noted.items():
            assert any(low <= offset <= high for low, high in spans), f"#{offset} is called, and noted down is {spans}"

    run_virtual(main)
