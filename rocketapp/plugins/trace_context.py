"""The W3C trace context in a message's encoded properties, read without decoding them.

`traceparent` is written by rocketapp, by OpenTelemetry's instrumentation of the Java client `rocketmq-client`, and by
that of most other clients. The gRPC client `rocketmq-client-java` gives it to the proxy in a field of its own, and the
proxy stores it as the property TRACE_CONTEXT (Java: MessageConst.PROPERTY_TRACE_CONTEXT).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

TRACE_PARENT: Final = "traceparent"
OF_PROXY: Final = "TRACE_CONTEXT"

_OWN, _PROXY = b"traceparent\x01", b"TRACE_CONTEXT\x01"
_VALUE = re.compile(rb"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-([0-9a-f]{2})(?=[-\x02]|\Z)")


def is_sampled(raw: bytes) -> bool | None:
    """Whether the producer's trace is kept; None when the message carries none that can be read."""
    found = _find(raw)
    return None if found is None else bool(int(found[2], 16) & 1)


def trace_id(raw: bytes) -> str:
    """The trace id as 32 hexadecimal digits; empty without a trace."""
    found = _find(raw)
    return "" if found is None else found[1].decode()


def carrier_of(properties: Mapping[str, str]) -> Mapping[str, str]:
    """The properties as a propagator reads them: the proxy's name stands in for a missing `traceparent`."""
    if TRACE_PARENT not in properties and OF_PROXY in properties:
        return {**properties, TRACE_PARENT: properties[OF_PROXY]}
    return properties


def _find(raw: bytes) -> re.Match[bytes] | None:
    for name in (_OWN, _PROXY):
        at = raw.find(name)
        # A longer name may end with ours.
        while at > 0 and raw[at - 1] != 2:
            at = raw.find(name, at + 1)
        if at >= 0:
            return _VALUE.match(raw, at + len(name))
    return None
