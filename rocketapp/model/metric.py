"""A metric of a plugin, as it stands at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric with one number per set of labels: for OpenTelemetry and Prometheus, beside those of the app."""

    name: str
    """Words with dots: `shop.cache.hits`. What begins with `rocketapp.` and `messaging.` is ours."""
    kind: Literal["counter", "gauge"]
    """A counter only grows while the app runs."""
    unit: str
    """As UCUM says it: `By`, `s`, or a word in braces, such as `{row}`."""
    meaning: str
    samples: tuple[tuple[Mapping[str, str], float], ...] = ()
    """Labels and their number; without any while there is nothing to say."""
