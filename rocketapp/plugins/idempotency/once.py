"""What stands in front of an idempotent handler: claim, handle, mark.

claim → CLAIMED → handler → done, or released when it failed or was cancelled
      → DONE    → skipped
      → RUNNING → the second copy is parked, and claims again; or it is skipped

A store that fails means Retry: a message is never handled without its mark. Of a batch each message goes this way by
itself: those that are done are left out, and the rest is handled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from rocketapp import Message, Outcomes, Retry, Skip
from rocketapp.plugin import (
    CLAIMED,
    Answer,
    AsyncCall,
    Claim,
    MarkState,
    Park,
    PluginError,
    Subscription,
    SyncCall,
    is_done,
    keys_of,
    outcome_of,
    outcomes_of,
)
from rocketapp.plugins.idempotency.decisions import pause_before_look, split, state_for
from rocketapp.plugins.idempotency.leased_store import LeasedStore

T = TypeVar("T")
Do = Callable[[Coroutine[Any, Any, Any]], Awaitable[Any]]
"""Has a store's work done: awaits it on the loop, or blocks the handler's thread until it is done there."""
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
        """The claim for a message.

        Raises what the user's key function raises, and TypeError or ValueError for an invalid key.
        """
        return self.store.claim_for(self._key(message))

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """From a handler's thread: run this on the loop and wait for it."""
        loop = self.store.loop
        if loop.is_closed():
            work.close()
            raise Retry
        return asyncio.run_coroutine_threadsafe(work, loop).result()

    async def take(self, claim: Claim) -> Retry | Skip | Park | None:
        """Claim a message. None: handle it; otherwise the outcome without a call."""
        store = self._store()
        try:
            (answer,) = await store.claim((claim,))
        except PluginError as error:
            return retry_because(error)
        if answer is not CLAIMED:  # nearly always it is: no further decision then
            state = state_for(claim, answer)
            if state is not MarkState.CLAIMED:
                return SKIPPED if state is MarkState.DONE else self.parked(answer)
        store.hold((claim,))
        return None

    def parked(self, answer: Answer) -> Park:
        """Another copy is being handled: park this one until that may have ended."""
        return Park(pause_before_look(answer, self.store.config.lease), "another copy of this message is being handled")

    def is_raised_done(self, error: BaseException) -> bool:
        """Whether a call that raised this is done, as its policy says."""
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


class OnceBatch:
    """Handles each message of each batch of one subscription once."""

    def __init__(self, once: Once) -> None:
        self._once = once

    def for_async(self, call: AsyncCall) -> AsyncCall:
        async def on_loop(work: Coroutine[Any, Any, T]) -> T:
            return await work

        async def each_once(messages: list[Message]) -> Any:
            return await _Batch(self._once, messages, call, on_loop).handled()

        return each_once

    def for_sync(self, call: SyncCall) -> SyncCall:
        async def hand(messages: list[Message]) -> Any:
            return call(messages)

        async def blocking(work: Coroutine[Any, Any, T]) -> T:
            return self._once.wait(work)

        def each_once(messages: list[Message]) -> Any:
            try:
                _Batch(self._once, messages, hand, blocking).handled().send(None)
            except StopIteration as end:
                return end.value
            raise AssertionError("in a thread nothing of it suspends")

        return each_once


class _Batch:
    """One batch."""

    def __init__(self, once: Once, messages: list[Message], call: AsyncCall, do: Do) -> None:
        self._once, self._messages, self._call, self._do = once, messages, call, do
        self._outcomes = Outcomes()
        """What is decided so far: SKIPPED for done."""
        self._copies: dict[str, list[Message]] = {}
        """By key: every message of this batch that has it. Only the first is handled, the others share its outcome."""
        self._claims: dict[str, Claim] = {}

    async def handled(self) -> Any:
        """The handler's result when it was given the whole batch; otherwise the outcomes of its messages."""
        for message in self._messages:
            try:
                claim = self._once.claim_for(message)
            except Exception as error:
                # The other messages of the batch are not to blame.
                self._outcomes[message] = self._outcome_of(error)
                continue
            self._copies.setdefault(claim.key, []).append(message)
            self._claims.setdefault(claim.key, claim)
        store, keys, claims = self._once.store, list(self._claims), list(self._claims.values())
        if not keys:
            return self._outcomes
        try:
            answers: Sequence[Answer] = await self._do(store.claim(claims))
        except PluginError as error:
            self._decide(keys, retry_because(error))
            return self._outcomes
        except BaseException:
            await self._do(store.give_back(claims))
            raise
        parts = split(list(map(state_for, claims, answers)))
        self._decide([keys[at] for at in parts.skip], SKIPPED)
        if parts.later:
            self._decide([keys[at] for at in parts.later], self._once.parked(answers[parts.later[0]]))
        if parts.release:
            await self._do(store.give_back([claims[at] for at in parts.release]))
        if parts.handle:
            whole = await self._handle([keys[at] for at in parts.handle])
            if whole is not None:
                return whole[0]
        return self._outcomes

    async def _handle(self, keys: list[str]) -> tuple[Any] | None:
        """Handle the first copy of each key. Returns the handler's own result when that says everything."""
        store, claims = self._once.store, [self._claims[key] for key in keys]
        store.hold(claims)
        given = [self._copies[key][0] for key in keys]
        is_whole = len(given) == len(self._messages)
        try:
            result = await self._call(list(given))
        except BaseException as error:
            await self._do(store.end(claims, done=self._once.is_raised_done(error)))
            if not self._outcomes or not isinstance(error, Exception):
                raise
            # What was handed over fails, and not what was done before, or is parked.
            self._decide(keys, self._outcome_of(error))
            return None
        outcomes = dict(zip(claims, outcomes_of(result, given), strict=True))
        good, bad = list[Claim](), list[Claim]()
        for claim, outcome in outcomes.items():
            (good if is_done(outcome, self._once.subscription) else bad).append(claim)
        if good:
            await self._do(store.finish(good))
        if bad:
            await self._do(store.give_back(bad))
        if is_whole:
            return (result,)
        self._decide([claim.key for claim in good], SKIPPED)
        for claim in bad:
            self._decide([claim.key], outcomes[claim])
        return None

    def _decide(self, keys: Sequence[str], outcome: Any) -> None:
        for key in keys:
            self._outcomes.update(dict.fromkeys(self._copies[key], outcome))

    def _outcome_of(self, error: Exception) -> Any:
        """What an exception means for its message, by the handler's policy."""
        outcome = outcome_of(error, self._once.subscription, raised=True)
        return error if isinstance(error, type(outcome)) else outcome
