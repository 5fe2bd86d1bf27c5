"""End a transaction, and a broker's question how one has ended.

Codes: END_TRANSACTION 37 (client to broker) and CHECK_TRANSACTION_STATE 39 (broker to producer). Both are one-way:
a broker does not even answer an end that leaves the transaction open. The body of 39 is one record, the half
message with its real topic. Java: EndTransactionRequestHeader, CheckTransactionStateRequestHeader.
"""

from __future__ import annotations

from rocketapp.wire.fields import Header, Int32, MissingText, java_names
from rocketapp.wire.layout import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK


class EndTransaction(
    Header,
    frozen=True,
    rename=java_names(
        group="producerGroup",
        half_offset="tranStateTableOffset",
        physical_offset="commitLogOffset",
        decision="commitOrRollback",
        message_id="msgId",
        from_check="fromTransactionCheck",
    ),
):
    """Commits or rolls back the half message at `physical_offset`."""

    group: str
    """The producer group that sent the half message."""
    topic: MissingText
    half_offset: int
    """The half message's offset in the queue of half messages (Java: tranStateTableOffset)."""
    physical_offset: int
    """The half message's position in the commit log."""
    decision: Int32
    """TRANSACTION_COMMIT or TRANSACTION_ROLLBACK."""
    message_id: str
    """The producer's unique id."""
    transaction_id: str | None = None
    from_check: bool = False
    """Whether the broker asked for it."""
    broker_name: str | None = None


class CheckTransaction(
    Header,
    frozen=True,
    rename=java_names(
        half_offset="tranStateTableOffset",
        physical_offset="commitLogOffset",
        message_id="msgId",
        offset_message_id="offsetMsgId",
    ),
):
    """A broker asks how the transaction of the half message in the body has ended."""

    half_offset: int
    """Where the half message is now: a broker stores it again for every check."""
    physical_offset: int
    message_id: str | None = None
    transaction_id: str | None = None
    offset_message_id: str | None = None
    topic: str | None = None
    """The topic of half messages."""
    broker_name: str | None = None

    def end(self, group: str, decision: int, message_id: str) -> EndTransaction:
        """The answer. It uses the offsets of the question: those of the send are out of date."""
        return EndTransaction(
            group=group,
            topic=self.topic or "",
            half_offset=self.half_offset,
            physical_offset=self.physical_offset,
            decision=decision,
            message_id=message_id,
            transaction_id=self.transaction_id,
            from_check=True,
            broker_name=self.broker_name,
        )


def decision_of(commit: bool) -> int:
    """The number on the wire of a commit or a rollback."""
    return TRANSACTION_COMMIT if commit else TRANSACTION_ROLLBACK
