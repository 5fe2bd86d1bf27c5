"""Popped topics: handlers run as in the concurrent mode, and each message is acknowledged by itself."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from rocketapp.consumer.handler import messages_of
from rocketapp.consumer.modes.by_message import MessageDelivery, MessageMode
from rocketapp.consumer.pop.acks import PopAcks
from rocketapp.consumer.workers.caller import Caller
from rocketapp.consumer.workers.run import Pair, Taker
from rocketapp.model.outcome import DeadLetter
from rocketapp.state.redelivery import CERTAIN, is_spent
from rocketapp.wire.record import Message


class PopDelivery(MessageDelivery):
    """The messages of one popped queue on their way to workers."""

    def __init__(self, acks: PopAcks, mode: MessageMode) -> None:
        super().__init__(acks.queue, mode, acks)
        self.check: Callable[[Any], Any] | None = self._hidden
        self._acks = acks

    def deliver(self, messages: Sequence[Message]) -> None:
        """Messages that were just handed out; after the end they are given back."""
        if self._ended.done():
            self._acks.give_back(messages)
        else:
            super().deliver(messages)

    def _hidden(self, item: Any) -> Any:
        """What of an item is hidden from others still. The rest is given back; a thread may ask."""
        is_over, now = self._acks.queue.is_over, self._loop.time()
        late = [message for message in messages_of(item) if is_over(message, now)]
        if not late:
            return item
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._acks.give_back, late)
        return None if isinstance(item, Message) else [message for message in item if message not in late] or None

    def _park(self, caller: Caller, message: Message, after: float) -> None:
        """It is parked; after the end it is given back."""
        if self._ended.done():
            self._acks.give_back([message])
        else:
            super()._park(caller, message, after)

    def _looks_closer(self, pairs: Sequence[Pair]) -> bool:
        return any(message.reconsume_times > CERTAIN for _, message in pairs)

    def _is_apart(self, taker: Taker, message: Message) -> bool:
        """What has no attempt left becomes a dead letter, and no handler is called with it."""
        if not is_spent(message.reconsume_times, taker.handler.subscription.retries):
            return False
        reason = f"handed out {message.reconsume_times} times before, the last time without an end"
        taker.acks.ended(message if taker.caller.batch is None else [message], DeadLetter(reason), True)
        return True

    def _finish(self) -> None:
        """Give back what was not started: nothing has to be handled for the sake of an offset."""
        for run in self.runs():
            with contextlib.suppress(IndexError):  # a thread may be faster
                while run.items:
                    self._acks.give_back(messages_of(run.items.popleft()[1]))
