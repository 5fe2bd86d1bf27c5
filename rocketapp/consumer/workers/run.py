"""Runs: messages on their way to handlers, and the turns that handlers take.

A run belongs to a session, and workers report to it. They know neither offsets nor what follows a failure: that belongs
to the consume mode.

Handlers take turns (`Ready`), so that one with many messages does not hold up the others. A handler that cannot be
called now, according to its `Caller`, is left out until it can be: nobody looks at what cannot start.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any

from rocketapp.consumer.handler import Handler, first_of, messages_of
from rocketapp.consumer.journal import Journal, Note
from rocketapp.consumer.workers.caller import Caller
from rocketapp.model.subscription import Subscription
from rocketapp.state.lease import Lease
from rocketapp.wire.record import Message

MESSAGES_PER_ROUND = 32
"""Messages of a run that a worker takes before it looks for others."""


def clock_of(loop: asyncio.AbstractEventLoop) -> Callable[[], float]:
    """The clock of this loop, which is read before each message in order."""
    # The loop of the standard library asks this clock, by one more call.
    return time.monotonic if type(loop).time is asyncio.BaseEventLoop.time else loop.time


Parts = tuple[Caller, Callable[[Any], Any], Callable[[Message], None], bool]


class Taker:
    """A handler for the messages of one session."""

    __slots__ = ("acks", "caller", "handler", "is_plain", "parts")

    def __init__(self, caller: Caller, acks: Any) -> None:
        """`acks`: told on the loop of ended calls: `done` or `done_all` if they returned None, otherwise `ended`."""
        self.caller: Caller = caller
        self.acks: Any = acks
        self.handler: Handler = caller.handler
        self.is_plain: bool = caller.is_plain
        self.parts: Parts = (caller, caller.call, acks.done, self.is_plain)
        """What a worker needs for each call, and what acknowledges a message on the loop."""

    def __repr__(self) -> str:
        return f"<Taker {self.caller!r}>"


Pair = tuple[Taker, Any]
"""Who takes it, and one message or the list of a batch."""


class Run:
    """Messages of one session that may start, in the order of their offsets."""

    is_shared: bool = False
    """Many workers walk through it at once."""
    is_of_many: bool = False
    """Its messages are for many handlers, and may start in any order."""

    is_watched: bool = True
    """From one message to the next it may change what starts: its lease may end, or there is a `check`."""
    is_queued: bool = False
    """Workers have it among their runs."""
    walkers: int = 0
    """Workers that have it, and have not given it back."""
    most: int = MESSAGES_PER_ROUND
    """Messages that a worker may take at once."""
    record_of: Callable[[int, int], bytes] | None = None
    """Makes what a worker notes down that takes these offsets; None: nothing is."""
    check: Callable[[Any], Any] | None = None
    """What of an item may still start, or None if nothing may; asked by whoever has taken it."""
    in_turn: Message | None = None
    """Its first message, when that may end the process: nothing of it is noted down once its call has ended."""
    rests: bool = False
    """Its first message is not to start now, and is seen to, or is left to the next owner of the queue."""

    def __init__(self, items: Iterable[Pair], delivery: Any) -> None:
        """`delivery`: of its session. When that is void, handled messages belong to the next owner."""
        self.items: deque[Pair] = deque(items)
        """What was not started: whoever takes one starts it."""
        # Read for each message, so not of the class: that takes longer.
        self.item: Any = None
        """What a worker has started last of a run that is watched."""
        self.starts_nothing: bool = False
        """Nothing more of it may start."""
        self.delivery: Any = delivery
        self.lease: Lease = delivery.lease
        """Nothing starts, and nothing is done, when it is over."""
        self.notes_each: bool = delivery.has_keys
        """Messages of others lie between its own, so that each is noted down as it starts."""

    def submit(self) -> None:
        """On the loop: give the run to the workers of its first message's handler. It must have messages."""
        caller = self.items[0][0].caller
        caller.workers.submit(caller, self)

    def note(self, note: Note, most: int) -> int:
        """Record in the journal that a worker takes up to `most` messages. Returns how many it may take."""
        note.clear()
        return most

    def acknowledge(self, pairs: Sequence[tuple[Taker, Message]]) -> None:
        """On the loop: threads have finished these messages."""
        if self.delivery.is_void:
            return
        first = pairs[0][0]
        # Threads share a run of one handler alone.
        if self.is_shared or all(taker is first for taker, _ in pairs):
            first.acks.done_all([message for _, message in pairs])
        else:
            for taker, message in pairs:
                taker.acks.done(message)
        self.delivery.tidy_soon()

    def ended(self, taker: Taker, item: Any, result: object, raised: bool) -> None:
        """On the loop: a call ended with something other than None; `raised`: the result is what it raised.

        Unless many workers share the run, it is given back with that.
        """
        taker.acks.ended(item, result, raised)

    @property
    def is_about_to_start(self) -> bool:
        """Whether messages of it start soon; those of a paused topic do not."""
        try:
            return not (self.rests or self.starts_nothing or self.items[0][0].caller.is_paused)
        except IndexError:
            return False

    @property
    def is_under_way(self) -> bool:
        """Whether workers have it, or messages of it start soon."""
        return self.walkers > 0 or self.is_about_to_start

    def withdraw(self) -> list[Pair]:
        """Take back messages that were not started, from the end: what threads take meanwhile lies below."""
        taken: list[Pair] = []
        with contextlib.suppress(IndexError):
            while True:
                taken.append(self.items.pop())
        return taken[::-1]

    def give_back(self, pairs: Iterable[Pair], offset: int) -> int:
        """Withdrawn messages up to `offset` may start after all. Returns how many lie above it."""
        count = 0
        for taker, item in pairs:
            kept = [one for one in messages_of(item) if one.offset <= offset]
            count += len(messages_of(item)) - len(kept)
            if kept:
                self.items.append((taker, item if isinstance(item, Message) else kept))
        return count

    def split(self) -> None:
        """On the loop: divide what is left of a run of many handlers by handler."""

    def returned(self) -> None:
        """On the loop: a worker has given the run back, without a result to report."""

    def failed(self, error: BaseException) -> None:
        """An error of ours while a report was processed."""
        self.delivery.fail(error)


