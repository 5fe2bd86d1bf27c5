"""Idempotency for handlers that ask for it: `subscribe(..., idempotent=True)`, or a function that gives the key."""

from __future__ import annotations

from rocketapp.plugin import IdempotencyStore, Subscription, Surface, Wrapper, hookimpl
from rocketapp.plugins.idempotency.config import IdempotencyConfig
from rocketapp.plugins.idempotency.leased_store import LeasedStore
from rocketapp.plugins.idempotency.once import Once, OnceBatch


class Idempotency:
    """The plugin of one app. Handlers without `idempotent=` are not wrapped."""

    def __init__(self) -> None:
        self._leased: LeasedStore | None = None

    @hookimpl
    def options(self) -> tuple[str, type[IdempotencyConfig]]:
        return "idempotency", IdempotencyConfig

    @hookimpl
    def idempotency_store(self, app: Surface) -> IdempotencyStore:
        """The store of the settings; a plugin that comes later may bring another."""
        config = app.options(IdempotencyConfig)
        if config.store == "memory":
            from rocketapp.plugins.idempotency.decisions import MemoryStore

            return MemoryStore(config.most)
        from rocketapp.plugins.idempotency.sqlite import SQLiteStore

        return SQLiteStore(config.path)

    @hookimpl
    def handler_wrapper(self, subscription: Subscription) -> Wrapper | None:
        if not _is_ours(subscription):
            return None
        single = Once(subscription, self._opened)
        once = single if subscription.batch is None else OnceBatch(single)
        return Wrapper(layer="idempotency", for_sync=once.for_sync, for_async=once.for_async)

    @hookimpl
    async def app_startup(self, app: Surface) -> None:
        if any(map(_is_ours, app.subscriptions)):
            store = app.idempotency_store()
            if store is not None:
                leased = LeasedStore(store, app.options(IdempotencyConfig), app.observe)
                await leased.open()
                self._leased = leased

    @hookimpl
    async def app_shutdown(self) -> None:
        if self._leased is not None:
            await self._leased.close()
            self._leased = None

    def _opened(self) -> LeasedStore:
        assert self._leased is not None, "messages come after app_startup"
        return self._leased


def _is_ours(subscription: Subscription) -> bool:
    """A key function with `keeps_marks` belongs to another plugin, which keeps the marks itself."""
    return bool(subscription.idempotent) and not getattr(subscription.idempotent, "keeps_marks", False)
