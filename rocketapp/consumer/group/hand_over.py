"""The next owner of a concurrent queue waits for the member before it: see `state.hand_over`."""

from __future__ import annotations

import asyncio
import contextlib

from rocketapp.consumer.group.brokers import Brokers
from rocketapp.consumer.group.group_offsets import GroupOffsets
from rocketapp.errors import RocketAppError
from rocketapp.model.message_queue import MessageQueue
from rocketapp.state.hand_over import LOOK_INTERVAL, MOMENT, may_begin, next_look


async def previous_owner_is_through(
    store: GroupOffsets, brokers: Brokers, queue: MessageQueue, ended: asyncio.Future[None]
) -> None:
    """Returns when nothing is left that another member could be working on, when it must be through, or when `ended` is
    done.
    """
    loop = asyncio.get_running_loop()
    began = loop.time()
    while not ended.done():
        waited = loop.time() - began
        if may_begin(waited):
            return
        if waited >= MOMENT:
            # A question that fails, or takes too long, is repeated; in the end the time decides.
            with contextlib.suppress(RocketAppError):
                committed = await store.committed(queue, exact=True, timeout=LOOK_INTERVAL, dial=False)
                end = await brokers.max_offset(queue, timeout=LOOK_INTERVAL, dial=False)
                if may_begin(waited, committed, end):
                    return
        await asyncio.wait([ended], timeout=next_look(loop.time() - began))
