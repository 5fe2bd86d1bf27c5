"""The properties that a broker adds to a message before it stores it.

Every send runs this code, so entries are searched and appended in the encoded text, and only rare
properties are decoded. Of equal names the last one wins, so appending a property replaces it.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from rocketapp.broker.steady_clock import SteadyClock
from rocketapp.broker.timers import slot_ms
from rocketapp.errors import BrokerError, ProtocolError
from rocketapp.wire import properties as names
from rocketapp.wire.codes import ResponseCode

_POP_CK = "POP_CK"
_UNIQUE_INSIDE = f"\x02{names.UNIQ_KEY}\x01"
_TIMERS = (names.TIMER_DELAY_SEC, names.TIMER_DELAY_MS, names.TIMER_DELIVER_MS)


class Stamped(msgspec.Struct, frozen=True):
    """The properties of a message as they are stored, its unique key and its delay level."""

    raw: bytes
    unique_key: str
    delay_level: int
    is_half: bool = False
    """Whether a transaction holds it back."""
    timer_ms: int = 0
    """The second at whose end its timer lets it go; 0 without a timer, or when that is over."""


def value_of(text: str, name: str) -> str | None:
    """The value of one property in encoded properties. Of equal names the last one wins."""
    marker = f"{name}\x01"
    at = text.rfind("\x02" + marker)
    if at >= 0:
        start = at + len(marker) + 1
    elif text.startswith(marker):
        start = len(marker)
    else:
        return None
    end = text.find("\x02", start)
    return text[start:] if end < 0 else text[start:end]


class Stamp:
    """Adds a unique key if the message has none, and to one that was sent alone region, trace switch and cluster."""

    def __init__(self, *, cluster: str, region: str, new_key: Callable[[], str], clock: SteadyClock) -> None:
        self._new_key, self._clock = new_key, clock
        self._suffix = f"MSG_REGION\x01{region}\x02TRACE_ON\x01true\x02CLUSTER\x01{cluster}\x02"

    def single(self, text: str) -> Stamped:
        """The properties of a message that was sent alone."""
        return self._stamped(text, self._suffix)

    def _stamped(self, text: str, suffix: str) -> Stamped:
        if text and not text.endswith("\x02"):
            text += "\x02"
        if _POP_CK in text and value_of(text, _POP_CK) is not None:
            text = _without(text, _POP_CK)
        is_half = "TRAN_MSG" in text and value_of(text, names.TRAN_MSG) == "true"
        if "\x00" in text:
            # Apache RocketMQ stores it. Here zeros in properties, which have no checksum, reveal a torn write.
            raise BrokerError(
                ResponseCode.MESSAGE_ILLEGAL,
                "a property holds a NUL character (0x00), which the embedded broker does not store: put it in the body",
            )
        delay_level = max(_number(text, names.DELAY), 0) if "DELAY\x01" in text else 0
        timer_ms = 0
        if "TIMER_DEL" in text and any(value_of(text, name) for name in _TIMERS):
            if delay_level:
                for name in _TIMERS:
                    text = _without(text, name)
            else:
                timer_ms = _timer_ms(text, self._clock)
        _, found, rest = text.rpartition(_UNIQUE_INSIDE)  # a third of the time of `value_of`, for every message
        unique_key = rest.partition("\x02")[0] if found else value_of(text, names.UNIQ_KEY)
        if not unique_key:
            unique_key = self._new_key()
            text = f"{text}UNIQ_KEY\x01{unique_key}\x02"
        return Stamped(_limited(text + suffix), unique_key, delay_level, is_half, timer_ms)

    def batched(self, raw: bytes) -> Stamped:
        """The properties of one message of a batch: as in Apache RocketMQ its own, for readers pay for each one."""
        try:
            text = raw.decode()
        except UnicodeDecodeError as error:
            raise BrokerError(ResponseCode.MESSAGE_ILLEGAL, f"properties of a batched message: {error}") from None
        return self._stamped(text, "")


def _without(text: str, name: str) -> str:
    prefix = f"{name}\x01"
    return "".join(f"{entry}\x02" for entry in text.split("\x02") if entry and not entry.startswith(prefix))


def _number(text: str, name: str) -> int:
    """The whole number of a property, 0 without one. Raises BrokerError when it is none."""
    value = value_of(text, name) or "0"
    try:
        return int(value)
    except ValueError:
        problem = f"property {name}: {value[:40]!r} is not a whole number"
        raise BrokerError(ResponseCode.MESSAGE_ILLEGAL, problem) from None


def _timer_ms(text: str, clock: SteadyClock) -> int:
    """The second of a message's timer, as `slot_ms` has it. Raises BrokerError for one that is illegal."""
    if value_of(text, names.TIMER_OUT_MS):
        return 0  # it has waited already
    name = next(name for name in _TIMERS if value_of(text, name))
    number = _number(text, name)
    now_ms, ahead_ms = int(clock.now() * 1000), int(clock.ahead * 1000)
    of = {names.TIMER_DELAY_SEC: now_ms + 1000 * number, names.TIMER_DELAY_MS: now_ms + number}
    due_ms = of.get(name, number + ahead_ms)
    return slot_ms(due_ms, now_ms) if due_ms > now_ms else 0


def _limited(text: str) -> bytes:
    try:
        raw = text.encode()
    except UnicodeEncodeError as error:
        raise ProtocolError(f"properties are not encodable as UTF-8: {error}") from None
    if len(raw) > names.LONGEST:
        raise BrokerError(
            ResponseCode.MESSAGE_ILLEGAL,
            f"the message is illegal, maybe msg properties length exceeds {names.LONGEST}: it has {len(raw)} bytes",
        )
    return raw
