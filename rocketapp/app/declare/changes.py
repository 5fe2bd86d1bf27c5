"""`app.pause`, `app.resume` and `app.adjust`: what a call may say, and which topics of which groups it means."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, TypedDict

from rocketapp.app.declare.options import option_problem
from rocketapp.app.declare.registry import ConsumedGroup
from rocketapp.app.settings import checked, fields_of, nearest
from rocketapp.config.consumer import ConsumerConfig
from rocketapp.errors import SetupError
from rocketapp.model.names import retry_topic
from rocketapp.model.subscription import KEYED, ORDERLY, POLLED, POPPED, Subscription, kind_of

if TYPE_CHECKING:
    from rocketapp.consumer.handler import ConsumedTopic

DEFAULT_REASON = "paused by the app"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicChange:
    """One call that changes topics of the app; `kind` is what it was: `pause`, `resume` or `adjust`."""

    kind: str
    topic: str | None
    group: str | None
    place: str
    """`file:line` of the call."""

    def __post_init__(self) -> None:
        self._check_names(topic=self.topic, group=self.group)

    def _check_names(self, **names: str | None) -> None:
        for name, value in names.items():
            if value is not None and not (isinstance(value, str) and value):
                self.refuse(f"{name}={value!r} is not a name")

    def refuse(self, problem: str) -> NoReturn:
        raise SetupError(self.place, f"app.{self.kind}: {problem}")

    def named_in(self, plans: Sequence[ConsumedGroup]) -> list[tuple[int, str]]:
        """The topics that it names, each with the index of its group's plan. Raises SetupError for unknown names."""
        found = [
            (index, topic.topic)
            for index, plan in enumerate(plans)
            for topic in plan.topics
            if self.group in (None, plan.group) and self.topic in (None, topic.topic)
        ]
        if not found:
            self._refuse_names(plans)
        return found

    def _refuse_names(self, plans: Sequence[ConsumedGroup]) -> NoReturn:
        groups = {plan.group for plan in plans}
        if self.group is not None and self.group not in groups:
            self.refuse(f"no handler of this app is in group {self.group!r}: {nearest(self.group, groups)}")
        topics = {topic.topic for plan in plans for topic in plan.topics if self.group in (None, plan.group)}
        where = "" if self.group is None else f" in group {self.group!r}"
        self.refuse(f"no handler of this app takes topic {self.topic!r}{where}: {nearest(self.topic or '', topics)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseChange(TopicChange):
    """One call of `app.pause` or `app.resume`."""

    reason: str | None
    """None lifts all reasons."""

    def __post_init__(self) -> None:
        if self.topic is None and self.group is None:
            raise SetupError(self.place, f"app.{self.kind} needs a topic or a group=")
        self._check_names(topic=self.topic, group=self.group, reason=self.reason)


class AdjustOptions(TypedDict, total=False):
    """What `app.adjust` changes. None: as it was declared or set at the start."""

    concurrency: int | None
    """Messages that each handler has in flight at once; of `orderly=True`, queues that call it at once."""
    rate: float | None
    """Messages a second that each handler with `rate=` starts in this process."""
    batch: int | None
    """Most messages of a batch, of each handler with `batch=`."""
    queue_max_messages: int | None
    """Unfinished messages of one queue that stop its pulls."""
    queue_max_bytes: int | None
    """Unfinished bytes of one queue that stop its pulls."""
    queue_max_span: int | None
    """Offsets from the lowest unfinished message to the highest pulled one that stop the pulls of a queue."""
    topic_max_messages: int | None
    """Unfinished messages of one topic that stop its pulls, divided among its queues here; 0: no limit."""
    topic_max_bytes: int | None
    """Unfinished bytes of one topic that stop its pulls, divided in the same way; 0: no limit."""
    pull_interval: float | None
    """Seconds between an answer with messages and the next pull of its queue."""
    pull_batch_size: int | None
    """Most messages asked for in one pull."""
    pop_batch_size: int | None
    """Most messages asked for in one pop (`mode="pop"`)."""
    pop_max_messages: int | None
    """Messages of one topic and broker in flight that stop its pops."""
    pop_invisible_time: float | None
    """Seconds for which popped messages are hidden from other members; renewed while they are in flight."""


NAMES: frozenset[str] = frozenset(AdjustOptions.__annotations__)
OF_HANDLERS: frozenset[str] = frozenset({"concurrency", "rate", "batch"})
_OF_POPS = frozenset({"pop_batch_size", "pop_max_messages", "pop_invisible_time"})
_OF_PULLS = NAMES - OF_HANDLERS - _OF_POPS
_NOT_POLLED = frozenset({"queue_max_messages", "queue_max_span", "topic_max_messages", "topic_max_bytes"})
"""What limits no polled topic: its queues hold what their next call gets."""


def _reason(name: str, one: Subscription) -> str | None:
    """Why this limit means nothing for one handler, and what does; None when it holds."""
    kind, text = kind_of(one), None
    if name in ("rate", "batch") and kind is POLLED:
        text = f"{one.topic} is polled, and its calls say how much they pull: change concurrency"
    elif name == "batch" and kind is KEYED:
        text = f"messages of a key of {one.topic} are handled one by one: change concurrency"
    elif name == "rate" and one.rate is None:
        text = f"no handler of {one.topic} has a rate: declare one"
    elif name == "batch" and one.batch is None:
        text = f"no handler of {one.topic} takes batches: declare batch="
    elif name in _OF_POPS and kind is not POPPED:
        text = f"{one.topic} is pulled: change queue_max_messages or pull_batch_size"
    elif name in _OF_PULLS and name != "queue_max_bytes" and kind is POPPED:
        text = f'{one.topic} has mode="pop": change pop_max_messages or pop_batch_size'
    elif name in _NOT_POLLED and kind is POLLED:
        text = f"{one.topic} is polled, and holds what its next call gets: change queue_max_bytes"
    elif name == "queue_max_span" and kind is ORDERLY:
        text = f"messages of {one.topic} end in their order: change queue_max_messages"
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitChange(TopicChange):
    """One call of `app.adjust`."""

    kind: str = "adjust"
    values: Mapping[str, Any]

    def __post_init__(self) -> None:
        self._check_names(topic=self.topic, group=self.group)
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
            problem = option_problem(name, value) if name in OF_HANDLERS else checked(fields[name], value)[1]
            if problem is not None:
                self.refuse(problem if name in OF_HANDLERS else f"{name}={value!r}: {problem}")

    def reason(self, name: str, topic: ConsumedTopic) -> str | None:
        """Why this value means nothing for a topic, or None. Raises SetupError for what a handler of it cannot have."""
        subscriptions = [handler.subscription for handler in topic.handlers]
        value = self.values[name]
        if name == "concurrency" and value is not None:
            for one in subscriptions:
                if (problem := option_problem(name, value, runs_on_loop=one.is_async)) is not None:
                    self.refuse(f"{problem}: {one.handler_name} of {one.topic}")
        reasons = [_reason(name, one) for one in subscriptions]
        return None if None in reasons else reasons[0]


def of_groups(
    change: LimitChange,
    named: Sequence[tuple[int, str]],
    plans: Sequence[ConsumedGroup],
    own: Mapping[tuple[int, str], Collection[str]],
) -> dict[int, dict[str, dict[str, Any]]]:
    """By index of its group's plan, and by topic, what is changed. Raises SetupError for what no topic can have.

    `own`: by index and topic the limits that the plugin which consumes it decides on.
    """
    known = {(index, one.topic): one for index, plan in enumerate(plans) for one in plan.topics}
    found: dict[int, dict[str, dict[str, Any]]] = {index: {} for index, _ in named}
    refused: dict[str, list[str]] = {}
    for name, value in change.values.items():
        reasons = dict[str, None]()
        is_taken = False
        for key in named:
            index, topic = key
            sink = f"a plugin consumes {topic}, at its own pace" if name in own.get(key, ()) else None
            reason = sink or change.reason(name, known[key])
            if reason is None:
                is_taken = True
                found[index].setdefault(topic, {})[name] = value
            else:
                reasons[reason] = None
        if not is_taken:
            refused.setdefault("; ".join(reasons), []).append(name)
    if refused:
        change.refuse("; ".join(f"{', '.join(sorted(names))}: {text}" for text, names in refused.items()))
    _add_retries(change, found, plans)
    return found


def _add_retries(
    change: LimitChange, found: dict[int, dict[str, dict[str, Any]]], plans: Sequence[ConsumedGroup]
) -> None:
    """What is changed for everything that a group consumes holds for its retries too; those are pulled."""
    values = {name: value for name, value in change.values.items() if name in _OF_PULLS}
    if change.topic is not None or not values:
        return
    for index, topics in found.items():
        plan = plans[index]
        if not any(topic.broadcast for topic in plan.topics):
            topics[retry_topic(plan.group)] = values
