"""Where consumption of a queue begins: the committed offset, or the start rule, which is committed at once.

Raises when the broker does not answer. The queue is then not consumed: an offset is never guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime

from rocketapp.consumer.group.brokers import Brokers
from rocketapp.errors import TransportError
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.subscription import Start
from rocketapp.state.start_position import Edge, start_at


class StartOffsets:
    """First offsets of one group's queues."""

    def __init__(self, brokers: Brokers, rules: Mapping[str, Start], trusted: Callable[[MessageQueue], bool]) -> None:
        """`rules`: the start of every topic; one that is not named is the retry topic.

        `trusted(queue)`: whether it is certainly still ours.
        """
        self._brokers, self._rules, self._trusted = brokers, rules, trusted
        self._known: set[MessageQueue] | None = None

    def joined(self, queues: Iterable[MessageQueue]) -> None:
        """These queues were there when we joined; whatever appears later is new and is read from its beginning."""
        self._known = set(queues)

    async def offset(self, queue: MessageQueue) -> int:
        """The committed offset; when there is none, what the rule says, committed with an answer."""
        committed = await self._brokers.committed(queue, exact=True)
        if committed is not None:
            return committed
        start = await self._by_rule(queue)
        # Asked again: if this took long, somebody else may have begun meanwhile, and gone on.
        committed = await self._brokers.committed(queue, exact=True)
        if committed is not None:
            return committed
        if not self._trusted(queue):
            raise TransportError(queue.broker_name, f"{queue} may be somebody else's by now: looking again first")
        await self._brokers.commit(queue, start)
        return start

    async def _by_rule(self, queue: MessageQueue) -> int:
        rule = self._rules.get(queue.topic, "first")
        is_new = self._known is not None and queue not in self._known
        if not isinstance(rule, datetime):
            # Of a young queue brokers say 0 to a new group, wherever it wants to begin: so do we.
            young = await self._brokers.committed(queue)
            if young is not None:
                return young
        place = start_at(queue.topic, rule, is_new=is_new)
        if place is Edge.MIN:
            return max(0, await self._brokers.min_offset(queue))
        if place is Edge.MAX:
            return await self._brokers.max_offset(queue)
        return await self._brokers.offset_at(queue, place / 1000)
