"""The properties of a message as one string: `name 0x01 value 0x02 ...`.

Reading follows Java's MessageDecoder: an entry counts when it has a name and a value,
the last of equal names wins, and the last entry may lack its 0x02. The names of RocketMQ's
own properties are listed here (Java: MessageConst).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rocketapp.errors import ProtocolError

KEYS, TAGS, WAIT, DELAY = "KEYS", "TAGS", "WAIT", "DELAY"
UNIQ_KEY = "UNIQ_KEY"
RETRY_TOPIC, ORIGIN_MESSAGE_ID = "RETRY_TOPIC", "ORIGIN_MESSAGE_ID"
INSTANCE_ID = "INSTANCE_ID"
REAL_TOPIC, REAL_QID = "REAL_TOPIC", "REAL_QID"
RECONSUME_TIME, MAX_RECONSUME_TIMES = "RECONSUME_TIME", "MAX_RECONSUME_TIMES"
TRAN_MSG, PGROUP, TRANSACTION_ID = "TRAN_MSG", "PGROUP", "__transactionId__"
MSG_REGION, TRACE_ON, CLUSTER = "MSG_REGION", "TRACE_ON", "CLUSTER"
CORRELATION_ID, REPLY_TO_CLIENT, TTL = "CORRELATION_ID", "REPLY_TO_CLIENT", "TTL"
MSG_TYPE, REPLY = "MSG_TYPE", "reply"
DLQ_ORIGIN_TOPIC, DLQ_ORIGIN_MESSAGE_ID = "DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID"
TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS = "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"
TIMER_OUT_MS, TIMER_DEL_UNIQKEY, TIMER_ROLL_TIMES = "TIMER_OUT_MS", "TIMER_DEL_UNIQKEY", "TIMER_ROLL_TIMES"

NAME_END, ENTRY_END = "\x01", "\x02"
LONGEST = 32767
"""Most bytes of encoded properties, because their length is a signed 16-bit number."""

_TAG_INSIDE = b"\x02TAGS\x01"
_NO_VALUE = (b"", b"\x02")


def encode(properties: Mapping[str, str | None]) -> bytes:
    """Every property as `name 0x01 value 0x02`, in the order of the mapping. Values None are left out.

    Raises ProtocolError for a name or value with a separator, because it could not be read back.
    """
    entries = [f"{name}\x01{value}\x02" for name, value in properties.items() if value is not None]
    text = "".join(entries)
    if text.count("\x02") != len(entries) or text.count("\x01") != len(entries):
        _find_separator(properties)
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ProtocolError(f"property text is not encodable as UTF-8: {error}") from None


def appended(raw: bytes, properties: Mapping[str, str]) -> bytes:
    """Encoded properties with some more. Of equal names the last one wins, so values that were there are ignored."""
    return (raw if not raw or raw.endswith(b"\x02") else raw + b"\x02") + encode(properties)


def _find_separator(properties: Mapping[str, str | None]) -> None:
    for name, value in properties.items():
        # 0x01 inside a value is legal: only the first one of an entry separates.
        if NAME_END in name or ENTRY_END in name or ENTRY_END in (value or ""):
            raise ProtocolError(f"property {name!r} holds a separator (0x01 or 0x02) of the property string")


def decode(raw: bytes) -> dict[str, str]:
    """The properties by name. Entries without a name or value are left out."""
    found = {}
    for entry in raw.decode("utf-8", "replace").split("\x02"):
        name, _, value = entry.partition("\x01")
        if name and value:
            found[name] = value
    return found


def reader_of(name: str) -> Callable[[bytes], bytes | None]:
    """A function that finds one value in encoded properties; None without it. It does not decode the other ones."""
    first = f"{name}\x01".encode()
    inside = b"\x02" + first

    def read(raw: bytes) -> bytes | None:
        _, found, rest = raw.rpartition(inside)  # in one step: for each message whose tag or key is asked for
        if not found:
            if not raw.startswith(first):
                return None
            rest = raw[len(first) :]
        value = rest.partition(b"\x02")[0]
        if value:
            return value
        # An empty value counts as absent, so an earlier entry with this name may count.
        earlier = decode(raw).get(name)
        return None if earlier is None else earlier.encode()

    return read


tag_of: Callable[[bytes], bytes | None] = reader_of(TAGS)
unique_id_of: Callable[[bytes], bytes | None] = reader_of(UNIQ_KEY)
"""The producer's unique id."""
keys_of: Callable[[bytes], bytes | None] = reader_of(KEYS)
"""The keys, with blanks between them."""


def from_tag_on(raw: bytes) -> bytes:
    """Encoded properties from the tag's entry to their end; empty where they begin with it, or have no tag.

    Properties that end so have the same tag: of equal names the last wins.
    """
    start = raw.rfind(_TAG_INSIDE)
    # An empty value counts as absent, so an earlier entry with this name may count.
    return b"" if start < 0 or raw[start + 6 : start + 7] in _NO_VALUE else raw[start:]
