"""One transaction per call of a handler: its mark, its effect and its outbox commit together or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import Session, SessionTransaction

from rocketapp import Message, Outcomes, RocketAppError, Skip
from rocketapp.plugin import AsyncCall, MakeKey, Subscription, SyncCall, is_done, outcome_of, outcomes_of
from rocketapp_sqlalchemy import marking

SKIPPED: Skip = Skip("handled before")
current: ContextVar[Session | AsyncSession | None] = ContextVar("rocketapp_sqlalchemy.session", default=None)
"""The session of the call that runs here."""


class Once:
    """Handles each message of one subscription once, for good."""

    def __init__(self, subscription: Subscription, key: MakeKey) -> None:
        self._subscription, self._key = subscription, key

    def for_sync(self, make_session: Callable[[], Session]) -> Callable[[SyncCall], SyncCall]:
        """`make_session`: opens one that is not in a transaction."""

        def wrap(call: SyncCall) -> SyncCall:
            def once(handed: Any) -> Any:
                part = self._part(handed)
                with make_session() as session:
                    if not part.is_left(session):
                        return part.outcome(None, is_called=False)
                    with _current(session):
                        result = call(part.left)
                    part.end(session, result)
                return part.outcome(result)

            return once

        return wrap

    def for_async(self, make_session: Callable[[], AsyncSession]) -> Callable[[AsyncCall], AsyncCall]:
        """The same, awaited."""

        def wrap(call: AsyncCall) -> AsyncCall:
            async def once(handed: Any) -> Any:
                part = self._part(handed)
                async with make_session() as session:
                    if not await session.run_sync(part.is_left):
                        return part.outcome(None, is_called=False)
                    with _current(session):
                        result = await call(part.left)
                    await session.run_sync(part.end, result)
                return part.outcome(result)

            return once

        return wrap

    def _part(self, handed: Any) -> _Part:
        return _Part(self._subscription, handed, self._key)


class _Part:
    """The messages of one call, and what is decided about them."""

    def __init__(self, subscription: Subscription, handed: Any, key: MakeKey) -> None:
        self._subscription = subscription
        self._is_batch = subscription.batch is not None
        self._messages: list[Message] = []
        self._keys: list[str] = []
        self._without_key = Outcomes()
        """Of a batch: the messages whose key function raised. The others are not to blame."""
        for message in handed if self._is_batch else [handed]:
            try:
                self._keys.append(key(message))
                self._messages.append(message)
            except Exception as error:
                if not self._is_batch:
                    raise
                self._without_key[message] = self._outcome_of(error)
        self._given: dict[str, Message] = {}
        """By key: the first copy of what is to be handled."""
        self._outcomes: dict[str, Any] = {}
        self._begun: SessionTransaction | None = None

    def is_left(self, session: Session) -> bool:
        """Mark all keys, in the session's transaction; whether a message has one that was not marked before."""
        taken = marking.take(session.connection(), self._keys) if self._keys else set[str]()
        for key, message in zip(self._keys, self._messages, strict=True):
            if key in taken:
                self._given.setdefault(key, message)
        self._begun = session.get_transaction()
        return bool(taken)

    @property
    def left(self) -> Any:
        """What is left, as the handler takes it."""
        given = list(self._given.values())
        return given if self._is_batch else given[0]

    def end(self, session: Session, result: object) -> None:
        """Commit, if a message of the call has a plain value. An outcome, Skip too, undoes the effect of all.

        Raises RocketAppError when the handler has ended its transaction and written in another one, without the mark.
        """
        now = session.get_transaction()
        if now is not None and now is not self._begun:
            raise RocketAppError(
                "the handler ended its transaction, by commit() or rollback(), and began another one, without the "
                "mark: leave that to rocketapp; for what may fail there is session.begin_nested()"
            )
        outcomes = outcomes_of(result, list(self._given.values())) if self._is_batch else [result]
        self._outcomes = dict(zip(self._given, outcomes, strict=True))
        if any(outcome_of(outcome, self._subscription) is None for outcome in outcomes):
            undone = [key for key, outcome in self._outcomes.items() if not is_done(outcome, self._subscription)]
            if undone:
                session.execute(marking.leave(undone))
            session.commit()

    def outcome(self, result: object, *, is_called: bool = True) -> Any:
        """For the engine: the handler's own answer where it says everything."""
        if not self._is_batch:
            return result if is_called else SKIPPED
        if is_called and len(self._given) == len(self._messages) and not self._without_key:
            return result
        outcomes = Outcomes(self._without_key)
        for key, message in zip(self._keys, self._messages, strict=True):
            outcome = self._outcomes.get(key, SKIPPED)
            outcomes[message] = SKIPPED if is_done(outcome, self._subscription) else outcome
        return outcomes

    def _outcome_of(self, error: Exception) -> Any:
        """What it means for its message, by the handler's policy; an outcome says itself what follows."""
        outcome = outcome_of(error, self._subscription, raised=True)
        return error if isinstance(error, type(outcome)) else outcome


@contextmanager
def _current(session: Session | AsyncSession) -> Iterator[None]:
    token = current.set(session)
    try:
        yield
    finally:
        current.reset(token)


def engine_of(engines: Sequence[Any], *, is_async: bool) -> Any:
    """The first engine of this kind, or None."""
    return next((engine for engine in engines if isinstance(engine, AsyncEngine) is is_async), None)
