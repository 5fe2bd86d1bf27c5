"""The lists of members of one look: every broker is asked once, for all topics, and what they answer is united.

Brokers hear of a member at different times, and one that has just been restarted knows few of them. All members unite
what they are told, so they agree as soon as any broker has heard of a change. A broker that does not answer soon after
the first good answer is not waited for: what it alone knows, it says in a notification.

A list without us is not acted on: that broker forgot us, or never heard of us. It is told who we are, and asked again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from rocketapp.consumer.group.brokers import Brokers
from rocketapp.errors import RocketAppError, TransportError
from rocketapp.state.rebalance import Membership, membership
from rocketapp.tasks import Tasks

_GRACE, _LEAST_GRACE = 0.35, 0.05
"""Seconds that all brokers get, and that others get after the first good answer.

Members hear of a change that much apart, so it has to fit between `RUN_ON` and `LONGEST_WAIT` of a hand-over.
"""

_Question = asyncio.Task[list[str] | RocketAppError]
_Asked = dict[str, _Question]


class MemberLists:
    """What the brokers answer to one look at the group."""

    def __init__(self, brokers: Brokers, me: str, tasks: Tasks, is_settled: Callable[[str], bool]) -> None:
        """`me`: our client id. `tasks` owns the questions; those that come too late end by themselves.

        `is_settled(broker_name)`: whether its list may be acted on. Others only add members to it.
        """
        self._brokers, self._me, self._tasks, self._is_settled = brokers, me, tasks, is_settled
        self._loop = asyncio.get_running_loop()
        self._first: _Asked = {}
        self._second: _Asked = {}
        self._greeting: asyncio.Task[frozenset[str]] | None = None

    async def of(self, topic: str) -> frozenset[str] | None:
        """The members of the group, ourselves among them; None when it is too early to decide.

        RocketAppError when no broker of the topic tells.
        """
        names = self._brokers.brokers_of(topic)
        # Others are being dialled; what they say can wait until they are reached.
        names = [name for name in names if self._brokers.is_connected(name)] or names
        if not names:
            raise TransportError(topic, "none of its brokers is known")
        members, is_settled = await self._united(self._first, names)
        if membership(members, self._me) is Membership.MISSING:
            if self._greeting is None:
                self._greeting = self._tasks.start(self._brokers.greet(), "heartbeat before a rebalance")
            accepted = await self._greeting
            names = [name for name in names if name in accepted]
            if not names:
                raise TransportError(topic, "its brokers do not accept our heartbeat; the present queues are kept")
            members, is_settled = await self._united(self._second, names)
        if membership(members, self._me) is Membership.UNKNOWN:
            raise TransportError(topic, "its broker knows no member of the group; the present queues are kept")
        return members if is_settled else None

    async def _united(self, asked: _Asked, names: Iterable[str]) -> tuple[frozenset[str], bool]:
        """All members that are named soon, and whether a list with us in it may be acted on; raises without a list."""
        questions = {self._ask(asked, name): name for name in names}
        lists: list[list[str]] = []
        problem: RocketAppError | None = None
        is_settled, until, began = False, None, self._loop.time()
        while questions:
            timeout = None if until is None else max(0.0, until - self._loop.time())
            done, _ = await asyncio.wait(questions, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                break
            for question in done:
                name, answer = questions.pop(question), question.result()
                if isinstance(answer, RocketAppError):
                    problem = answer
                    continue
                lists.append(answer)
                if self._me in answer and self._is_settled(name):
                    is_settled, now = True, self._loop.time()
                    until = max(now + _LEAST_GRACE, began + _GRACE) if until is None else until
        if not lists and problem is not None:
            raise problem
        return frozenset[str]().union(*lists), is_settled

    def _ask(self, asked: _Asked, name: str) -> _Question:
        if name not in asked:
            asked[name] = self._tasks.start(self._answer(name), f"members at {name}")
        return asked[name]

    async def _answer(self, name: str) -> list[str] | RocketAppError:
        try:
            return await self._brokers.members(name)
        except RocketAppError as error:
            return error
