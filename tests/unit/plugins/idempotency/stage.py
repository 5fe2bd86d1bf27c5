"""A handler behind the plugin, and stores that fail when a test says so."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from rocketapp import Message, Outcomes, RocketApp
from rocketapp.hooks.idempotency import Answer, Claim
from rocketapp.hooks.manager import Plugins
from rocketapp.model.event import Event
from rocketapp.model.message_queue import MessageQueue
from rocketapp.plugin import Park
from rocketapp.plugins.idempotency.config import IdempotencyConfig
from rocketapp.plugins.idempotency.decisions import Marks, MemoryStore
from rocketapp.plugins.idempotency.plugin import Idempotency
from rocketapp.wire.layout import Record, encode_record
from rocketapp.wire.properties import encode
from rocketapp.wire.record import decode_records
from tests.unit.app.given import bound, call_of

T = TypeVar("T")


def message(
    message_id: str = "A", body: bytes = b"1", *, offset: int = 0, attempt: int = 1, tag: str | None = None
) -> Message:
    """`offset`: of the stored message; copies have different ones."""
    record = Record(
        topic="orders",
        body=body,
        queue_offset=offset,
        physical_offset=offset,
        reconsume_times=attempt - 1,
        raw_properties=encode({"UNIQ_KEY": message_id} | ({} if tag is None else {"TAGS": tag})),
    )
    return decode_records(encode_record(record), MessageQueue("orders", "broker-a", 0))[0]


class FailingStore(MemoryStore):
    """Raises in the methods that are named in `down`."""

    def __init__(self) -> None:
        super().__init__(100)
        self.down: set[str] = set()
        self.asked: list[str] = []

    def forget(self) -> None:
        """As a server does that is started anew."""
        self._marks = Marks(100)

    def _ask(self, method: str) -> None:
        self.asked.append(method)
        if method in self.down:
            raise ConnectionError("refused")

    async def claim(self, claims: Sequence[Claim], *, lease: float) -> Sequence[Answer]:
        self._ask("claim")
        return await super().claim(claims, lease=lease)

    async def done(self, keys: Sequence[str], *, expiry: float) -> None:
        self._ask("done")
        await super().done(keys, expiry=expiry)

    async def release(self, claims: Sequence[Claim]) -> None:
        self._ask("release")
        await super().release(claims)


class _Surface:
    """As much of an app as the plugin asks for."""

    def __init__(self, app: RocketApp, store: MemoryStore, config: IdempotencyConfig) -> None:
        self.subscriptions = [bound(app).subscription]
        self._store, self._config = store, config

    def options(self, _table: type[Any]) -> IdempotencyConfig:
        return self._config

    def idempotency_store(self) -> MemoryStore:
        return self._store

    def observe(self, event: Event) -> None:
        raise AssertionError(event)


@asynccontextmanager
async def opened(
    app: RocketApp, store: MemoryStore | None = None, **options: Any
) -> AsyncIterator[Callable[[Any], Any]]:
    """The chain of the app's only handler; its store is open."""
    plugin, plugins = Idempotency(), Plugins()
    plugins.register(plugin)
    call = call_of(app, plugins=plugins)
    await plugin.app_startup(_Surface(app, store or MemoryStore(100), IdempotencyConfig(**options)))  # type: ignore[arg-type]
    try:
        yield call
    finally:
        await plugin.app_shutdown()


async def settled(call: Callable[[Any], Any], item: Any) -> Any:
    """Call as a consumer does: what is parked is called again after its time."""
    result = await call(item)
    parked = result.values() if isinstance(result, Outcomes) else [result]
    waits = [one.after for one in parked if isinstance(one, Park)]
    if not waits:
        return result
    await asyncio.sleep(max(waits))
    again = [one for one in item if isinstance(result.get(one), Park)] if isinstance(item, list) else item
    return await settled(call, again)


async def in_thread(call: Callable[[], T]) -> T:
    """Call it in a thread of its own, as workers of sync handlers do. (Virtual time does not wait for threads.)"""
    loop, future = asyncio.get_running_loop(), asyncio.get_running_loop().create_future()

    def run() -> None:
        try:
            result = call()
        except BaseException as error:
            loop.call_soon_threadsafe(future.set_exception, error)
        else:
            loop.call_soon_threadsafe(future.set_result, result)

    threading.Thread(target=run, daemon=True).start()
    found: T = await future
    return found
