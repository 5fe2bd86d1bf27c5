"""What stands in front of an idempotent handler: claim, handle, mark.

claim → CLAIMED → handler → done, or released when it failed or was cancelled
      → DONE    → skipped
      → RUNNING → the second copy waits, is retried or is skipped

A store that fails means Retry: a message is never handled without its mark.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from rocketapp.plugin import (
    CLAIMED,
    Answer,
    AsyncCall,
    Claim,
    Message,
    PluginError,
    Retry,
    Skip,
    Subscription,
    SyncCall,
    is_done,
    keys_of,
)
from rocketapp.plugins.idempotency.decisions import LONGEST_PAUSE, Step, next_step, pause_before_look
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
        place = f"{message.queue.broker_name if message.queue else ''}:{message.physical_offset}"
        return self.store.claim_for(self._key(message), place)

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """In a handler's thread: do this on the loop."""
        loop = self.store.loop
        if loop.is_closed():
            work.close()
            raise Retry
        return asyncio.run_coroutine_threadsafe(work, loop).result()

    async def take(self, message: Message, claim: Claim) -> Retry | Skip | None:
        """Claim the message, now or when the first copy is done; None means: handle it."""
        store, looks = self._store(), 0
        began = store.loop.time()
        while True:
            try:
                (answer,) = await store.claim((claim,))
            except PluginError as error:
                return retry_because(error)
            if answer is CLAIMED:  # nearly always: no further decision for it
                store.hold((claim,))
                return None
            step = self.step(message, claim, answer, store.loop.time() - began)
            if step is Step.HANDLE:
                store.hold((claim,))
                return None
            if step is not Step.WAIT:
                return SKIPPED if step is Step.SKIP else busy(answer)
            await asyncio.sleep(pause_before_look(looks, answer))
            looks += 1

    def step(self, message: Message, claim: Claim, answer: Answer, waited: float) -> Step:
        """What is to be done with a message after this answer."""
        config = self.store.config
        return next_step(
            answer,
            claim,
            attempt=message.attempt,
            second_copy=config.second_copy,  # type: ignore[arg-type]  # one of the option's choices
            waited=waited,
            longest_wait=config.lease + 2 * LONGEST_PAUSE,
        )

    def is_raised_done(self, error: BaseException) -> bool:
        """Whether a call that raised this is done all the same."""
        return isinstance(error, Exception) and is_done(error, self.subscription, raised=True)

    def for_async(self, call: AsyncCall) -> AsyncCall:
        async def once(message: Message) -> Any:
            claim, store = self.claim_for(message), self.store
            try:
                outcome = await self.take(message, claim)
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
            outcome = wait(self.take(message, claim))
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


def busy(answer: Answer) -> Retry:
    """The second copy comes again when the lease of the first one ends at the latest."""
    return retry_because(PluginError("idempotency", "another copy of this message is being handled"), answer.seconds)


def retry_because(cause: Exception, after: float | None = None) -> Retry:
    """A Retry that says why."""
    retry = Retry(after)
    retry.__cause__ = cause
    return retry
