"""What a parent knows of its workers."""

from __future__ import annotations

import msgspec

from rocketapp.app.settings.settings import Settings
from rocketapp.cli.processes.operation import ParentDesk
from rocketapp.cli.processes.reports import Report
from rocketapp.cli.processes.stop import ProcessStop
from rocketapp.model.event import LoopBlocked


async def test_a_block_that_is_over_is_not_shown_of_a_worker_that_still_starts() -> None:
    desk = ParentDesk("app", Settings(), 1, ProcessStop(1.0, last_words=lambda: None))
    shown = []
    for is_over in (False, True):
        event = LoopBlocked(4.0, "app.py:12", "", is_over=is_over)
        desk.hear(1, Report("blocked", said=msgspec.json.encode(event).decode()))
        shown.append(desk.now().processes[0].blocked is not None)
    assert shown == [True, False]
