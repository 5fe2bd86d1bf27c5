"""`app.pause` and `app.resume`: what a call means, and which topics of which groups it names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from rocketapp.app.declare.registry import GroupPlan
from rocketapp.app.settings.values import nearest
from rocketapp.errors import SetupError

DEFAULT_REASON = "paused by the app"


@dataclass(frozen=True, slots=True)
class PauseChange:
    """One call of `app.pause` or `app.resume`."""

    call: str
    """`pause` or `resume`."""
    topic: str | None
    group: str | None
    reason: str | None
    """None lifts all reasons."""
    place: str
    """`file:line` of the call."""

    def __post_init__(self) -> None:
        if self.topic is None and self.group is None:
            raise SetupError(self.place, f"app.{self.call} needs a topic or a group=")
        for name, value in (("topic", self.topic), ("group", self.group), ("reason", self.reason)):
            if value is not None and not (isinstance(value, str) and value):
                raise SetupError(self.place, f"app.{self.call}: {name}={value!r} is not a name")


class Naming(Protocol):
    """A call that names topics."""

    @property
    def call(self) -> str: ...
    @property
    def topic(self) -> str | None: ...
    @property
    def group(self) -> str | None: ...
    @property
    def place(self) -> str: ...


def named_by(change: Naming, plans: Sequence[GroupPlan]) -> list[tuple[int, str]]:
    """The topics that a change names, each with the index of its group's plan. Raises SetupError for unknown names."""
    found = [
        (index, topic.topic)
        for index, plan in enumerate(plans)
        for topic in plan.topics
        if change.group in (None, plan.group) and change.topic in (None, topic.topic)
    ]
    if not found:
        raise SetupError(change.place, f"app.{change.call}: {_unknown(change, plans)}")
    return found


def _unknown(change: Naming, plans: Sequence[GroupPlan]) -> str:
    groups = {plan.group for plan in plans}
    if change.group is not None and change.group not in groups:
        return f"no handler of this app is in group {change.group!r}: {nearest(change.group, groups)}"
    topics = {topic.topic for plan in plans for topic in plan.topics if change.group in (None, plan.group)}
    place = "" if change.group is None else f" in group {change.group!r}"
    return f"no handler of this app takes topic {change.topic!r}{place}: {nearest(change.topic or '', topics)}"
