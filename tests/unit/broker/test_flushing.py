"""Replies and others that wait for the disk: each is told by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from rocketapp.broker.flushing import Flusher
from rocketapp.broker.saving import Saving
from rocketapp.broker.store.files import MemoryFiles
from rocketapp.broker.store.store import MessageStore
from rocketapp.config.broker import BrokerConfig
from rocketapp.errors import StoreError
from rocketapp.model.event import Event, LoopFailed
from rocketapp.tasks import scope
from rocketapp.testing.virtual_time import VirtualClock
from tests.unit.scripted import in_virtual_time


class Names:
    """Topics and groups that are never changed, or cannot be written."""

    def __init__(self) -> None:
        self.fails_when = ""

    def names_to_save(self, *, whole: bool) -> list[Callable[[], None]]:
        self._step("copied")
        return [lambda: self._step("written")]

    def _step(self, name: str) -> None:
        if self.fails_when == name:
            raise OSError("no room")

    def names_written(self) -> None: ...

    def undo_names(self) -> None: ...


@in_virtual_time
async def test_one_who_cannot_be_told_costs_none_of_those_behind_it() -> None:
    clock = VirtualClock(asyncio.get_running_loop())
    store = MessageStore(MemoryFiles(), BrokerConfig(segment_bytes=1 << 20), clock)
    events, told, names = list[Event](), list[object](), Names()
    flusher = Flusher(store, cast("Saving", names), observe=events.append, is_sync=False, in_thread=False)

    def bad(error: StoreError | None) -> None:
        raise KeyError("a bug")

    async with scope(flusher.answer()):
        for names.fails_when in ("never", "copied", "written"):
            flusher.save_names(bad)
            flusher.save_names(told.append)
            await asyncio.sleep(1.0)
    assert [each is None for each in told] == [True, False, False]
    assert events == [LoopFailed("replies", "KeyError: 'a bug'")] * 3
    store.close()
