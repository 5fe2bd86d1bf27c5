"""Where a broker is looked at: what it knows is read on its own loop, and what it stores over its own port.

Threads of the HTTP server ask. Rule: no question keeps the loop longer than `LONGEST_TURN`, and one is worked on at a
time. Messages are looked up as an administrator's commands do, so that the broker's own limits hold.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Callable, Coroutine, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from rocketapp.admin.cluster import AdminCluster
from rocketapp.admin.groups import is_system
from rocketapp.broker.facts import BrokerFacts, BrokerState, MemberState, Progress, QueueState, WaitingMessage
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


class TopicLine(NamedTuple):
    """A topic in a list."""

    name: str
    queues: int
    messages: int
    last_ms: int
    """When its last message was stored; 0 without one."""


class GroupLine(NamedTuple):
    """A group in a list."""

    name: str
    members: int
    lag: dict[str, int]
    """By topic."""
    dead_letters: int

    @property
    def whole_lag(self) -> int:
        return sum(self.lag.values())


class Disk(NamedTuple):
    """The file system of the store."""

    free: int
    size: int


class _Turns:
    """Walks over what a broker knows, and lets others have their turn meanwhile."""

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


class BrokerDesk:
    """One broker, for threads that answer questions about it. Each question raises TimeoutError when it is late."""

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
        return f"<BrokerDesk of {self._facts!r}>"

    def state(self, within: float = ANSWERED_WITHIN) -> BrokerState:
        return self._read(self._facts.state, within)

    def disk(self) -> Disk | None:
        """None for a store in memory."""
        if self._directory is None:
            return None
        found = os.statvfs(self._directory)
        return Disk(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize)

    def topic_names(self) -> list[str]:
        return self._read(self._facts.topics)

    def topics(self, names: Sequence[str]) -> list[TopicLine]:
        """What the broker knows of topics with these names."""

        async def work(turns: _Turns) -> list[TopicLine]:
            lines = []
            for name in names:
                queues = await turns.listed(self._facts.queues(name))
                lines.append(
                    TopicLine(name, len(queues), _messages(queues), max((one.last_ms for one in queues), default=0))
                )
            return lines

        return self._walked(work)

    def queues(self, topic: str) -> list[QueueState]:
        """Those of a topic; none when there is no such topic."""
        return self._walked(lambda turns: turns.listed(self._facts.queues(topic)))

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
                dead = _messages(await turns.listed(facts.queues(dlq_topic(group))))
                lines.append(GroupLine(group, len(facts.members(group)), lag, dead))
            return sorted(lines, key=lambda one: (-one.whole_lag, one.name))

        return self._walked(work)

    def readers(self, topic: str) -> list[str]:
        """The groups that consume a topic."""
        return self._read(lambda: sorted(group for group, has in self._facts.groups().items() if topic in has))

    def progress(self, group: str) -> list[Progress]:
        """Every queue of every topic of a group."""

        async def work(turns: _Turns) -> list[Progress]:
            topics = self._facts.groups().get(group, set())
            return await turns.listed(one for topic in sorted(topics) for one in self._facts.progress(group, topic))

        return self._walked(work)

    def members(self, group: str) -> tuple[list[MemberState], list[tuple[str, str]]]:
        """Its members, and the topics with the expressions that they subscribe."""
        return self._read(lambda: (self._facts.members(group), self._facts.subscriptions(group)))

    def record(self, position: int) -> bytes | None:
        """The stored message at this position of the log; None where none begins."""
        return self._read(lambda: self._facts.record(position))

    def delayed(self, most: int) -> list[WaitingMessage]:
        """The next ones that are due."""
        return self._walked(lambda turns: turns.listed(self._facts.delayed(most)))

    def open_transactions(self, most: int) -> list[WaitingMessage]:
        """The oldest half messages that have not ended, at most so many."""
        return self._walked(lambda turns: turns.listed(self._facts.open_transactions(most)))

    def _walked(self, work: Callable[[_Turns], Coroutine[Any, Any, T]]) -> T:
        async def one_at_a_time() -> T:
            async with self._walking:
                return await work(_Turns())

        return self._asked(one_at_a_time())

    def _read(self, call: Callable[[], T], within: float = ANSWERED_WITHIN) -> T:
        async def work() -> T:
            return call()

        return self._asked(work(), within)

    def _asked(self, work: Coroutine[Any, Any, T], within: float = ANSWERED_WITHIN) -> T:
        asked = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return asked.result(within)
        finally:
            asked.cancel()


def _messages(queues: Iterable[QueueState]) -> int:
    return sum(one.end_offset - one.first_offset for one in queues)
