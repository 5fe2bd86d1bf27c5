"""What ways are made from when no group stands around them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from rocketapp.config.consumer import ConsumerConfig
from rocketapp.consumer.handler import Handler
from rocketapp.consumer.modes.context import ModeContext
from rocketapp.consumer.retry.attempts import FailedAttempts
from rocketapp.consumer.retry.breaker import Stopping
from tests.unit.consumer.members import member_alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged(ModeContext):
    """Parts of a group with a judge of their own."""

    new_acks: Any = None


def way_context(handlers: Sequence[Handler], *, dead_letters: Any = None, **others: Any) -> ModeContext:
    """`dead_letters` takes messages that failed for good."""
    member = member_alone(handlers, config=ConsumerConfig(suspend=1.0))
    values: dict[str, Any] = {
        "member": member,
        "redelivery": cast(Any, dead_letters),
        "stopping": Stopping(member),
        "attempts": FailedAttempts(member),
    }
    return (Judged if "new_acks" in others else ModeContext)(**{**values, **others})
