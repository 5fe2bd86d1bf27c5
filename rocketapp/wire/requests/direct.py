"""Let one member of a group consume one stored message now.

Code: CONSUME_MESSAGE_DIRECTLY 309, from a client or tool to the broker that stores the message, and from there with its
record as the body to the member, whose answer the broker hands on. Java: ConsumeMessageDirectlyResultRequestHeader,
ConsumeMessageDirectlyResult.

A member of ours, or a replay of dead letters, asks with fields of its own, which brokers hand on as all that they do
not know, and is answered at once: while a broker waits for an answer, one of its few administration threads does
nothing else. TAKEN means that the call runs or is about to, so the same question is asked again later. A tool, or a
Java member, knows neither the fields nor these answers: it is answered when the call has ended.
"""

from __future__ import annotations

from typing import Self

from rocketapp.wire import lenient_json
from rocketapp.wire.fields import Header, MissingText, java_names
from rocketapp.wire.lenient_json import JsonObject, dump

SUCCESS, LATER = "CR_SUCCESS", "CR_LATER"
"""Results: the message is done, or is to be consumed again."""
TAKEN, NOT_TAKEN, DEAD_LETTER = "TAKEN", "NOT_TAKEN", "DEAD_LETTER"
"""Results among members of ours: it is in flight there; it is not, and may be asked for again; it is to be given up."""


class DirectRequest(Header, frozen=True, rename=java_names(offset_message_id="msgId", broker_name="brokerName")):
    """Asks the member `client_id` to consume a message."""

    group: str
    client_id: MissingText
    offset_message_id: MissingText
    topic: MissingText
    broker_name: MissingText
    queue_offset: int = -1
    """-1: not known, as from Java's tool."""
    attempts: int = 0
    """How often it has failed before."""
    locked_by: str = ""
    """The client id under whose lock its queue is consumed; empty: under none."""
    replay: str = ""
    """The replay of dead letters that asks; empty: the owner of the message's queue asks."""

    @property
    def is_by_member(self) -> bool:
        """A member of ours asks, or a replay: it asks again until the call has ended."""
        return self.queue_offset >= 0


class DirectResult(JsonObject, frozen=True, rename=java_names(result="consumeResult")):
    """What became of it."""

    result: str
    remark: str = ""
    after: float | None = None
    """Ours, with LATER: seconds that its handler asked to wait."""

    def encode(self) -> bytes:
        members = {"autoCommit": True, "consumeResult": self.result, "order": False, "remark": self.remark}
        own = {} if self.after is None else {"after": self.after}
        return dump({**members, **own, "spentTimeMills": 0})

    @classmethod
    def decode(cls, body: bytes) -> Self:
        """Read it from the body of an answer. Raises ProtocolError."""
        with lenient_json.reading("result of a message", body) as data:
            return cls.of(data)
