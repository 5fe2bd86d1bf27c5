"""A free call of a handler that is called queue by queue: waited for, and told when that takes long."""

from __future__ import annotations

import asyncio

from rocketapp.consumer.stall_reasons import StallReasons
from rocketapp.consumer.workers.free_calls import call_before
from rocketapp.consumer.workers.serial import SerialExecutor
from rocketapp.model.message_queue import MessageQueue

CALL_PATIENCE = 10.0
"""Seconds of waiting for a free call after which a queue is said to stand still."""


async def take_call(
    executor: SerialExecutor, queue: MessageQueue, ended: asyncio.Future[None], waits: StallReasons
) -> bool:
    """Take a free call for this queue, perhaps after a wait; False, with none taken, when `ended` is done before."""
    free_calls = executor.free_calls
    if not free_calls.locked():
        return await free_calls.acquire()
    reason = f"waits for a free call of handler {executor.handler.name} (concurrency {free_calls.most})"
    waits.still(queue, reason, patience=CALL_PATIENCE)
    try:
        return await call_before(free_calls, ended)
    finally:
        waits.moving(queue)
