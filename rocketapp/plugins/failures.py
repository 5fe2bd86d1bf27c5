"""Skips the messages listed in `failures.skip_messages`, by the ids that the log shows."""

from __future__ import annotations

from dataclasses import dataclass

from rocketapp.plugin import Predicate, Surface, hookimpl, option


@dataclass(frozen=True, slots=True, kw_only=True)
class FailuresConfig:
    """The table `[failures]` of the settings."""

    skip_messages: tuple[str, ...] = option((), "Ids of messages that no handler gets: they are done.")


class Failures:
    """Marks a listed message as done without calling its handler: for one that blocks its queue."""

    def __init__(self) -> None:
        self._skipped: frozenset[str] = frozenset()

    @hookimpl
    def options(self) -> tuple[str, type[FailuresConfig]]:
        return "failures", FailuresConfig

    @hookimpl
    def app_setup(self, app: Surface) -> None:
        self._skipped = frozenset(app.options(FailuresConfig).skip_messages)

    @hookimpl
    def message_filter(self) -> Predicate | None:
        skipped = self._skipped
        return (lambda message: message.message_id not in skipped) if skipped else None
