"""What stands in front of an idempotent handler: claim, handle, mark.

claim → CLAIMED → handler → done, or released when it failed or was cancelled
      → DONE    → skipped
      → RUNNING → the second copy is parked, and claims again; or it is skipped

A store that fails means Retry: a message is never handled without its mark.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from rocketapp import Message, Retry, Skip
from rocketapp.plugin import (
    CLAIMED,
    Answer,
    AsyncCall,
    Claim,
    Park,
    PluginError,
    Subscription,
    SyncCall,
    is_done,
    keys_of,
)
from rocketapp.plugins.idempotency.decisions import NextStep, next_step, pause_before_look
from rocketapp.plugins.idempotency.leased_store import LeasedStore

T = TypeVar("T")
SKIPPED = Skip("handled before")


class Once:
    """Handles each message of one subscription once, as far as the store remembers."""

    def __init__(self, subscription: Subscription, store: Callable[[], LeasedStore]) -> None:
        """`store()` is asked at the first message: the store opens after the handlers are wrapped."""
        self.subscription = subscription
        self._store = store
        wanted = subscription.idempotent
        self._key = keys_of(subscription, wanted if callable(wanted) else None)

    @property
    def store(self) -> LeasedStore:
        return self._store()

    def claim_for(self, message: Message) -> Claim:
        """Raises what the user's key function raises, and TypeError or ValueError for what cannot be a key."""
        return self.store.claim_for(self._key(message))

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """In a handler's thread: do this on the loop."""
        loop = self.store.loop
        if loop.is_closed():
            work.close()
            raise Retry
        return asyncio.run_coroutine_threadsafe(work, loop).result()

    async def take(self, claim: Claim) -> Retry | Skip | Park | None:
        """Claim a message; None means: handle it."""
        store = self._store()
        try:
            (answer,) = await store.claim((claim,))
        except PluginError as error:
            return retry_because(error)
        if answer is not CLAIMED:  # nearly always it is: no further decision then
            step = next_step(answer, claim)
            if step is not NextStep.HANDLE:
                return SKIPPED if step is NextStep.SKIP else self.parked(answer)
        store.hold((claim,))
        return None

    def parked(self, answer: Answer) -> Park:
        """Another copy is being handled: this one is called again when that may have ended."""
        return Park(pause_before_look(answer, self.store.config.lease), "another copy of this message is being handled")

    def is_raised_done(self, error: BaseException) -> bool:
        """Whether a call that raised this is done all the same."""
        return isinstance(error, Exception) and is_done(error, self.subscription, raised=True)

    def for_async(self, call: AsyncCall) -> AsyncCall:
        async def once(message: Message) -> Any:
            claim, store = self.claim_for(message), self.store
            try:
                outcome = await self.take(claim)
                if outcome is not None:
                    return outcome
                result = await call(message)
            except BaseException as error:
                await store.end((claim,), done=self.is_raised_done(error))
                raise
            await store.end((claim,), done=is_done(result, self.subscription))
            return result

        return once

    def for_sync(self, call: SyncCall) -> SyncCall:
        def once(message: Message) -> Any:
            claim, store, wait = self.claim_for(message), self.store, self.wait
            outcome = wait(self.take(claim))
            if outcome is not None:
                return outcome
            try:
                result = call(message)
            except BaseException as error:
                wait(store.end((claim,), done=self.is_raised_done(error)))
                raise
            wait(store.end((claim,), done=is_done(result, self.subscription)))
            return result

        return once


def retry_because(cause: Exception) -> Retry:
    """A Retry that says why."""
    retry = Retry()
    retry.__cause__ = cause
    return retry
