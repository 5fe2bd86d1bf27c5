"""Popped topics: handlers run as in the concurrent mode, and each message is acknowledged by itself."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from operator import attrgetter, length_hint
from typing import Any, Protocol

from rocketapp.consumer.handler import ConsumedTopic
from rocketapp.consumer.member import Member
from rocketapp.consumer.modes.concurrent import ConcurrentDelivery, ConcurrentMode
from rocketapp.consumer.modes.context import ModeContext
from rocketapp.consumer.modes.delivery import NewCompletion
from rocketapp.consumer.retry.breaker import Stopping
from rocketapp.consumer.retry.redelivery import Redelivery
from rocketapp.consumer.workers.work import Completion, Work, Workers
from rocketapp.model.outcome import DeadLetter
from rocketapp.state.pop_queue import PopQueue
from rocketapp.state.redelivery import CERTAIN, is_spent
from rocketapp.wire.record import Message

_TIMES = attrgetter("reconsume_times")


class GivesBack(Protocol):
    """What hides the messages of a session: from there they are given back."""

    def give_back(self, messages: Sequence[Message]) -> None:
        """Hide these no longer: they were not started."""
        ...


class PopMode(ConcurrentMode):
    """Calls the handlers of one group's popped topics.

    A message that has ended a process comes again with another offset, and brokers count its attempts: nothing is noted
    down of what is in flight.
    """

    def __init__(self, topics: Iterable[ConsumedTopic], context: ModeContext) -> None:
        super().__init__(topics, replace(context, journal=None, released=None))
        self.member: Member = context.member
        self.redelivery: Redelivery = context.redelivery
        self.stopping: Stopping = context.stopping


class PopDelivery(ConcurrentDelivery):
    """The messages of one popped queue on their way to workers."""

    mixes = False  # each work draws through `Fresh`

    def __init__(
        self, queue: PopQueue[Message], mode: PopMode, new_completion: NewCompletion, invisibility: GivesBack
    ) -> None:
        super().__init__(queue, mode, new_completion)
        self._invisibility, self._popped = invisibility, queue

    def deliver(self, messages: Sequence[Message]) -> None:
        """Messages that were just handed out; after the end they are given back."""
        if self._given_up:
            self._invisibility.give_back(messages)
        else:
            super().deliver(messages)

    def _new_work(self, items: list[Any], completion: Completion) -> Work:
        work = Work(items, completion)
        work.draw_through(lambda found: Fresh(found, self._popped, self._invisibility))
        return work

    def _without_dead(self, workers: Workers | None, messages: Sequence[Message]) -> Sequence[Message]:
        """Those that have an attempt left; the others become dead letters, and no handler is called with them."""
        if workers is None or max(map(_TIMES, messages), default=0) <= CERTAIN:
            return messages
        retries = workers.handler.subscription.retries
        alive = [message for message in messages if not is_spent(message.reconsume_times, retries)]
        for message in messages:
            if is_spent(message.reconsume_times, retries):
                item = message if workers.batch is None else [message]
                reason = f"handed out {message.reconsume_times} times before, the last time without an end"
                self._completion(workers).judge(item, DeadLetter(reason), True)
        return alive

    def end(self, *, start_no_more: bool = False) -> None:
        """Give back what was not started: nothing has to be handled for the sake of an offset."""
        for _, messages in self._withdrawn():
            self._invisibility.give_back(messages)


class Fresh(Iterator[Any]):
    """Messages, or lists of them, that are hidden from others as they are drawn; threads may draw."""

    __slots__ = ("_invisibility", "_items", "_loop", "_now", "_queue")

    def __init__(self, items: Iterator[Any], queue: PopQueue[Message], invisibility: GivesBack) -> None:
        self._items, self._queue, self._invisibility = items, queue, invisibility
        self._loop = asyncio.get_running_loop()
        self._now = self._loop.time

    def __next__(self) -> Any:
        is_over, now = self._queue.is_over, self._now()
        for item in self._items:
            if isinstance(item, Message):
                if not is_over(item, now):
                    return item
                self._give_back([item])
                continue
            late = [message for message in item if is_over(message, now)]
            if not late:
                return item
            self._give_back(late)
            if rest := [message for message in item if message not in late]:
                return rest
        raise StopIteration

    def __length_hint__(self) -> int:
        return length_hint(self._items)

    def _give_back(self, messages: Sequence[Message]) -> None:
        """Their time was over before they were started."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._invisibility.give_back, messages)
