"""Popped topics: handlers run as in the concurrent mode, and each message is acknowledged by itself."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

from rocketapp.consumer.handler import ConsumedTopic, messages_of
from rocketapp.consumer.modes.concurrent import ConcurrentDelivery, ConcurrentMode
from rocketapp.consumer.modes.delivery import ModeContext, NewAcks
from rocketapp.consumer.workers.caller import Caller
from rocketapp.consumer.workers.run import FreeRun, Pair, Taker
from rocketapp.model.outcome import DeadLetter
from rocketapp.state.pop_queue import PopQueue
from rocketapp.state.redelivery import CERTAIN, is_spent
from rocketapp.wire.record import Message


class GivesBack(Protocol):
    """What hides the messages of a session: from there they are given back."""

    def give_back(self, messages: Sequence[Message]) -> None:
        """Hide these no longer: they were not started."""
        ...


class PopMode(ConcurrentMode):
    """Calls the handlers of one popped topic.

    A message that has ended a process comes again with another offset, and brokers count its attempts: nothing is noted
    down of what is in flight.
    """

    def __init__(self, topic: ConsumedTopic, context: ModeContext) -> None:
        super().__init__([topic], replace(context, journal=None))


class PopDelivery(ConcurrentDelivery):
    """The messages of one popped queue on their way to workers."""

    def __init__(self, queue: PopQueue[Message], mode: PopMode, new_acks: NewAcks, invisibility: GivesBack) -> None:
        super().__init__(queue, mode, new_acks)
        self._loop = asyncio.get_running_loop()
        self._invisibility, self._popped = invisibility, queue

    def deliver(self, messages: Sequence[Message]) -> None:
        """Messages that were just handed out; after the end they are given back."""
        if self._given_up:
            self._invisibility.give_back(messages)
        else:
            super().deliver(messages)

    def _new_run(self, pairs: Sequence[Pair], *, is_of_one: bool) -> FreeRun:
        run = super()._new_run(pairs, is_of_one=is_of_one)
        run.check = self._hidden
        return run

    def _hidden(self, item: Any) -> Any:
        """What of an item is hidden from others still. The rest is given back; a thread may ask."""
        is_over, now = self._popped.is_over, self._loop.time()
        late = [message for message in messages_of(item) if is_over(message, now)]
        if not late:
            return item
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._invisibility.give_back, late)
        return None if isinstance(item, Message) else [message for message in item if message not in late] or None

    def _keep(self, caller: Caller, message: Message, after: float) -> None:
        """It is parked; after the end it is given back."""
        if self._given_up:
            self._invisibility.give_back([message])
        else:
            super()._keep(caller, message, after)

    def _looks_closer(self, messages: Sequence[Message]) -> bool:
        return any(message.reconsume_times > CERTAIN for message in messages)

    def _without_dead(self, taker: Taker, messages: Sequence[Message]) -> Sequence[Message]:
        """Those that have an attempt left; the others become dead letters, and no handler is called with them."""
        retries = taker.handler.subscription.retries
        alive = [message for message in messages if not is_spent(message.reconsume_times, retries)]
        for message in messages:
            if is_spent(message.reconsume_times, retries):
                item = message if taker.caller.batch is None else [message]
                reason = f"handed out {message.reconsume_times} times before, the last time without an end"
                taker.acks.ended(item, DeadLetter(reason), True)
        return alive

    def end(self, *, start_no_more: bool = False) -> None:
        """Give back what was not started: nothing has to be handled for the sake of an offset."""
        for _, messages in self._withdrawn():
            self._invisibility.give_back(messages)
