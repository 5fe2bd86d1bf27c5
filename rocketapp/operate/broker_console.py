"""What operators see of a broker: its state is read on its own event loop, its messages over its own port.

Threads of the HTTP server ask. One question is answered at a time, and none keeps the loop longer than `LONGEST_TURN`
at once. Messages are read by the requests that administrators' commands send, so the broker's own limits hold.
"""

from __future__ import annotations

import asyncio
import secrets
import shutil
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from rocketapp.admin.cluster import AdminCluster
from rocketapp.admin.groups import is_system
from rocketapp.broker.broker_state import BrokerFacts, BrokerState, Progress, QueueState
from rocketapp.model.names import dlq_topic

T = TypeVar("T")
LONGEST_TURN = 0.005
"""Seconds."""
ANSWERED_WITHIN = 4.0
"""Seconds that a request waits for the loop; a request as a whole has 5."""
PROBED_WITHIN = 2.0


class Look(Protocol):
    """Asks the broker over its own port, as commands do, from any thread."""

    def __call__(self, work: Callable[[AdminCluster], Coroutine[Any, Any, T]], /) -> T: ...


class GroupLine(NamedTuple):
    """One row in the list of groups."""

    name: str
    members: int
    lag: dict[str, int]
    """By topic."""
    dead_letters: int

    @property
    def whole_lag(self) -> int:
        return sum(self.lag.values())


class _Turns:
    """Walks over long tables of a broker and lets its loop serve others every `LONGEST_TURN` seconds."""

    def __init__(self) -> None:
        self._now = asyncio.get_running_loop().time
        self._until = self._now() + LONGEST_TURN

    async def listed(self, rows: Iterable[T]) -> list[T]:
        found: list[T] = []
        for row in rows:
            found.append(row)
            if self._now() >= self._until:
                await asyncio.sleep(0)
                self._until = self._now() + LONGEST_TURN
        return found


class BrokerConsole:
    """One broker, for threads of the HTTP server. Every method raises TimeoutError when its answer is late."""

    def __init__(
        self, facts: BrokerFacts, *, directory: Path | None, look: Look, replay: Callable[[str, str], str]
    ) -> None:
        """To be made on the broker's loop.

        `directory`: where its store is; None in memory. `replay` sends one dead letter of a group out again, by its id,
        and says what became of it.
        """
        self._facts, self._directory = facts, directory
        self._loop, self._walking = asyncio.get_running_loop(), asyncio.Lock()
        self.look: Look = look
        self.replay: Callable[[str, str], str] = replay
        self.token: str = secrets.token_urlsafe(16)
        """What a form must have that changes something: who has read a page of this process has it."""

    def __repr__(self) -> str:
        return f"<BrokerConsole of {self._facts!r}>"

    def state(self, within: float = ANSWERED_WITHIN) -> BrokerState:
        return self.read(BrokerFacts.state, within)

    def disk(self) -> tuple[int, int] | None:
        """Free and total bytes of the file system that holds the store; None for a store in memory."""
        found = None if self._directory is None else shutil.disk_usage(self._directory)
        return None if found is None else (found.free, found.total)

    def read(self, call: Callable[[BrokerFacts], T], within: float = ANSWERED_WITHIN) -> T:
        """Run `call` on the broker's loop. It has to return within `LONGEST_TURN` seconds."""

        async def work() -> T:
            return call(self._facts)

        return self._asked(work(), within)

    def listed(self, rows: Callable[[BrokerFacts], Iterable[T]]) -> list[T]:
        """Collect the rows that `rows` yields on the broker's loop.

        There may be any number: the loop serves others between them.
        """
        return self._walked(lambda turns: turns.listed(rows(self._facts)))

    def topic_names(self) -> list[str]:
        return self.read(BrokerFacts.topics)

    def topics(self, names: Sequence[str]) -> list[tuple[str, list[QueueState]]]:
        """The queues of each of these topics."""

        async def work(turns: _Turns) -> list[tuple[str, list[QueueState]]]:
            return [(name, await turns.listed(self._facts.queues(name))) for name in names]

        return self._walked(work)

    def groups(self) -> list[GroupLine]:
        """All groups of users, the one that is furthest behind first."""

        async def work(turns: _Turns) -> list[GroupLine]:
            facts, lines = self._facts, []
            for group, topics in facts.groups().items():
                if is_system(group):
                    continue
                lag = {}
                for topic in sorted(topics):
                    lag[topic] = sum([one.lag for one in await turns.listed(facts.progress(group, topic))])
                dead = stored_in(await turns.listed(facts.queues(dlq_topic(group))))
                lines.append(GroupLine(group, len(facts.members(group)), lag, dead))
            return sorted(lines, key=lambda one: (-one.whole_lag, one.name))

        return self._walked(work)

    def progress(self, group: str) -> list[Progress]:
        """Every queue of every topic of a group."""

        def rows(facts: BrokerFacts) -> Iterator[Progress]:
            return (one for topic in sorted(facts.groups().get(group, ())) for one in facts.progress(group, topic))

        return self.listed(rows)

    def _walked(self, work: Callable[[_Turns], Coroutine[Any, Any, T]]) -> T:
        async def one_at_a_time() -> T:
            async with self._walking:
                return await work(_Turns())

        return self._asked(one_at_a_time())

    def _asked(self, work: Coroutine[Any, Any, T], within: float = ANSWERED_WITHIN) -> T:
        asked = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return asked.result(within)
        finally:
            asked.cancel()


def stored_in(queues: Iterable[QueueState]) -> int:
    """How many messages they hold together."""
    return sum(one.end_offset - one.first_offset for one in queues)
