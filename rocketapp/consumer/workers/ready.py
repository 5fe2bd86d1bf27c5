"""Which run is next: handlers take turns, so that one with many messages holds up no other one.

A handler that cannot be called now, because its calls are busy, its topic is paused or it has no token, is left out. It
takes part again when a call is free, or the pause or the wait is over: nobody looks at what cannot start.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from rocketapp.consumer.workers.caller import Caller
from rocketapp.consumer.workers.run import Run, Taker


class Ready:
    """The handlers that have runs and may be called. Not for several threads at once."""

    def __init__(self, leave: Callable[[Run], None], split: Callable[[Run], None]) -> None:
        """`leave` takes runs of which nothing may start here now, `split` those of handlers of which one is busy."""
        self._leave, self._split = leave, split
        self._turns: deque[Caller] = deque()
        self._is_over = False

    def __bool__(self) -> bool:
        return bool(self._turns)

    def __repr__(self) -> str:
        return f"<Ready {list(self._turns)}>"

    def add(self, caller: Caller, runs: Sequence[Run]) -> None:
        """Runs whose first message is for this handler; those that are here already stay where they are."""
        for run in runs:
            if not run.is_queued:
                run.is_queued = True
                # One of many handlers comes first: as soon as this one is busy, each handler gets its share of it.
                (caller.runs.appendleft if run.is_of_many else caller.runs.append)(run)
        self.enter(caller)

    def add_left(self, run: Run) -> None:
        """What a worker has left of a run. The loop may take from it at the same time."""
        try:
            caller = run.items[0][0].caller
        except IndexError:
            return
        self.add(caller, (run,))

    def enter(self, caller: Caller) -> None:
        """This handler may be called again: its runs take part in the turns."""
        if caller.runs and not caller.has_turn and not self._is_over:
            caller.has_turn = True
            self._turns.append(caller)

    def next(self) -> tuple[Run, Taker] | None:
        """The next run and the taker of its first message, with a call taken. A run that is not shared is here no more.

        Others may take that message meanwhile.
        """
        turns = self._turns
        while turns:
            caller, runs = turns[0], turns[0].runs
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
                self._taken(run, runs)
                return run, taker
            else:
                self._drop()
                self._split_shared(runs)
        return None

    def _taken(self, run: Run, runs: deque[Run]) -> None:
        """The first of these runs is with one more worker; unless it is shared, that has it for itself."""
        if run.in_order:
            run.walkers += 1
        if not run.is_shared:
            runs.popleft()
            run.is_queued = False

    def startable(self) -> int:
        """How many messages may start now."""
        count = 0
        for caller in self._turns:
            free, left = caller.free, 0
            for run in caller.runs:
                if left >= free:
                    break
                left += 1 if run.in_order and not run.is_shared else len(run.items)
            # One of many handlers that is busy is looked at, so that the others are not held up.
            count += min(free, left) or int(bool(caller.runs) and caller.runs[0].is_of_many)
        return count

    def clear(self) -> None:
        """Nothing starts any more, also what was left out so far."""
        self._is_over = True
        for caller in self._turns:
            for run in caller.runs:
                run.items.clear()
        self._turns.clear()

    def _drop(self) -> None:
        self._turns.popleft().has_turn = False

    def _split_shared(self, runs: deque[Run]) -> None:
        """Their handler has no free call: others do not wait for it."""
        while runs and runs[0].is_of_many:
            run = runs.popleft()
            run.is_queued = False
            self._split(run)
