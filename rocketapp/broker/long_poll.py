"""Holds requests that found nothing until a message comes or their time is over: pulls, pops, and notifications.

The store is read and a request is held in one step of the event loop, and messages arrive in other steps. So no message
can arrive unnoticed between "nothing found" and "held". A woken request is run again in one of the next turns of the
loop, once for many messages.

Every held request leaves exactly once: to be run again, or with its connection. It may be held again then.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from rocketapp.broker.filtering import Filter
from rocketapp.transport.answers import response_of
from rocketapp.transport.connection import Connection
from rocketapp.transport.stream import WRITE_HIGH_BYTES
from rocketapp.wire.command import Command

LONGEST = 600.0
"""Most seconds that a request is held, also when it asks for more. Clients ask for 15 to 30."""
MOST_HELD, MOST_HELD_BY_ALL = 65_536, 131_072
"""Most held requests of one kind: of one connection, which is one for every queue that a topic can have, and of all."""

_MOST_ANSWERED = 500
"""Requests that are answered in one turn of the loop: one message may wake thousands. Nor is much more than
WRITE_HIGH_BYTES read for them in one turn."""

R = TypeVar("R")
P = TypeVar("P", bound=Hashable)


@dataclass(slots=True, eq=False, repr=False)
class HeldRequest(Generic[P, R]):
    """A request that is held. `place`: where in its topic it waits."""

    connection: Connection
    command: Command
    request: R
    wanted: Filter
    topic: str
    place: P
    deadline: float = 0.0
    """When it is answered in any case, by the loop's clock."""
    timer: asyncio.TimerHandle | None = None
    """None while it is not held."""

    def takes(self, tags_code: int) -> bool:
        """Whether a message with this tags code may match."""
        return self.wanted.tags is None or self.wanted.tags(tags_code)


class LongPoll(Generic[P, R]):
    """The held requests of one kind, in the order in which they came."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, run_again: Callable[[HeldRequest[P, R]], Command | None]
    ) -> None:
        """`run_again`: returns the response of a woken request; None when it is held again."""
        self._loop, self._run_again = loop, run_again
        self.by_topic: dict[str, dict[P, dict[HeldRequest[P, R], None]]] = {}
        """The held requests by topic and place, for others to read. It changes when one is woken."""
        self._by_connection: dict[Connection, dict[HeldRequest[P, R], None]] = {}
        self._woken: deque[HeldRequest[P, R]] = deque()
        self._count = 0
        self._is_stopped = False

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return f"<LongPoll {self._count} in {len(self.by_topic)} topics>"

    def has_room(self, connection: Connection) -> bool:
        """Whether one more request of this connection may be held."""
        return self._count < MOST_HELD_BY_ALL and len(self._by_connection.get(connection, ())) < MOST_HELD

    def hold(self, held: HeldRequest[P, R], until: float) -> None:
        """Keep a request until it is woken, which it is at this time in any case."""
        if held.connection.is_closed or self._is_stopped:
            return
        self.by_topic.setdefault(held.topic, {}).setdefault(held.place, {})[held] = None
        self._by_connection.setdefault(held.connection, {})[held] = None
        self._count += 1
        held.timer = self._loop.call_at(until, self.wake, (held,))

    def wake(self, several: Iterable[HeldRequest[P, R]]) -> None:
        """Run these again, in the next turn of the loop."""
        for held in several:
            if self._take_out(held):
                if not self._woken:
                    self._loop.call_soon(self._answer_woken)
                self._woken.append(held)

    def wake_all(self, topic: str) -> None:
        """Wake all requests of a topic: it was deleted, or a group's offsets in it were reset."""
        self.wake([held for waiting in self.by_topic.get(topic, {}).values() for held in waiting])

    def forget(self, connection: Connection) -> None:
        """Drop the requests of a connection that has ended."""
        for held in list(self._by_connection.get(connection, ())):
            self._take_out(held)

    def stop(self) -> None:
        """Drop what is held. Its connections are closed next."""
        self._is_stopped = True
        for connection in list(self._by_connection):
            self.forget(connection)

    def _take_out(self, held: HeldRequest[P, R]) -> bool:
        """Whether it was held."""
        if held.timer is None:
            return False
        held.timer.cancel()
        held.timer = None
        places, own = self.by_topic[held.topic], self._by_connection[held.connection]
        waiting = places[held.place]
        del waiting[held], own[held]
        self._count -= 1
        if not own:
            del self._by_connection[held.connection]
        if not waiting:
            del places[held.place]
        if not places:
            del self.by_topic[held.topic]
        return True

    def _answer_woken(self) -> None:
        """Answer the first ones, and the others in later turns."""
        woken, self._woken = self._woken, deque()
        left, size = max(len(woken) - _MOST_ANSWERED, 0), 0
        while len(woken) > left and size < WRITE_HIGH_BYTES:
            held = woken.popleft()
            if held.connection.is_closed or self._is_stopped:
                continue
            try:
                response = self._run_again(held)
            except Exception as error:  # in one of them must not affect the others
                response = response_of(held.command, error)
            if response is not None:
                size += len(response.body)
                held.connection.reply(response)
        if woken and not self._woken:
            self._loop.call_soon(self._answer_woken)
        self._woken.extendleft(reversed(woken))
