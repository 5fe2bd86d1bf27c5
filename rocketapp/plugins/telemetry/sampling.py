"""Which messages get a span: decided from a message's bytes, before anything of OpenTelemetry is made."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from rocketapp.plugins.telemetry.config import Sampling
from rocketapp.plugins.trace_context import is_sampled

Gate = Callable[[bytes], bool]
"""Encoded properties -> whether to make a span."""


def gate_of(sampling: Sampling | None, random: Random) -> Gate:
    """None is a sampling that is not known: OpenTelemetry's sampler is always asked, as for one without parents."""
    if sampling is None or not sampling.parent_based:
        return lambda _raw: True
    share, chance = sampling.share, random.random

    def gate(raw: bytes) -> bool:
        sampled = is_sampled(raw)
        return chance() < share if sampled is None else sampled

    return gate
