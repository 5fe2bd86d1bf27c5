"""The idempotency store with retries when it fails, and with renewal of leases.

Everything here runs on the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from itertools import count
from typing import Any, TypeVar

from rocketapp.plugin import CLAIMED, Answer, Claim, IdempotencyStore, PluginError, Tasks, events
from rocketapp.plugins.idempotency.config import IdempotencyConfig

T = TypeVar("T")
log: logging.Logger = logging.getLogger("rocketapp.idempotency")
RENEWALS_PER_LEASE = 4
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 1.0
"""Seconds between two tries of a store that fails."""
_PARTING = 0.5
"""Seconds for a release: a cancelled handler has to end soon, and a lease ends by itself."""


class LeasedStore:
    """The store of one app, and the leases of its claims."""

    def __init__(self, store: IdempotencyStore, config: IdempotencyConfig, observe: events.Observe) -> None:
        self.config = config
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self._store, self._tasks = store, Tasks(observe)
        self._held: dict[Claim, None] = {}
        self._process, self._numbers = uuid.uuid4().hex, count()

    def __repr__(self) -> str:
        return f"<LeasedStore of {self._store!r}: {len(self._held)} claims held>"

    async def open(self) -> None:
        """Open the store. Raises what it raises."""
        await self._store.open()
        self._tasks.start(self._keep_leases(), "idempotency leases")

    async def close(self) -> None:
        await self._tasks.close()
        await self._store.close()

    def claim_for(self, key: str) -> Claim:
        """The claim for a new attempt."""
        return Claim(key, f"{self._process}{next(self._numbers)}")

    async def claim(self, claims: Sequence[Claim]) -> Sequence[Answer]:
        """Claim keys. Raises PluginError when the store fails for longer than `patience`."""
        lease = self.config.lease
        try:
            return await self._store.claim(claims, lease=lease)
        except Exception as error:
            return await self._again(error, lambda: self._store.claim(claims, lease=lease))

    def hold(self, claims: Sequence[Claim]) -> None:
        """Renew these leases until `finish` or `give_back`."""
        for claim in claims:
            self._held[claim] = None

    def end(self, claims: Sequence[Claim], *, done: bool) -> Coroutine[Any, Any, None]:
        """`finish` if the messages are done, else `give_back`."""
        return self.finish(claims) if done else self.give_back(claims)

    async def finish(self, claims: Sequence[Claim]) -> None:
        """Mark these messages as handled. When the store fails, that is logged only: the effect is there."""
        keys, expiry = [claim.key for claim in claims], self.config.expiry
        try:
            try:
                await self._store.done(keys, expiry=expiry)
            except Exception as error:
                await self._again(error, lambda: self._store.done(keys, expiry=expiry))
        except PluginError as error:
            log.error("%d handled messages have no mark, a further copy would be handled again: %s", len(keys), error)
        finally:
            self._let_go(claims)

    async def give_back(self, claims: Sequence[Claim]) -> None:
        """The messages were not handled: release their keys, so that another attempt need not wait. Raises nothing."""
        self._let_go(claims)
        try:
            async with asyncio.timeout(_PARTING):
                await self._store.release(claims)
        except Exception as error:
            log.warning("%d claims stay until their lease ends: %s", len(claims), _said(error))

    def _let_go(self, claims: Sequence[Claim]) -> None:
        for claim in claims:
            self._held.pop(claim, None)

    async def _again(self, failure: Exception, ask: Callable[[], Awaitable[T]]) -> T:
        """Repeat a request while the store fails, so that a short outage costs no attempt of a message."""
        end = self.loop.time() + self.config.patience
        pause = _FIRST_PAUSE
        while self.loop.time() < end:
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
            try:
                return await ask()
            except Exception as error:
                failure = error
        raise PluginError("idempotency", f"the store {self._store!r} fails: {_said(failure)}") from failure

    async def _keep_leases(self) -> None:
        """Renew leases held for more than a quarter of their time. Quick handlers cost nothing here."""
        before: dict[Claim, None] = {}
        while True:
            await asyncio.sleep(self.config.lease / RENEWALS_PER_LEASE)
            long_held = [claim for claim in self._held if claim in before]
            before = dict(self._held)
            if not long_held:
                continue
            try:
                # A claim and not less: a lease that ended meanwhile, unseen by others, is taken again.
                answers = await self._store.claim(long_held, lease=self.config.lease)
            except Exception as error:
                log.warning("%d leases were not renewed: %s", len(long_held), _said(error))
                continue
            asked = zip(long_held, answers, strict=True)
            lost = [claim for claim, answer in asked if answer != CLAIMED and claim in self._held]
            if lost:
                log.warning("%d leases are lost: copies of messages in flight are or were handled elsewhere", len(lost))
                self._let_go(lost)


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
