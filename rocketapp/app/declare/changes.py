"""`app.pause`, `app.resume` and `app.adjust`: what a call may say, and which topics of which groups it means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    from rocketapp.consumer.modes.sink import Sink

DEFAULT_REASON = "paused by the app"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicChange:
    """One call that changes topics of the app; `kind` is what it was: `pause`, `resume` or `adjust`."""

    kind: str
    topic: str | None
    group: str | None
    reason: str | None = None
    """Of a pause. To resume: None lifts all reasons."""
    place: str
    """`file:line` of the call."""

    def __post_init__(self) -> None:
        for name in ("topic", "group", "reason"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, str) and value):
                self.refuse(f"{name}={value!r} is not a name")

    def refuse(self, problem: str) -> NoReturn:
        raise SetupError(self.place, f"app.{self.kind}: {problem}")

    def named_in(self, plans: Sequence[ConsumedGroup]) -> list[tuple[int, ConsumedTopic]]:
        """The topics that it names, each with the index of its group's plan. Raises SetupError for unknown names."""
        in_group = [
            (at, topic) for at, plan in enumerate(plans) if self.group in (None, plan.group) for topic in plan.topics
        ]
        found = [(at, topic) for at, topic in in_group if self.topic in (None, topic.topic)]
        if self.group is not None and not in_group:
            groups = {plan.group for plan in plans}
            self.refuse(f"no handler of this app is in group {self.group!r}: {nearest(self.group, groups)}")
        if not found:
            topics = {topic.topic for _, topic in in_group}
            where = "" if self.group is None else f" in group {self.group!r}"
            self.refuse(
                f"no handler of this app takes topic {self.topic!r}{where}: {nearest(self.topic or '', topics)}"
            )
        return found


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
        TopicChange.__post_init__(self)
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

    def by_group(self, plans: Sequence[ConsumedGroup]) -> dict[int, dict[str, dict[str, Any]]]:
        """By index of its group's plan, and by topic, what is changed. Raises SetupError for what no topic can have."""
        named = self.named_in(plans)
        found: dict[int, dict[str, dict[str, Any]]] = {at: {} for at, _ in named}
        refused: dict[str, list[str]] = {}
        for name, value in self.values.items():
            reasons = {(at, topic.topic): self._reason(name, topic) for at, topic in named}
            taking = [key for key, reason in reasons.items() if reason is None]
            for at, topic in taking:
                found[at].setdefault(topic, {})[name] = value
            if not taking:
                refused.setdefault("; ".join(dict.fromkeys(filter(None, reasons.values()))), []).append(name)
        if refused:
            self.refuse("; ".join(f"{', '.join(sorted(names))}: {text}" for text, names in refused.items()))
        # What is changed for everything that a group consumes holds for its retries too; those are pulled.
        of_pulls = {name: value for name, value in self.values.items() if name in _OF_PULLS}
        for at, topics in found.items() if self.topic is None and of_pulls else ():
            if not plans[at].topics[0].broadcast:
                topics[retry_topic(plans[at].group)] = of_pulls
        return found

    def _reason(self, name: str, topic: ConsumedTopic) -> str | None:
        """Why this value means nothing for a topic, or None. Raises SetupError for what a handler of it cannot have."""
        if topic.sink is not None and name in _own_limits(topic.sink):
            return f"a plugin consumes {topic.topic}, at its own pace"
        subscriptions = [handler.subscription for handler in topic.handlers]
        value = self.values[name]
        if name == "concurrency" and value is not None:
            for one in subscriptions:
                if (problem := option_problem(name, value, runs_on_loop=one.is_async)) is not None:
                    self.refuse(f"{problem}: {one.handler_name} of {one.topic}")
        reasons = [_reason(name, one) for one in subscriptions]
        return None if None in reasons else reasons[0]


def _own_limits(sink: Sink) -> frozenset[str]:
    """Names of the limits that the plugin decides on itself, in place of settings and options."""
    names = OF_HANDLERS
    if sink.max_messages is not None:
        names |= {"queue_max_messages", "queue_max_span", "topic_max_messages"}
    if sink.max_bytes is not None:
        names |= {"queue_max_bytes", "topic_max_bytes"}
    return names
