"""Sends payloads and waits for the broker's word on each.

A few are in flight on one connection for each broker. One that a busy broker refuses is sent again when the others are
answered. After a lost connection, those without an answer are sent again, in order: a message may then be stored twice,
and none is lost.
"""

from __future__ import annotations

import time
from collections import deque

from pyspark_rocketmq.cluster import CONNECTIONS, TRANSIENT, Cluster
from pyspark_rocketmq.packing import Payload
from pyspark_rocketmq.problems import WriteError
from pyspark_rocketmq.remoting import Connection
from rocketapp import NoRouteError, TransportError
from rocketapp.wire.codes import ResponseCode
from rocketapp.wire.command import Command

_STORED = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
    }
)
"""The message is in the store, on disk and elsewhere or not yet."""


class BrokerSender:
    """The payloads for one broker."""

    def __init__(self, cluster: Cluster, broker: str, *, group: str, depth: int) -> None:
        self._cluster, self._broker, self._group, self._depth = cluster, broker, group, depth
        self._connection: Connection | None = None
        self._unanswered: dict[int, Payload] = {}
        self._to_send: deque[Payload] = deque()
        self._refused: list[Payload] = []
        """Certainly not stored; nothing new is sent before they are."""
        self._failures = 0
        self._problem = ""

    def send(self, payload: Payload) -> None:
        """Send it; wait for older ones while too many are in flight. Raises WriteError."""
        self._to_send.append(payload)
        self._work(leave=self._depth - 1)

    def settle(self) -> None:
        """Wait until every payload is stored. Raises WriteError."""
        self._work(leave=0)
        if self._connection is not None:
            CONNECTIONS.give_back(self._connection)
            self._connection = None

    def close(self) -> None:
        """Drop what is in flight."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _work(self, *, leave: int) -> None:
        while self._to_send or self._refused or len(self._unanswered) > leave:
            try:
                if self._refused:
                    self._finish_round()
                elif self._to_send and len(self._unanswered) < self._depth:
                    self._send_one(self._to_send[0])
                    self._to_send.popleft()
                else:
                    self._take(self._receive())
            except (TransportError, NoRouteError) as error:
                self._again(error)

    def _finish_round(self) -> None:
        """Hear the other answers, and send the refused ones again, perhaps elsewhere."""
        while self._unanswered:
            self._take(self._receive())
        self._again(WriteError(self._problem))

    def _send_one(self, payload: Payload) -> None:
        if self._connection is None:
            self._connection = self._cluster.connect(payload.queue.topic, self._broker)
        topic, group = self._cluster.wire_name(payload.queue.topic), self._cluster.wire_name(self._group)
        code, fields, body = payload.request(topic=topic, group=group, now_ms=time.time_ns() // 1_000_000)
        self._unanswered[self._connection.send(code, fields, body)] = payload

    def _receive(self) -> Command:
        assert self._connection is not None
        return self._connection.receive(self._cluster.reach.timeout)

    def _take(self, reply: Command) -> None:
        payload = self._unanswered.pop(reply.opaque)
        if reply.code in _STORED:
            self._failures = 0
            return
        self._problem = f"{payload.queue} refused a message: code {reply.code}: {reply.remark or 'no remark'}"
        if reply.code not in TRANSIENT:
            raise WriteError(self._problem)
        self._refused.append(payload)

    def _again(self, problem: Exception) -> None:
        """What was refused or has no answer is sent once more, on a new connection."""
        self.close()
        self._failures += 1
        if self._failures > self._cluster.reach.retries:
            raise WriteError(f"not written, or perhaps not: {problem}") from None
        again = [*self._refused, *(payload for _, payload in sorted(self._unanswered.items()))]
        self._to_send.extendleft(reversed(again))
        self._refused.clear()
        self._unanswered.clear()
        self._cluster.pause()
        self._cluster.forget_routes()
