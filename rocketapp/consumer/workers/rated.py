"""Workers of a handler with `rate=`: they start no more messages a second than that.

Without a token, a work is dry: it gives workers no item, as if it had none left. It is handed over again when there is
a token. So no call sleeps, messages stay where they can be withdrawn, and pulls stop by the limits of their queue.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from operator import length_hint
from typing import Any

from rocketapp.consumer.handler import Handler, Tokens
from rocketapp.consumer.workers.work import Work, Workers
from rocketapp.wire.record import Message

_SHORTEST_WAIT = 0.02
"""Seconds that tokens gather before messages start again."""


class Metered(Iterator[Any]):
    """Items, as long as there are tokens. It goes on after it was dry."""

    __slots__ = ("_items", "_who", "is_dry")

    def __init__(self, items: Iterator[Any], who: RatedWorkers) -> None:
        """Tells `who` when a message could not start, and when the last item was drawn; in the thread that draws."""
        self._items, self._who = items, who
        self.is_dry: bool = False

    def __next__(self) -> Any:
        tokens = self._who.tokens
        if not tokens.take(self._who, self._who.now()):
            self.is_dry = True
            self._who.dry()
            raise StopIteration
        try:
            item = next(self._items)
        except StopIteration:
            tokens.spend(-1)
            raise
        if not length_hint(self._items):
            self._who.ended()
        if not isinstance(item, Message):
            tokens.spend(len(item) - 1)
        return item

    def __length_hint__(self) -> int:
        left = length_hint(self._items)
        if left and not self._who.tokens.has_token(self._who, self._who.now()):
            # A free worker asks, draws nothing, and has to be woken for the next token.
            self._who.dry()
            return 0
        return left


class RatedWorkers:
    """Hands works over again when they went dry."""

    is_quick = False

    def __init__(self, workers: Workers, tokens: Tokens) -> None:
        self._workers = workers
        self.handler: Handler = workers.handler
        self.call: Callable[[Any], Any] = workers.call
        self.tokens: Tokens = tokens
        self._loop = asyncio.get_running_loop()
        self.now: Callable[[], float] = self._loop.time
        self._works: deque[Work] = deque()
        """Those that may have items left, the next one first."""
        self._is_asked = False
        """They are handed over soon."""
        self._timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<RatedWorkers of {self._workers!r}>"

    @property
    def batch(self) -> tuple[int, float] | None:
        """Most messages of a batch and seconds to wait for them; None for a handler of single messages."""
        return self._workers.batch

    @property
    def is_paused(self) -> bool:
        """Its topic is paused: what is handed over waits."""
        return self._workers.is_paused

    def submit(self, work: Work) -> None:
        """Hand over work."""
        work.draw_through(lambda items: items if isinstance(items, Metered) else Metered(items, self))
        while self._works and not self._works[0].left:
            self._works.popleft()
        if not work.is_endless:
            self._works.append(work)
            self._workers.submit(work)
            return
        if work not in self._works:
            self._works.append(work)
        if not self._is_asked:
            # Otherwise it waits for its turn: a queue whose messages come first would have every token.
            self._workers.submit(work)

    def in_flight(self) -> list[Any]:
        """Per worker what it works on, or None."""
        return self._workers.in_flight()

    def adopt(self, hand: Any) -> None:
        """No other worker begins calls of theirs."""

    def resize(self, most: int) -> None:
        """At most this number of calls at once from now on."""
        self._workers.resize(most)

    def change_batch(self, most: int) -> None:
        """Another most of messages in a batch holds from now on."""
        self._workers.change_batch(most)

    def change_rate(self, rate: float) -> None:
        """Another rate holds from now on, also for what waits."""
        self.tokens.change(rate, self.now())
        if self._timer is not None:
            self._timer.cancel()
            self._wait()

    async def cancel(self, is_mine: Callable[[Any], bool]) -> None:
        """Cancel the running calls for these items, where they can be cancelled."""
        await self._workers.cancel(is_mine)

    async def stop(self) -> None:
        """Start nothing more, and cancel what can be cancelled."""
        if self._timer is not None:
            self._timer.cancel()
        self._works.clear()
        await self._workers.stop()

    def halt(self) -> None:
        """In a forked child: start nothing more."""
        self._works.clear()
        self._workers.halt()

    def dry(self) -> None:
        """A message could not start. May be called from a thread."""
        if not self._is_asked:
            self._is_asked = True
            try:
                self._loop.call_soon_threadsafe(self._wait)
            except RuntimeError:
                return  # the loop is closed

    def ended(self) -> None:
        """One work has no item left: what waits behind it was perhaps not handed over."""
        if len(self._works) > 1:
            self.dry()

    def _wait(self) -> None:
        self._timer = self._loop.call_later(max(self.tokens.wait(self.now()), _SHORTEST_WAIT), self._go_on)

    def _go_on(self) -> None:
        self._is_asked, self._timer = False, None
        enough, works = self.tokens.most, self._works
        given = list[Work]()
        for _ in range(len(works)):
            if enough <= 0:
                break
            work = works.popleft()
            if left := work.left:
                given.append(work)
                self._workers.submit(work)
                enough -= left
        # Endless ones take turns; others go first until they are used up, as they came.
        works.extendleft(reversed([work for work in given if not work.is_endless]))
        works.extend(work for work in given if work.is_endless)
