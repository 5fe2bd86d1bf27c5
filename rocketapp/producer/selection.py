"""Chooses the queue of a message.

By default: round robin from a random start, and after a failure another broker if there is one. With an order key:
always the same queue, also after failures, as long as the topic's queues stay the same. A message may also name its
queue, or have a function that selects it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random

from rocketapp.errors import SendRefused
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.names import DLQ_PREFIX, is_retry_topic
from rocketapp.model.outgoing import Outgoing
from rocketapp.model.route import TopicRoute
from rocketapp.state.broker_latency import BrokerLatency
from rocketapp.wire.java import string_hash
from rocketapp.wire.requests.routes import MOST_QUEUES

_MOST_DIGITS = len(str(MOST_QUEUES))


def publish_queues(topic: str, route: TopicRoute) -> list[MessageQueue]:
    """The writable queues, sorted. An order configuration lists queues whether their brokers are alive or not."""
    if not route.order_conf:
        return route.writable_queues(topic)
    queues = []
    for part in route.order_conf.split(";"):
        broker_name, _, count = part.rpartition(":")
        # An operator wrote it: a number above that is a mistake, and as many objects would fill the memory.
        if broker_name and count.isdecimal() and len(count) <= _MOST_DIGITS and int(count) <= MOST_QUEUES:
            queues += [MessageQueue(topic, broker_name, queue_id) for queue_id in range(int(count))]
    return sorted(queues)


def queues_to_create(topic: str, default: TopicRoute, most: int) -> list[MessageQueue]:
    """The queues that a topic will have once a send creates it, by the route of the default topic."""
    # A broker gives retry and dead-letter topics one queue, however many are asked for.
    most = 1 if is_retry_topic(topic) or topic.startswith(DLQ_PREFIX) else most
    return sorted(
        MessageQueue(topic, data.broker_name, queue_id)
        for data in default.queues
        if data.writable and (broker := default.broker(data.broker_name)) is not None and broker.master is not None
        for queue_id in range(min(most, data.read_queues))
    )


def queue_of_key(key: str, queues: Sequence[MessageQueue]) -> MessageQueue:
    """The queue for an order key: as Java's SelectMessageQueueByHash."""
    return queues[abs(string_hash(key)) % len(queues)]


def has_wish(message: Outgoing) -> bool:
    """Whether the message has an order key, a queue or a selector of its own."""
    return not (message.queue is None and message.select is None and message.order_key is None)


def wished_queue(message: Outgoing, queues: Sequence[MessageQueue]) -> MessageQueue:
    """The queue that the message asks for.

    Raises what its selector raises, SendRefused for a queue of another topic.
    """
    if message.queue is not None:
        return message.queue
    if message.select is not None:
        chosen = message.select(queues)
        if chosen not in queues:
            problem = f"the function in queue= returned {chosen!r}: return one of the queues that it is given"
            raise SendRefused(message.topic, problem, True)
        return chosen
    return queue_of_key(message.order_key or "", queues)


class RoundRobin:
    """Round robin by topic. Passes over silent and slow brokers (`latency`) as long as there are others."""

    def __init__(self, random: Random, latency: BrokerLatency | None = None) -> None:
        self._random, self._latency = random, latency
        self.silent: set[str] = set()
        """Names of brokers that have not answered a send in time, and no probe since."""
        self._turns: dict[str, int] = {}

    def next(self, queues: Sequence[MessageQueue], avoid: str | None = None) -> MessageQueue:
        """The next of these queues; not on the broker `avoid` if there is another."""
        others = [queue for queue in queues if queue.broker_name != avoid] if avoid is not None else queues
        if self.silent:
            others = [queue for queue in others if queue.broker_name not in self.silent] or others
        if (latency := self._latency) is not None:
            now = asyncio.get_running_loop().time()
            others = [queue for queue in others if latency.is_available(queue.broker_name, now)] or others
        candidates = others or queues
        topic = candidates[0].topic
        turn = self._turns.get(topic)
        if turn is None:
            turn = self._random.randrange(1 << 30)
        self._turns[topic] = turn + 1
        return candidates[turn % len(candidates)]


class Choice:
    """Chooses the queue of each attempt: the queue the message asks for, or the next in turn."""

    def __init__(
        self, turns: RoundRobin, *, wish: Outgoing | MessageQueue | None = None, prefer: str | None = None
    ) -> None:
        """`wish`: the message that has one, or its queue if that is known by now. `prefer`: a broker to begin with."""
        self._turns, self._wish, self._prefer = turns, wish, prefer

    @property
    def moves(self) -> bool:
        """Whether a failed attempt may be repeated on another broker."""
        return self._wish is None

    def __call__(self, queues: Sequence[MessageQueue], avoid: str | None, /) -> MessageQueue:
        if isinstance(self._wish, Outgoing):
            self._wish = wished_queue(self._wish, queues)
        if self._wish is not None:
            return self._wish
        if self._prefer is not None and avoid is None and self._prefer not in self._turns.silent:
            queues = [queue for queue in queues if queue.broker_name == self._prefer] or queues
        return self._turns.next(queues, avoid)
