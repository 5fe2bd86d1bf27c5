"""Limits the calls of one handler: concurrency, rate, and pauses.

Messages of a handler come from its queues, from retries, and from other members. All share one caller.

Whoever calls a handler takes a call before and releases it afterwards. Runs wait at their handler for a free call, a
token, or the end of a pause: no worker waits for one handler while another one has messages.

Sync handlers take and release calls in threads: each in one atomic step.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from rocketapp.consumer.handler import Handler, messages_of
from rocketapp.consumer.member import Member

_BURST = 0.1
"""Seconds whose messages may start at once after a rest."""
_SHORTEST_WAIT = 0.02
"""Seconds that tokens gather before messages start again."""


class Workers(Protocol):
    """Walks through runs: tasks of the loop for async handlers, threads for sync ones."""

    def submit(self, caller: Caller, run: Any) -> None:
        """On the loop: process this run, whose first message is for this handler."""
        ...

    def enter(self, caller: Caller, *, by_worker: bool = False) -> None:
        """The handler may be called again. `by_worker`: called by a worker, which looks for the next run itself."""
        ...


class Caller:
    """Limits the calls of one handler: how many at once, how many a second, and none during a pause."""

    def __init__(self, handler: Handler, member: Member, workers: Workers) -> None:
        """`workers`: those that call it."""
        about = handler.subscription
        self.concurrency: int | None = None
        """Calls at once as it was adjusted; None: as declared, or more as the backlog asks."""
        self.most: int = about.concurrency
        self._free: deque[None] = deque([None] * self.most)
        self._surplus: deque[None] = deque()
        """Calls that run beyond a smaller most: they are not given back."""
        self.handler: Handler = handler
        self.workers: Workers = workers
        self.call: Callable[[Any], Any] = handler.call
        self.batch: int | None = about.batch
        """Most messages of a batch; None for a handler of single messages."""
        self.goes_with: object = workers if about.batch is None and handler.runs_here else self
        """A worker goes on from one handler to another only where this is the same."""
        self.is_plain: bool = about.batch is None and handler.decisions is None and about.every is None
        """A call that returned None is done."""
        self.runs: deque[Any] = deque()
        """The `run.Run`s whose next message is for this handler, apart from `mixed`."""
        self.mixed: deque[Any] = deque()
        """Those of many handlers."""
        self.mixed_next: bool = False
        """The next run is one of many handlers, if there is one."""
        self.has_turn: bool = False
        """It is among those that take turns (`run.Ready`)."""
        self._tokens = None if about.rate is None else TokenBucket(about.rate, 0.0)
        self._loop = asyncio.get_running_loop()
        self._is_dry = False
        """There was no token, and it is looked again soon."""
        self._timer: asyncio.TimerHandle | None = None
        self._probe: deque[None] = deque()
        """Holds something when one message may start although its topic is paused."""
        self.probed: Any = None
        """What was started so last, until a pause begins or ends."""
        self._pauses, self._topic = member.pauses, about.topic
        self.is_paused: bool = self._pauses.is_paused(self._topic)
        """Nothing more may start, apart from a probe."""
        self._pauses.watch(self._topic, self._pauses_changed)
        self.is_open: bool = not self.is_paused and self._tokens is None
        """Whoever has a call may start the next message: there is no rate, no pause, and not too many calls run."""

    def __repr__(self) -> str:
        runs = len(self.runs) + len(self.mixed)
        return f"<Caller of {self.handler.name}: {len(self._free)} of {self.most} free, {runs} runs>"

    @property
    def free(self) -> int:
        """How many more calls may start now."""
        if self.is_paused:
            return len(self._probe)
        return 0 if self._is_dry else len(self._free)

    @property
    def lacks(self) -> str:
        """What its messages wait for, in words: a free call, or its rate; empty while one may start."""
        if not self._free:
            return f"waits for a free call of handler {self.handler.name} (concurrency {self.most})"
        if self._is_dry and self._tokens is not None:
            return f"waits for the rate of handler {self.handler.name} ({self._tokens.rate:g}/s)"
        return ""

    def take(self) -> bool:
        """Take a call. False when none is free, or nothing may start. Release it afterwards."""
        if not self.is_open and (self._is_dry or (self.is_paused and not self._probe)):
            return False
        try:
            self._free.pop()
        except IndexError:
            return False
        return True

    def take_after(self, before: Caller) -> bool:
        """Exchange a finished call of `before` for one of this handler.

        False when that is not possible: `before` keeps it.
        """
        if before.goes_with is not self.goes_with or not self.take():
            return False
        if before.is_open:  # a shorter release: it is the way of each message where handlers alternate
            before._free.append(None)
        else:
            before.give_back()
        if before.runs or before.mixed:  # not before: one that comes meanwhile may have found no call
            before.workers.enter(before)
        return True

    def release(self, *, by_worker: bool = True) -> None:
        """The call is over. `by_worker`: called by a worker, which looks for the next run itself."""
        self.give_back()
        if (self.runs or self.mixed) and not (by_worker and self.has_turn):
            self.workers.enter(self, by_worker=by_worker)

    def give_back(self) -> None:
        """The call is over; the worker sees to it that the handler may take part in the turns again."""
        if not self._surplus:
            self._free.append(None)
        else:
            try:
                self._surplus.pop()
            except IndexError:  # another thread was faster
                self._free.append(None)
        if not self.is_open:
            self._look()

    def may_start(self, item: Any) -> bool:
        """Whether this item may start now; takes a token for each message if there is a rate.

        Called before each call unless the handler is open. During a pause one message may start as a probe.
        """
        is_probe, tokens = self.is_paused, self._tokens
        if self._surplus or (is_probe and not self._probe):
            return False
        if tokens is not None:
            if not tokens.take(self._loop.time()):
                self._run_dry()
                return False
            tokens.spend(len(messages_of(item)) - 1)
        if is_probe:
            try:
                self._probe.pop()
            except IndexError:  # another thread was faster: the probe is that one's
                if tokens is not None:
                    tokens.spend(-len(messages_of(item)))
                return False
            self.probed = item
        return True

    def not_started(self, item: Any) -> None:
        """An item that might start did not: give its tokens and probe back."""
        if self._tokens is not None:
            self._tokens.spend(-len(messages_of(item)))
        if self.probed is item:
            self.probed = None
            self._probe.append(None)

    def is_paused_for(self, item: Any) -> bool:
        """Whether a running call gets nothing more: its topic is paused, and it is not the probe."""
        return self.is_paused and self.probed is not item

    def checked(self, check: Callable[[Any], Any], item: Any) -> Any:
        """The part of an item that may still start. None: nothing; its tokens and probe are given back."""
        left = check(item)
        if left is None:
            self.not_started(item)
        return left

    def ask_for_probe(self) -> None:
        """On the loop, during a pause: whether a waiting message may start as a probe."""
        if self.handler.runs_here and not self._probe and self._pauses.may_probe(self._topic, self.handler.name):
            self._probe.append(None)

    def resize(self, most: int) -> None:
        """Change the concurrency. Calls beyond a lower limit end first."""
        more, self.most = most - self.most, most
        for _ in range(abs(more)):
            found, other = (self._surplus, self._free) if more > 0 else (self._free, self._surplus)
            try:
                found.pop()
            except IndexError:  # none was there, or a thread was faster
                other.append(None)
        self._look()
        self.workers.enter(self)

    def change_rate(self, rate: float) -> None:
        """Change the rate, also for what waits already."""
        if self._tokens is not None:
            self._tokens.change(rate, self._loop.time())
            if self._timer is not None:
                self._timer.cancel()
                self._wait()

    def close(self) -> None:
        """The group has stopped."""
        self._pauses.unwatch(self._topic, self._pauses_changed)
        if self._timer is not None:
            self._timer.cancel()

    def _run_dry(self) -> None:
        """No token was left. May be called from a thread."""
        if not self._is_dry:
            self._is_dry = True
            try:
                self._loop.call_soon_threadsafe(self._wait)
            except RuntimeError:
                return  # the loop is closed

    def _wait(self) -> None:
        if self._tokens is not None:
            seconds = max(self._tokens.wait(self._loop.time()), _SHORTEST_WAIT)
            self._timer = self._loop.call_later(seconds, self._has_tokens)

    def _has_tokens(self) -> None:
        self._is_dry, self._timer = False, None
        self.workers.enter(self)

    def _pauses_changed(self) -> None:
        self.is_paused = self._pauses.is_paused(self._topic)
        self._probe.clear()
        self.probed = None
        self._look()
        if self.runs or self.mixed:
            if self.is_paused:
                self.ask_for_probe()
            self.workers.enter(self)

    def _look(self) -> None:
        self.is_open = not (self.is_paused or self._surplus or self._tokens)
        if self.is_paused or self._surplus:
            self.is_open = False  # otherwise a thread that was held up here would open it against what began meanwhile


class TokenBucket:
    """A token bucket: starting a message takes a token, and `rate` tokens are added per second.

    Threads may use it.
    """

    __slots__ = ("_at", "_lock", "_most", "_tokens", "rate")

    def __init__(self, rate: float, now: float) -> None:
        self.rate: float = rate
        self._most: float = max(1.0, rate * _BURST)
        """Tokens of a full bucket."""
        self._tokens, self._at = self._most, now
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<TokenBucket {self.rate:g}/s: {self._tokens:.1f} tokens>"

    def change(self, rate: float, now: float) -> None:
        """Change the rate from now on."""
        with self._lock:
            self._has_token(now)
            self.rate, self._most = rate, max(1.0, rate * _BURST)
            self._tokens = min(self._tokens, self._most)

    def take(self, now: float) -> bool:
        """Take a token, if there is one."""
        with self._lock:
            is_taken = self._has_token(now)
            self._tokens -= is_taken
        return is_taken

    def spend(self, count: int) -> None:
        """Take more tokens for a batch, below zero if necessary. Negative: give back."""
        with self._lock:
            self._tokens -= count

    def wait(self, now: float) -> float:
        """Seconds until a message may start."""
        with self._lock:
            return 0.0 if self._has_token(now) else (1.0 - self._tokens) / self.rate

    def _has_token(self, now: float) -> bool:
        if now > self._at:
            self._tokens = min(self._most, self._tokens + (now - self._at) * self.rate)
            self._at = now
        # Less than a nanosecond of refilling: a timer may end that much too early.
        return self._tokens >= 1.0 - 1e-9 * self.rate
