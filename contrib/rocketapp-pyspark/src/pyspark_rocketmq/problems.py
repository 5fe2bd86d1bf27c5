"""What the data source raises on purpose. Each text names the option that mends it."""

from __future__ import annotations

from rocketapp import RocketAppError


class OptionError(RocketAppError, ValueError):
    """An option is unknown, missing, malformed or does not fit the others."""


SKIPPED = "such messages are skipped"


class DataLossError(RocketAppError):
    """Messages that were asked for are not there any more, or not yet again.

    `otherwise`: what happens when the query may go on.
    """

    def __init__(self, place: str, problem: str, otherwise: str = SKIPPED) -> None:
        super().__init__(place, problem, otherwise)
        self.place, self.problem, self.otherwise = place, problem, otherwise

    def __str__(self) -> str:
        return f"{self.place}: {self.problem}. With failOnDataLoss=false {self.otherwise}"


class RecordError(RocketAppError):
    """A stored message, or the answer that brings it, cannot be decoded."""


class WriteError(RocketAppError):
    """A message was not written, or perhaps not written."""
