"""The lists of members of one look: every broker is asked once, for all topics, and the first good answer decides.

A list without us is not acted on: that broker forgot us, or never heard of us. It is told who we are, and asked again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from rocketapp.consumer.group.brokers import Brokers
from rocketapp.errors import RocketAppError, TransportError
from rocketapp.state.rebalance import Membership, membership
from rocketapp.tasks import Tasks

_Asked = dict[str, asyncio.Task[list[str] | RocketAppError]]


class MemberLists:
    """What the brokers answer to one look at the group."""

    def __init__(self, brokers: Brokers, me: str, tasks: Tasks) -> None:
        """`me`: our client id. `tasks` owns the questions; those that come too late end by themselves."""
        self._brokers, self._me, self._tasks = brokers, me, tasks
        self._first: _Asked = {}
        self._second: _Asked = {}
        self._greeting: asyncio.Task[frozenset[str]] | None = None

    async def of(self, topic: str) -> frozenset[str]:
        """The members of the group, ourselves among them; RocketAppError when no broker of the topic tells."""
        names = self._brokers.brokers_of(topic)
        # Others are being dialled; what they say can wait until they are reached.
        names = [name for name in names if self._brokers.is_connected(name)] or names
        if not names:
            raise TransportError(topic, "none of its brokers is known")
        members = await self._best(self._first, names)
        if membership(members, self._me) is Membership.MISSING:
            if self._greeting is None:
                self._greeting = self._tasks.start(self._brokers.greet(), "heartbeat before a rebalance")
            accepted = await self._greeting
            names = [name for name in names if name in accepted]
            if not names:
                raise TransportError(topic, "its brokers do not accept our heartbeat; the present queues are kept")
            members = await self._best(self._second, names)
        if membership(members, self._me) is Membership.UNKNOWN:
            raise TransportError(topic, "its broker knows no member of the group; the present queues are kept")
        return frozenset(members)

    async def _best(self, asked: _Asked, names: Iterable[str]) -> list[str]:
        """The first list that has us in it, otherwise any list; raises when there is none."""
        questions = [self._ask(asked, name) for name in names]
        seen: list[list[str]] = []
        problem: RocketAppError | None = None
        while questions:
            done, _ = await asyncio.wait(questions, return_when=asyncio.FIRST_COMPLETED)
            answers = [each.result() for each in questions if each in done]
            questions = [each for each in questions if each not in done]
            for answer in answers:
                if isinstance(answer, RocketAppError):
                    problem = answer
                elif self._me in answer:
                    return answer
                else:
                    seen.append(answer)
        if seen or problem is None:
            return max(seen, key=len, default=[])
        raise problem

    def _ask(self, asked: _Asked, name: str) -> asyncio.Task[list[str] | RocketAppError]:
        if name not in asked:
            asked[name] = self._tasks.start(self._answer(name), f"members at {name}")
        return asked[name]

    async def _answer(self, name: str) -> list[str] | RocketAppError:
        try:
            return await self._brokers.members(name)
        except RocketAppError as error:
            return error
