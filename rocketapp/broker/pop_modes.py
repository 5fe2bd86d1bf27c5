"""How the members of each group are to ask for the messages of each topic: pull their queues, or pop.

The saved form is Apache's messageRequestMode.json.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from rocketapp.wire.requests.assignment import PULL, RequestMode


class RequestModes:
    """The modes that members or operators have set; all others pull."""

    def __init__(self) -> None:
        self._modes: dict[str, dict[str, RequestMode]] = {}
        self.dirty: bool = False

    def __repr__(self) -> str:
        return f"<RequestModes of {len(self._modes)} topics>"

    def of(self, topic: str, group: str) -> RequestMode:
        return self._modes.get(topic, {}).get(group) or RequestMode(topic, group, PULL)

    def put(self, mode: RequestMode) -> None:
        self._modes.setdefault(mode.topic, {})[mode.group] = mode
        self.dirty = True

    def begin_save(self, now: float) -> Callable[[], dict[str, Any]]:
        """Return what makes the saved form of the present table, which has no version."""
        self.dirty, form = False, self.to_json()
        return lambda: form

    def to_json(self) -> dict[str, Any]:
        return {"messageRequestModeMap": msgspec.to_builtins(self._modes)}

    def load(self, saved: Mapping[str, Any]) -> None:
        """Load a saved form. Raises ValueError when it is not one."""
        table = saved.get("messageRequestModeMap") or {}
        self._modes = msgspec.convert(table, dict[str, dict[str, RequestMode]], strict=False)
        self.dirty = False
