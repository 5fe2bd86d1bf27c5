"""`app.adjust`: which limits may be changed while an app runs, and whether a change can be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypedDict

from rocketapp.app.declare.declaration import option_problem
from rocketapp.app.declare.registry import GroupPlan, TopicPlan
from rocketapp.app.settings.values import checked, fields_of, nearest
from rocketapp.config.consumer import ConsumerConfig
from rocketapp.errors import SetupError
from rocketapp.model.handler_kind import POPPED, kind_of


class Limits(TypedDict, total=False):
    """What `app.adjust` changes. None: as it was declared or set at the start."""

    concurrency: int | None
    """Messages that each handler has in hand at once; of `orderly=True`, queues that call it at once."""
    rate: float | None
    """Messages a second that each handler with `rate=` starts in this process."""
    queue_max_messages: int | None
    """Unfinished messages of one queue that stop its pulls."""
    queue_max_bytes: int | None
    """Unfinished bytes of one queue that stop its pulls."""
    queue_max_span: int | None
    """Distance of highest and lowest unfinished offset of a queue that stops its pulls (concurrent)."""
    topic_max_messages: int | None
    """Unfinished messages of one topic that stop its pulls, divided among its queues here; 0: no limit."""
    topic_max_bytes: int | None
    """Unfinished bytes of one topic that stop its pulls, divided in the same way; 0: no limit."""
    pull_interval: float | None
    """Seconds between an answer with messages and the next pull of its queue."""
    pull_batch_size: int | None
    """Most messages asked for in one pull."""


_OF_HANDLERS = frozenset({"concurrency", "rate"})
_NOT_POLLED = frozenset({"queue_max_messages", "queue_max_span", "topic_max_messages", "topic_max_bytes"})
"""What limits no polled topic: its queues hold what their next call gets."""
NAMES: frozenset[str] = frozenset(Limits.__annotations__)


@dataclass(frozen=True, slots=True)
class LimitChange:
    """One call of `app.adjust`."""

    topic: str | None
    group: str | None
    values: Mapping[str, Any]
    place: str
    """`file:line` of the call."""
    call: str = field(default="adjust", init=False)

    def __post_init__(self) -> None:
        for name, value in (("topic", self.topic), ("group", self.group)):
            if value is not None and not (isinstance(value, str) and value):
                self.refuse(f"{name}={value!r} is not a name")
        if not self.values:
            self.refuse(f"give at least one of {', '.join(sorted(NAMES))}")
        fields = fields_of(ConsumerConfig)
        for name, value in self.values.items():
            if name not in NAMES:
                raise TypeError(
                    f"{self.place}: app.adjust takes no {name!r}: {nearest(name, NAMES)}; what it takes may be changed "
                    "while the app runs, everything else is a setting or declared"
                )
            if value is None:
                continue
            problem = option_problem(name, value) if name in _OF_HANDLERS else checked(fields[name], value)[1]
            if problem is not None:
                self.refuse(problem if name in _OF_HANDLERS else f"{name}={value!r}: {problem}")

    def refuse(self, problem: str) -> NoReturn:
        raise SetupError(self.place, f"app.adjust: {problem}")

    def check(self, topics: Sequence[TopicPlan]) -> None:
        """Raises SetupError for a value that none of these topics can have."""
        subscriptions = [bound.subscription for topic in topics for bound in topic.bound]
        concurrency = self.values.get("concurrency")
        for one in subscriptions if concurrency is not None else ():
            if (problem := option_problem("concurrency", concurrency, runs_on_loop=one.is_async)) is not None:
                self.refuse(f"{problem}: {one.handler_name} of {one.topic}")
        if "rate" in self.values and all(one.rate is None for one in subscriptions):
            self.refuse(f"rate={self.values['rate']!r}: no handler of {_named(topics)} has a rate: declare one")
        if not _NOT_POLLED.isdisjoint(self.values) and not any(kind_of(one).by_message for one in subscriptions):
            names = ", ".join(sorted(self.values.keys() & _NOT_POLLED))
            self.refuse(
                f"{names}: {_named(topics)} is polled, and holds what its next call gets: change queue_max_bytes"
            )
        if not _OF_HANDLERS.issuperset(self.values) and all(kind_of(one) is POPPED for one in subscriptions):
            names = ", ".join(sorted(self.values.keys() - _OF_HANDLERS))
            self.refuse(f'{names}: {_named(topics)} has mode="pop": its limits are the settings consumer.pop_*')


def _named(topics: Sequence[TopicPlan]) -> str:
    return ", ".join(sorted({topic.topic for topic in topics}))


def of_groups(
    change: LimitChange, named: Sequence[tuple[int, str]], plans: Sequence[GroupPlan], plugged: frozenset[str]
) -> dict[int, list[str]]:
    """By index of its plan the topics of each group that are changed. Raises SetupError for what cannot be changed.

    `plugged`: topics that plugins consume, at a pace of their own.
    """
    found: dict[int, list[str]] = {}
    for index, topic in named:
        found.setdefault(index, []).append(topic)
    if not _OF_HANDLERS.isdisjoint(change.values) and plugged.issuperset(topic for _, topic in named):
        names = ", ".join(sorted(_OF_HANDLERS & change.values.keys()))
        change.refuse(f"{names}: a plugin consumes {', '.join(sorted(plugged))}, at its own pace")
    change.check([topic for index, names in found.items() for topic in plans[index].topics if topic.topic in names])
    return found
