"""Send a failed message back: the broker stores it again for later, or as a dead letter.

Code: CONSUMER_SEND_MSG_BACK 36. Request and response have no body. Java:
ConsumerSendMsgBackRequestHeader.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from rocketapp.wire import fields as read

BROKER_DECIDES = 0
"""`delay_level`: the broker waits longer with each attempt: level 3 + retries so far."""
DEAD = -1
"""`delay_level`: the broker stores the message as a dead letter at once."""
DEFAULT_RETRIES = 16
"""The maximum that Java sends by default."""


class SendBackRequest(NamedTuple):
    """Sends the message at `physical_offset` back, because a handler of `group` failed on it."""

    physical_offset: int
    group: str
    delay_level: int = BROKER_DECIDES
    """1 to 18, or BROKER_DECIDES, or DEAD."""
    origin_message_id: str | None = None
    origin_topic: str | None = None
    max_reconsume_times: int | None = DEFAULT_RETRIES
    """Attempts after the first one; None: the value of the group's configuration."""
    broker_name: str | None = None

    def to_fields(self) -> dict[str, str]:
        fields = {
            "offset": str(self.physical_offset),
            "group": self.group,
            "delayLevel": str(self.delay_level),
            "unitMode": "false",
        }
        if self.origin_message_id is not None:
            fields["originMsgId"] = self.origin_message_id
        if self.origin_topic is not None:
            fields["originTopic"] = self.origin_topic
        if self.max_reconsume_times is not None:
            fields["maxReconsumeTimes"] = str(self.max_reconsume_times)
        if self.broker_name is not None:
            fields["bname"] = self.broker_name
        return fields

    @classmethod
    def from_fields(cls, fields: Mapping[str, str] | None) -> SendBackRequest:
        return cls(
            read.int64(fields, "offset"),
            read.text(fields, "group"),
            read.int32(fields, "delayLevel", BROKER_DECIDES),
            read.optional_text(fields, "originMsgId"),
            read.optional_text(fields, "originTopic"),
            read.optional_int32(fields, "maxReconsumeTimes"),
            read.optional_text(fields, "bname"),
        )
