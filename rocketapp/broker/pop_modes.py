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
        self._modes: dict[tuple[str, str], RequestMode] = {}
        self.dirty: bool = False

    def __repr__(self) -> str:
        return f"<RequestModes of {len(self._modes)} topics and groups>"

    def of(self, topic: str, group: str) -> RequestMode:
        return self._modes.get((topic, group)) or RequestMode(topic, group, PULL)

    def put(self, mode: RequestMode) -> None:
        self._modes[mode.topic, mode.group] = mode
        self.dirty = True

    def begin_save(self, now: float) -> Callable[[], dict[str, Any]]:
        """Return what makes the saved form of the present table, which has no version."""
        self.dirty, form = False, self.to_json()
        return lambda: form

    def to_json(self) -> dict[str, Any]:
        topics: dict[str, dict[str, Any]] = {}
        for (topic, group), mode in sorted(self._modes.items()):
            topics.setdefault(topic, {})[group] = msgspec.to_builtins(mode)
        return {"messageRequestModeMap": topics}

    def load(self, saved: Mapping[str, Any]) -> None:
        """Load a saved form. Raises ValueError when it is not one."""
        try:
            modes = [
                RequestMode.of(mode)
                for groups in (saved.get("messageRequestModeMap") or {}).values()
                for mode in groups.values()
            ]
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"messageRequestModeMap: {type(error).__name__} {error}") from None
        self._modes = {(mode.topic, mode.group): mode for mode in modes}
        self.dirty = False