class FreeRun(Run):
    """Messages that start independently of each other."""

    def __init__(self, items: Sequence[Pair], delivery: Any, *, is_of_one: bool) -> None:
        """`delivery`: of its session. `is_of_one`: it has only one handler."""
        super().__init__(items, delivery)
        if items[0][0].handler.runs_here and delivery.record_of is not None:
            self.record_of: Callable[[int, int], bytes] | None = delivery.record_of
            self._first_offset = first_of(items[0][1]).offset
        self.check: Callable[[Any], Any] | None = delivery.check
        # What has neither keys nor a check is under no lease, and is withdrawn when nothing more may start: a look at
        # the clock costs 3 % of a quick call.
        self.is_watched: bool = self.notes_each or self.check is not None
        self._count = len(items)
        self.is_of_many: bool = not is_of_one
        # Threads could not tell whose message they are about to take.
        self.is_shared: bool = is_of_one or items[0][0].handler.subscription.is_async
        last = items[-1][1]
        self.last_offset: int = (last if isinstance(last, Message) else last[-1]).offset
        """No message above it was started from here."""

    def __repr__(self) -> str:
        return f"<FreeRun: {len(self.items)} of {self._count} not started>"

    def note(self, note: Note, most: int) -> int:
        """Record the offsets of the whole run, as many workers share it; with keys each message as it starts."""
        if self.record_of is None or self.notes_each:
            note.clear()
        else:
            note.write(self.record_of(self._first_offset, self.last_offset))
        return most

    def ended(self, taker: Taker, item: Any, result: object, raised: bool) -> None:
        self.delivery.ended_free(taker, item, result, raised)
        if not self.is_shared:
            self.returned()

    def returned(self) -> None:
        self.delivery.walked(self)

    def split(self) -> None:
        if self.items:
            self.delivery.walk_apart(self)

    def withdraw(self) -> list[Pair]:
        left = super().withdraw()
        if left:
            self.last_offset = first_of(left[0][1]).offset - 1 if len(left) < self._count else -1
        return left


