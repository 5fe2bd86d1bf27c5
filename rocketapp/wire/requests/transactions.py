"""End a transaction, and a broker's question how one has ended.

Codes: END_TRANSACTION 37 (client to broker) and CHECK_TRANSACTION_STATE 39 (broker to producer). Both are one-way:
a broker does not even answer an end that leaves the transaction open. The body of 39 is one record, the half
message with its real topic. Java: EndTransactionRequestHeader, CheckTransactionStateRequestHeader.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from rocketapp.wire import fields as read
from rocketapp.wire.layout import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK


class EndTransaction(NamedTuple):
    """Commits or rolls back the half message at `physical_offset`."""

    group: str
    """The producer group that sent the half message."""
    topic: str
    half_offset: int
    """Of the half message in the queue of half messages (Java: tranStateTableOffset)."""
    physical_offset: int
    """Of the half message in the commit log."""
    decision: int
    """TRANSACTION_COMMIT or TRANSACTION_ROLLBACK."""
    message_id: str
    """The producer's unique id."""
    transaction_id: str | None = None
    from_check: bool = False
    """Whether the broker asked for it."""
    broker_name: str | None = None

    def to_fields(self) -> dict[str, str]:
        fields = {
            "topic": self.topic,
            "producerGroup": self.group,
            "tranStateTableOffset": str(self.half_offset),
            "commitLogOffset": str(self.physical_offset),
            "commitOrRollback": str(self.decision),
            "fromTransactionCheck": read.boolean_text(self.from_check),
            "msgId": self.message_id,
        }
        if self.transaction_id is not None:
            fields["transactionId"] = self.transaction_id
        if self.broker_name is not None:
            fields["bname"] = self.broker_name
        return fields

    @classmethod
    def from_fields(cls, fields: Mapping[str, str] | None) -> EndTransaction:
        return cls(
            group=read.text(fields, "producerGroup"),
            topic=read.text(fields, "topic", ""),
            half_offset=read.int64(fields, "tranStateTableOffset"),
            physical_offset=read.int64(fields, "commitLogOffset"),
            decision=read.int32(fields, "commitOrRollback"),
            message_id=read.text(fields, "msgId"),
            transaction_id=read.optional_text(fields, "transactionId"),
            from_check=read.boolean(fields, "fromTransactionCheck"),
            broker_name=read.optional_text(fields, "bname"),
        )


class CheckTransaction(NamedTuple):
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

    def to_fields(self) -> dict[str, str]:
        fields = {"tranStateTableOffset": str(self.half_offset), "commitLogOffset": str(self.physical_offset)}
        named = {
            "msgId": self.message_id,
            "transactionId": self.transaction_id,
            "offsetMsgId": self.offset_message_id,
            "topic": self.topic,
            "bname": self.broker_name,
        }
        return fields | {name: value for name, value in named.items() if value is not None}

    @classmethod
    def from_fields(cls, fields: Mapping[str, str] | None) -> CheckTransaction:
        return cls(
            half_offset=read.int64(fields, "tranStateTableOffset"),
            physical_offset=read.int64(fields, "commitLogOffset"),
            message_id=read.optional_text(fields, "msgId"),
            transaction_id=read.optional_text(fields, "transactionId"),
            offset_message_id=read.optional_text(fields, "offsetMsgId"),
            topic=read.optional_text(fields, "topic"),
            broker_name=read.optional_text(fields, "bname"),
        )

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
