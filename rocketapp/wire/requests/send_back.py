"""Send a failed message back: the broker stores it again for later, or as a dead letter.

Code: CONSUMER_SEND_MSG_BACK 36. Request and response have no body. Java:
ConsumerSendMsgBackRequestHeader.
"""

from __future__ import annotations

from rocketapp.wire.fields import Header, Int32, java_names

BROKER_DECIDES = 0
"""`delay_level`: the broker waits longer with each attempt: level 3 + retries so far."""
DEAD = -1
"""`delay_level`: the broker stores the message as a dead letter at once."""
DEFAULT_RETRIES = 16
"""The maximum that Java sends by default."""


class SendBackRequest(
    Header, frozen=True, rename=java_names(physical_offset="offset", group="group", origin_message_id="originMsgId")
):
    """Sends the message at `physical_offset` back, because a handler of `group` failed on it."""

    physical_offset: int
    group: str
    delay_level: Int32 = BROKER_DECIDES
    """1 to 18, or BROKER_DECIDES, or DEAD."""
    origin_message_id: str | None = None
    origin_topic: str | None = None
    max_reconsume_times: Int32 | None = DEFAULT_RETRIES
    """Attempts after the first one; None: the value of the group's configuration."""
    broker_name: str | None = None
    unit_mode: bool = False