class RunWorker:
    """One worker, with its present run and message."""

    __slots__ = ("item", "note", "run", "taker")

    def __init__(self, journal: Journal | None) -> None:
        self.note: Note | None = None if journal is None else journal.note()
        self.run: Run | None = None
        self.taker: Taker
        """Whose call it has, while it has a run."""
        self.item: Any = None

    def at_work(self) -> tuple[Subscription, Any] | None:
        """The subscription and item of its present call; None between two calls."""
        return None if self.item is None else (self.taker.handler.subscription, self.item)


class Ready:
    """The handlers that have runs and may be called, in turn. Not thread-safe."""

    def __init__(self, leave: Callable[[Run], None], split: Callable[[Run], None]) -> None:
        """`leave`: called with runs of which nothing may start now; `split`: with mixed runs whose handler is busy."""
        self._leave, self._split = leave, split
        self._turns: deque[Caller] = deque()
        self._is_over = False

    def __bool__(self) -> bool:
        return bool(self._turns)

    def __repr__(self) -> str:
        return f"<Ready {list(self._turns)}>"

    def add(self, caller: Caller, run: Run) -> None:
        """Add a run whose first message is for this handler, unless it is here already."""
        if caller.is_paused:
            caller.ask_for_probe()
        if not run.is_queued and (run.is_shared or not run.walkers):  # otherwise it is given back, and comes again
            run.is_queued = True
            (caller.mixed if run.is_of_many else caller.runs).append(run)
        self.enter(caller)

    def enter(self, caller: Caller) -> None:
        """This handler may be called again."""
        if (caller.runs or caller.mixed) and not caller.has_turn and not self._is_over:
            caller.has_turn = True
            self._turns.append(caller)

    def next(self) -> tuple[Run, Taker] | None:
        """The next run and the taker of its first message, with a call taken; None when nothing may start.

        An unshared run is removed. Another worker may take that message meanwhile.
        """
        turns = self._turns
        while turns:
            caller = turns[0]
            # In turn: a message that comes alone waits for no backlog of many handlers, nor do they for its handler's.
            is_mixed = bool(caller.mixed) and (caller.mixed_next or not caller.runs)
            runs = caller.mixed if is_mixed else caller.runs
            if not runs:
                self._drop()
                continue
            run: Run = runs[0]
            try:
                taker = run.items[0][0]
            except IndexError:
                taker = None
            if taker is None or taker.caller is not caller or run.starts_nothing:
                runs.popleft().is_queued = False
                self._leave(run)
            elif caller.take():
                turns.rotate(-1)
                caller.mixed_next = not is_mixed
                run.walkers += 1
                if not run.is_shared:  # otherwise others join
                    runs.popleft()
                    run.is_queued = False
                return run, taker
            else:
                self._drop()
                self._split_mixed(caller)
        return None

    def startable(self) -> int:
        """How many messages may start now."""
        count = 0
        for caller in self._turns:
            free, left = caller.free, 0
            for run in chain(caller.mixed, caller.runs):
                if left >= free:
                    break
                # One whose messages were withdrawn is looked at too: it leaves.
                left += (len(run.items) or 1) if run.is_shared else 1
            # One of many handlers that is busy is looked at, so that the others are not held up.
            count += min(free, left) or int(bool(caller.mixed))
        return count

    def clear(self, workers: Iterable[RunWorker]) -> None:
        """Nothing starts any more: drop all runs, also those of these workers."""
        self._is_over = True
        runs = chain.from_iterable((*caller.mixed, *caller.runs) for caller in self._turns)
        for run in [*runs, *(worker.run for worker in workers)]:
            if run is not None:
                run.items.clear()
        self._turns.clear()

    def _drop(self) -> None:
        self._turns.popleft().has_turn = False

    def _split_mixed(self, caller: Caller) -> None:
        """The handler has no free call: split runs that it shares, so that other handlers do not wait for it."""
        while caller.mixed:
            run = caller.mixed.popleft()
            run.is_queued = False
            self._split(run)
