"""Writes message trace: what was sent, and what consumers of the client recorded.

Records travel in messages of their own, which are not traced. A trace that cannot be sent is dropped; reported once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from rocketapp.client.instance import ClientInstance
from rocketapp.client.traces import Traces
from rocketapp.clock import Clock
from rocketapp.errors import SendRefused, SendUnknown
from rocketapp.model.event import LoopFailed
from rocketapp.model.outgoing import Outgoing, SendResult, SendStatus
from rocketapp.producer.attempts import Accepted, PreparedSend
from rocketapp.producer.batches import PreparedMessage
from rocketapp.tasks import Tasks, is_set_by
from rocketapp.wire import properties as names
from rocketapp.wire.trace import REGION, Line, MessageKind, PubRecord, line_of, pack

INTERVAL = 0.5
"""Seconds between two writes (Java: up to 5), while few notes wait."""
LOOK = 0.05
"""Seconds between looks whether notes for a whole trace message wait: an interval could fill the pile."""
AT_ONCE = 800
"""Notes that become records in one turn of the loop: of handled messages, they nearly fill one trace message."""
TIMEOUT = 5.0
"""Seconds that a trace message may take, retries included (Java: AsyncTraceDispatcher), and the last write of all."""
WHO = "message trace"


_Told = tuple[bytes, int, str]
"""Of one message: its encoded properties, the bytes of its body, the broker's id."""


class _Sending(NamedTuple):
    """A send that a broker accepted, with all that its trace records need."""

    at: float
    group: str
    topic: str
    store_host: str
    accepted: Accepted
    told: Sequence[_Told]
    kind: MessageKind


class TraceWriter:
    """The message trace of one producer group, and of the consumers of its client."""

    def __init__(
        self,
        client: ClientInstance,
        topic: str,
        *,
        group: str,
        clock: Clock,
        send: Callable[[Outgoing], Awaitable[SendResult]],
    ) -> None:
        """`send` stores a trace message. Raises SendRefused and SendUnknown."""
        self.traces: Traces = Traces(topic, clock)
        """Where consumers note down what they did."""
        self._client, self._group, self._observe, self._send_message = client, group, client.observe, send
        self._tasks = Tasks(client.observe)
        self._stopping = asyncio.Event()
        self._told_full = self._told_failed = False

    def start(self) -> None:
        self._tasks.start(self._run(), WHO)

    async def stop(self) -> None:
        """Write what is left, for at most TIMEOUT seconds."""
        self._stopping.set()
        if running := self._tasks.running():
            await asyncio.wait(running, timeout=TIMEOUT)
        await self._tasks.close()

    # What is noted down.

    def sent(self, message: Outgoing, prepared: PreparedSend, accepted: Accepted) -> None:
        """Record a message that was sent by itself."""
        topic = message.topic
        if topic != self.traces.topic and _is_traced(accepted):
            raw, size = prepared.request.properties.encode(), len(prepared.body)
            self._add(topic, accepted, [(raw, size, accepted.sent.response.message_id)], _kind_of(message))

    def sent_batch(self, topic: str, batch: Sequence[PreparedMessage], accepted: Accepted) -> None:
        """Record messages that were sent in one batch."""
        if topic != self.traces.topic and _is_traced(accepted):
            ids = accepted.sent.response.message_id.split(",")
            ids = ids if len(ids) == len(batch) else [""] * len(batch)
            told = [(item.properties, len(item.body), each) for item, each in zip(batch, ids, strict=True)]
            self._add(topic, accepted, told, MessageKind.NORMAL)

    def _add(self, topic: str, accepted: Accepted, told: Sequence[_Told], kind: MessageKind) -> None:
        at = self.traces.now() - accepted.seconds
        host = self._client.broker_address(accepted.queue.broker_name) or ""
        self.traces.add((_lines_of_sends, _Sending(at, self._group, topic, host, accepted, told, kind)))

    # Writing.

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        written = loop.time()
        is_last = False
        while not is_last:
            is_last = await is_set_by(self._stopping, loop.time() + LOOK)
            if is_last or self.traces.waiting >= AT_ONCE or loop.time() >= written + INTERVAL:
                await self._write()
                written = loop.time()

    async def _write(self) -> None:
        traces = self.traces
        if traces.dropped and not self._told_full:
            self._told_full = True
            self._observe(LoopFailed(WHO, "more is sent and handled than traces are written: records are dropped"))
        while (lines := traces.take(AT_ONCE)) is not None:
            for body, keys in pack(lines):
                await self._send(body, keys)

    async def _send(self, body: bytes, keys: Sequence[str]) -> None:
        try:
            await self._send_message(Outgoing(topic=self.traces.topic, body=body, keys=keys))
        except (SendRefused, SendUnknown) as error:
            if not self._told_failed:
                self._told_failed = True
                mend = f"let brokers have the topic {self.traces.topic} (traceTopicEnable=true, or create it)"
                self._observe(LoopFailed(WHO, f"records are dropped: {error}: {mend}"))
        else:
            self._told_failed = False


def _lines_of_sends(notes: Iterable[tuple[object, _Sending]]) -> Iterator[Line]:
    return (line_of(record) for _, sending in notes for record in _records(sending))


def _records(sending: _Sending) -> Iterator[PubRecord]:
    at, group, topic, host, accepted, told, kind = sending
    response, success = accepted.sent.response, accepted.sent.status is SendStatus.OK
    cost_ms = int(accepted.seconds * 1000) // len(told)
    for raw, size, offset_id in told:
        said = names.decode(raw)
        yield PubRecord(
            int(at * 1000),
            response.region or REGION,
            group,
            topic,
            said.get(names.UNIQ_KEY, ""),
            said.get(names.TAGS),
            said.get(names.KEYS),
            host,
            size,
            cost_ms,
            kind,
            offset_id,
            success,
        )


def _is_traced(accepted: Accepted) -> bool:
    """Whether the broker has tracing on. One whose response names no region has no trace."""
    response = accepted.sent.response
    return response.region is not None and response.trace_on


def _kind_of(message: Outgoing) -> MessageKind:
    if message.half:
        return MessageKind.HALF
    return MessageKind.DELAYED if message.delay_level or message.delay else MessageKind.NORMAL
