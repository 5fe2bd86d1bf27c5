"""What a member of a consumer group is doing.

Code: GET_CONSUMER_RUNNING_INFO 307, from tool to broker and from broker to client; the request is in `admin`. Java:
ConsumerRunningInfo. Its tables of queues and of figures are read by Java's tool alone, and left empty here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from rocketapp.errors import ProtocolError
from rocketapp.model.subscription import SubscriptionData
from rocketapp.wire import lenient_json
from rocketapp.wire.lenient_json import text_of
from rocketapp.wire.requests.clients import subscription_members, subscription_of

CONSUME_TYPE, STARTED, CLIENT_VERSION = "PROP_CONSUME_TYPE", "PROP_CONSUMER_START_TIMESTAMP", "PROP_CLIENT_VERSION"
"""Names of properties. Java's tool reads the first two without asking whether they are there."""
PULLED = "PROP_ROCKETAPP_PULLED"
"""Name of ours: by topic the expression that the member pulls, as JSON. Who tells it takes part in roll-outs."""

_encode = msgspec.json.Encoder(order="sorted").encode
_decode_pulled = msgspec.json.Decoder(dict[str, str]).decode


def encode_pulled(pulled: Mapping[str, str]) -> str:
    """The value of PULLED."""
    return _encode(pulled).decode()


class RunningInfo(NamedTuple):
    """One member of one group."""

    properties: Mapping[str, str]
    subscriptions: tuple[SubscriptionData, ...]
    """What its own handlers want."""

    @property
    def pulled(self) -> dict[str, str] | None:
        """By topic the expression that it pulls; None when it does not tell, or tells what cannot be read."""
        try:
            return _decode_pulled(self.properties[PULLED])
        except (KeyError, msgspec.DecodeError):
            return None

    def encode(self) -> bytes:
        return _encode(
            {
                "mqPopTable": {},
                "mqTable": {},
                "properties": dict(self.properties),
                "statusTable": {},
                "subscriptionSet": [subscription_members(one) for one in self.subscriptions],
                "userConsumerInfo": {},
            }
        )

    @classmethod
    def decode(cls, body: bytes) -> RunningInfo:
        """Read the answer to 307; raises ProtocolError."""
        data = lenient_json.loads(body)
        try:
            properties = {text_of(name): text_of(value) for name, value in (data.get("properties") or {}).items()}
            return cls(properties, tuple(map(subscription_of, data.get("subscriptionSet") or ())))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ProtocolError(f"running info: {type(error).__name__} {error}") from None
