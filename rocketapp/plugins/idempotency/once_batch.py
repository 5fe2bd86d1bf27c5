"""The same for a batch: each message by itself. Those that are done are left out, and the rest is handled.

The steps are a generator without a thread or a loop. It yields what is to be awaited (`Await`)
or handed to the handler (`Hand`), and is sent the result; so sync and async handlers share it.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator, Sequence
from dataclasses import dataclass
from typing import Any

from rocketapp import Message, Outcomes
from rocketapp.plugin import Answer, AsyncCall, Claim, PluginError, SyncCall, is_done, outcome_of, outcomes_of
from rocketapp.plugins.idempotency.decisions import next_step, split
from rocketapp.plugins.idempotency.once import SKIPPED, Once, retry_because


@dataclass(frozen=True, slots=True)
class Await:
    """To be awaited on the loop."""

    work: Coroutine[Any, Any, Any]


@dataclass(frozen=True, slots=True)
class Hand:
    """To be given to the handler."""

    messages: list[Message]


Steps = Generator[Await | Hand, Any, Any]


class OnceBatch:
    """Handles each message of each batch of one subscription once."""

    def __init__(self, once: Once) -> None:
        self._once = once

    def for_async(self, call: AsyncCall) -> AsyncCall:
        async def each_once(messages: list[Message]) -> Any:
            steps = _Batch(self._once, messages).steps()
            try:
                doing = next(steps)
                while True:
                    try:
                        result = await (doing.work if isinstance(doing, Await) else call(doing.messages))
                    except BaseException as error:
                        doing = steps.throw(error)
                    else:
                        doing = steps.send(result)
            except StopIteration as end:
                return end.value

        return each_once

    def for_sync(self, call: SyncCall) -> SyncCall:
        def each_once(messages: list[Message]) -> Any:
            steps = _Batch(self._once, messages).steps()
            try:
                doing = next(steps)
                while True:
                    try:
                        result = self._once.wait(doing.work) if isinstance(doing, Await) else call(doing.messages)
                    except BaseException as error:
                        doing = steps.throw(error)
                    else:
                        doing = steps.send(result)
            except StopIteration as end:
                return end.value

        return each_once


class _Batch:
    """One batch on its way."""

    def __init__(self, once: Once, messages: list[Message]) -> None:
        self._once, self._messages = once, messages
        self._outcomes = Outcomes()
        """What is decided so far: SKIPPED for done."""
        self._copies: dict[str, list[Message]] = {}
        """By key: every message of this batch that has it. Only the first is handled, the others share its outcome."""
        self._claims: dict[str, Claim] = {}

    def steps(self) -> Steps:
        """Returns what the handler returned, when it was given the whole batch; else the outcomes of its messages."""
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
            answers: Sequence[Answer] = yield Await(store.claim(claims))
        except PluginError as error:
            self._decide(keys, retry_because(error))
            return self._outcomes
        except BaseException:
            yield Await(store.give_back(claims))
            raise
        parts = split(list(map(next_step, answers, claims)))
        self._decide([keys[at] for at in parts.skip], SKIPPED)
        if parts.later:
            self._decide([keys[at] for at in parts.later], self._once.parked(answers[parts.later[0]]))
        if parts.release:
            yield Await(store.give_back([claims[at] for at in parts.release]))
        if parts.handle:
            whole = yield from self._handle([keys[at] for at in parts.handle])
            if whole is not None:
                return whole[0]
        return self._outcomes

    def _handle(self, keys: list[str]) -> Generator[Await | Hand, Any, tuple[Any] | None]:
        """Handle the first copy of each key. Returns the handler's own result when that says everything."""
        store, claims = self._once.store, [self._claims[key] for key in keys]
        store.hold(claims)
        given = [self._copies[key][0] for key in keys]
        is_whole = len(given) == len(self._messages)
        try:
            result = yield Hand(list(given))
        except BaseException as error:
            yield Await(store.end(claims, done=self._once.is_raised_done(error)))
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
            yield Await(store.finish(good))
        if bad:
            yield Await(store.give_back(bad))
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
        """What it means for its message, by the handler's policy; an outcome says itself what follows."""
        outcome = outcome_of(error, self._once.subscription, raised=True)
        return error if isinstance(error, type(outcome)) else outcome
