"""Where consumption of a queue begins: the committed offset, or the start rule, which is committed at once.

Raises when the broker does not answer. The queue is then not consumed: an offset is never guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from rocketapp.consumer.group.brokers import Brokers
from rocketapp.consumer.group.group_offsets import GroupOffsets
from rocketapp.errors import TransportError
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.queue_start import Begin, QueueStart
from rocketapp.model.subscription import Start
from rocketapp.state.start_position import Edge, start_at


class StartOffsets:
    """First offsets of one group's queues."""

    def __init__(
        self,
        store: GroupOffsets,
        brokers: Brokers,
        rules: Mapping[str, Start],
        trusted: Callable[[MessageQueue], bool],
        *,
        joined: float,
        begins: Mapping[str, Begin] | None = None,
        away_since: Callable[[MessageQueue], float | None] | None = None,
        is_shared: bool = True,
        popped: Collection[str] = (),
    ) -> None:
        """`brokers` say where a queue begins and ends.

        `rules`: the start of every topic; the retry topic has none and is read from its beginning.

        `trusted(queue)`: whether this member certainly still owns it. `joined`: when this member joins,
        in seconds since 1970. `begins`: by topic, what knows better than the broker where a session begins.

        `is_shared`: members share the queues, so that brokers know the group; those of a broadcast group do not.

        `popped`: topics whose offsets brokers keep, whatever the store: they hand out the messages.

        `away_since(queue)`: of a queue without an offset that has appeared while this member was away, since when.
        """
        self._begins = begins or {}
        self._store, self._brokers, self._rules, self._trusted = store, brokers, rules, trusted
        self._joined, self._away_since = joined, away_since or (lambda queue: None)
        self._is_shared, self._popped = is_shared, frozenset(popped)
        self._known: set[MessageQueue] | None = None

    def joined(self, queues: Iterable[MessageQueue]) -> None:
        """These queues had a route when this member joined; others appear later."""
        self._known = set(queues)

    async def offset(self, queue: MessageQueue) -> int:
        """Where a session begins: at the fixed offset, unless a plugin keeps the offsets; that is committed as well."""
        await self._store.take(queue)
        offset, begin = await self.fix(queue), self._begins.get(queue.topic)
        if begin is None:
            return offset
        ends = await self._brokers.min_offset(queue), await self._brokers.max_offset(queue)
        start = await begin(QueueStart(queue, offset, max(0, ends[0]), ends[1]))
        if start is None or start == offset:
            return offset
        self._check_trust(queue)
        await self._store.commit(queue, start)
        return start

    async def fix(self, queue: MessageQueue) -> int:
        """The committed offset; without one, what the rule says, committed with an answer."""
        store: GroupOffsets = self._brokers if queue.topic in self._popped else self._store
        committed = await store.committed_for_start(queue)
        if committed.offset is not None and committed.is_certain:
            return committed.offset
        # A 0 that may mean "none" is where we begin all the same; committed, it holds when the queue is old.
        start = await self._by_rule(queue) if committed.offset is None else committed.offset
        # Asked again: if this took long, another member may have begun meanwhile, and gone on.
        again = await store.committed_for_start(queue)
        if again.offset is not None and (again.is_certain or committed.offset is None):
            return again.offset
        self._check_trust(queue)
        await store.commit(queue, start)
        return start

    def _check_trust(self, queue: MessageQueue) -> None:
        if not self._trusted(queue):
            raise TransportError(queue.broker_name, f"{queue} may belong to another member by now: looking again first")

    async def _by_rule(self, queue: MessageQueue) -> int:
        rule = self._rules.get(queue.topic, "first")
        appeared_later = self._known is not None and queue not in self._known
        since = self._joined if appeared_later else self._away_since(queue)
        if rule == "last" and since is None:
            # Of a young queue brokers say 0 to a new group, wherever it wants to begin: so do we.
            young = await self._brokers.committed(queue) if self._is_shared else None
            if young is not None:
                return young
        place = start_at(queue.topic, rule, joined=since)
        if place is Edge.MIN:
            return max(0, await self._brokers.min_offset(queue))
        if place is Edge.MAX:
            return await self._brokers.max_offset(queue)
        return await self._brokers.offset_at(queue, place / 1000)
