"""A failed attempt → a retry level, a dead letter, or another try in place.

Attempts are counted by the broker in the record (concurrent) or by us in memory
(orderly): `reconsume_times` failures happened before the attempt that failed now. A dead
letter and a retry that goes through a normal send carry the properties made here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rocketapp.model.names import DELAY_SECONDS, delay_level_at_least

UNLIMITED = -1
"""Retries of an orderly handler that never gives up."""

FIRST_LEVEL = 3
"""Delay level after the first failure: 10 s (Java: 3 + reconsumeTimes)."""

LONGEST_TEXT = 500
"""Characters of a reason that are kept."""
_NO_DELAY = ("DELAY", "REAL_TOPIC", "REAL_QID", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "TRAN_MSG")
"""What would make a broker keep a copy back, or take it for half a transaction."""


@dataclass(frozen=True, slots=True)
class SendBack:
    """To the retry topic; delivered again after `delay` seconds."""

    level: int

    @property
    def delay(self) -> float:
        return float(DELAY_SECONDS[self.level - 1])


@dataclass(frozen=True, slots=True)
class InPlace:
    """The same message again here, after `delay` seconds; nothing behind it starts before."""

    delay: float


@dataclass(frozen=True, slots=True)
class Dead:
    """To the dead letters."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an attempt did not succeed."""

    kind: str
    """Class of the exception, or of the outcome."""
    text: str
    dead: bool = False
    """The handler asked for the dead letters."""
    after: float | None = None
    """Seconds that the handler asked to wait."""

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}" if self.text else self.kind


def concurrent_step(failure: Failure, *, reconsume_times: int, retries: int) -> SendBack | Dead:
    """What becomes of a message that a concurrent handler failed on."""
    if failure.dead or (retries != UNLIMITED and reconsume_times >= retries):
        return Dead()
    if failure.after is not None:
        return SendBack(delay_level_at_least(failure.after))
    return SendBack(min(FIRST_LEVEL + reconsume_times, len(DELAY_SECONDS)))


def orderly_step(failure: Failure, *, reconsume_times: int, retries: int, suspend: float) -> InPlace | Dead:
    """What becomes of a message that an orderly handler failed on; `suspend` seconds unless it says otherwise."""
    if failure.dead or (retries != UNLIMITED and reconsume_times >= retries):
        return Dead()
    return InPlace(suspend if failure.after is None else failure.after)


def max_reconsume_times(retries: int) -> int:
    """What a broker is told as the most retries (Java: 2**31-1 for unlimited)."""
    return 2**31 - 1 if retries == UNLIMITED else retries


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a copy comes from."""

    topic: str
    message_id: str
    reconsume_times: int
    properties: Mapping[str, str]


def retry_properties(origin: Origin, *, level: int, retries: int) -> dict[str, str]:
    """Of a copy that we send to the retry topic ourselves, because the broker did not take the message back."""
    properties = _copied(origin)
    properties["RECONSUME_TIME"] = str(origin.reconsume_times + 1)
    properties["MAX_RECONSUME_TIMES"] = str(max_reconsume_times(retries))
    properties["DELAY"] = str(level)
    return properties


def dead_letter_properties(
    origin: Origin, failure: Failure, *, handler: str, attempts: int, app_version: str
) -> dict[str, str]:
    """Of a dead letter: the message's own, and why it died. Without any delay, so that it dies at once."""
    properties = _copied(origin)
    # One above the maximum: that is what makes a broker store it as a dead letter.
    properties["RECONSUME_TIME"] = str(origin.reconsume_times + 1)
    properties["MAX_RECONSUME_TIMES"] = str(origin.reconsume_times)
    properties["rocketapp.handler"] = clean(handler)
    properties["rocketapp.exception"] = clean(failure.kind)
    properties["rocketapp.reason"] = clean(failure.text)
    properties["rocketapp.attempts"] = str(attempts)
    if app_version:
        properties["rocketapp.app_version"] = clean(app_version)
    return properties


def clean(text: str) -> str:
    """Without control characters, which separate properties, and not longer than a reason should be."""
    whole = text[:LONGEST_TEXT].encode("utf-8", "replace").decode()
    return "".join(" " if ord(sign) < 32 or ord(sign) == 127 else sign for sign in whole)


def _copied(origin: Origin) -> dict[str, str]:
    properties = {name: value for name, value in origin.properties.items() if name not in _NO_DELAY}
    properties.setdefault("ORIGIN_MESSAGE_ID", origin.message_id)
    # Also when the property is there: a retried message keeps the first topic, which is `origin.topic`.
    properties["RETRY_TOPIC"] = origin.topic
    return properties
