"""What the data source raises on purpose. Each text names the option that mends it."""

from __future__ import annotations

from rocketapp import RocketAppError


class OptionError(RocketAppError, ValueError):
    """An option is unknown, missing, malformed or does not fit the others."""


class DataLossError(RocketAppError):
    """Messages that were asked for are not there any more, or not yet again."""

    def __init__(self, place: str, problem: str) -> None:
        super().__init__(place, problem)
        self.place, self.problem = place, problem

    def __str__(self) -> str:
        return f"{self.place}: {self.problem}. With failOnDataLoss=false such messages are skipped"


class RecordError(RocketAppError):
    """A stored message cannot be decoded."""


class WriteError(RocketAppError):
    """A message was not written, or perhaps not written."""
