"""A child process, seen from its parent: whatever becomes of it, the parent goes on."""

from __future__ import annotations

import asyncio
import os
import signal

from rocketapp.cli.processes.child import Child


async def test_a_frozen_child_does_not_hold_up_its_parent() -> None:
    child = Child("worker 1", {}, lambda report: None)
    os.kill(child.pid, signal.SIGSTOP)
    async with asyncio.timeout(60):
        for number in range(3_000):
            child.tell({"call": "pause", "topic": "orders", "group": str(number)})
        child.signal(signal.SIGKILL)
        assert await child.ended() == -signal.SIGKILL
    child.tell({"call": "resume"})
