"""The limits of one group that can be changed while it runs: of its pulls and pops, and of its handlers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rocketapp.config.consumer import ConsumerConfig


class Limits:
    """By topic, the settings in force: those of the start, with what was changed since."""

    def __init__(self, config: ConsumerConfig) -> None:
        self.config: ConsumerConfig = config
        """Those of the start."""
        self._by_topic: dict[str, ConsumerConfig] = {}
        self.changed: dict[str, dict[str, float]] = {}
        """By topic what is not as it was declared or set at the start."""

    def __repr__(self) -> str:
        return f"<Limits: {self.changed or 'as they were set'}>"

    def of(self, topic: str) -> ConsumerConfig:
        """The settings of this topic now."""
        return self._by_topic.get(topic, self.config)

    def change(self, topic: str, values: Mapping[str, float | None]) -> None:
        """From now on these values hold for this topic; None: what was declared or set at the start."""
        changed: dict[str, float | None] = {**self.changed.get(topic, {}), **values}
        left = {name: value for name, value in changed.items() if value is not None}
        settings: dict[str, Any] = {name: value for name, value in left.items() if hasattr(self.config, name)}
        settings.pop("concurrency", None)  # of a handler: the setting is what handlers inherit at the start
        self._by_topic[topic] = replace(self.config, **settings)
        if left:
            self.changed[topic] = left
        else:
            self.changed.pop(topic, None)
