"""What a plugin measures, read when metrics are collected."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rocketapp.model.metric import Metric
from rocketapp.model.snapshot import AppSnapshot

ReadMetrics = Callable[[AppSnapshot], Sequence[Metric]]
"""Says where the metrics of a plugin stand, beside what the app does at that moment."""
