"""Options of idempotency: table `[idempotency]`."""

from __future__ import annotations

from dataclasses import dataclass

from rocketapp.plugin import option


@dataclass(frozen=True, slots=True, kw_only=True)
class IdempotencyConfig:
    """How marks are kept, and what a second copy does."""

    store: str = option(
        "sqlite", "Where marks are kept, unless a plugin brings its own store.", choices=("sqlite", "memory")
    )
    path: str = option(
        ".rocketapp/idempotency.db", "File of the sqlite store; the processes of one machine may share it.", least=1
    )
    most: int = option(100_000, "Most done messages that the memory store remembers.", least=1)
    lease: float = option(
        30.0, "Seconds after which the message of a process that died may be handled again.", least=1.0
    )
    expiry: float = option(86_400.0, "Seconds for which a handled message is remembered.", least=1.0)
    patience: float = option(
        10.0, "Seconds for which a store that fails is asked again, before the message is retried.", least=0.0
    )
