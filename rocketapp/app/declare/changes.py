"""`app.pause`, `app.resume` and `app.adjust`: checks their arguments and finds the topics and groups that they mean."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, TypedDict

from rocketapp.app.declare.options import option_problem
from rocketapp.app.declare.registry import ConsumedGroup
from rocketapp.app.settings import checked, fields_of, nearest
from rocketapp.config.consumer import ConsumerConfig
from rocketapp.errors import SetupError
from rocketapp.model.names import retry_topic
from rocketapp.model.subscription import ORDERLY, POLLED, POPPED, Subscription, kind_of

if TYPE_CHECKING:
    from rocketapp.consumer.handler import ConsumedTopic

DEFAULT_REASON = "paused by the app"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicChange:
    """One call of `pause`, `resume` or `adjust`, as `kind` says.

    reason: for pause; in resume None lifts all reasons.
    place: `file:line` of the call.
    """

    kind: str
    topic: str | None
    group: str | None
    cluster: str | None = None
    reason: str | None = None
    place: str

    def refuse(self, problem: str) -> NoReturn:
        raise SetupError(self.place, f"app.{self.kind}: {problem}")

    def named_in(self, plans: Sequence[ConsumedGroup]) -> list[tuple[int, ConsumedTopic]]:
        """The topics that the call names, each with the index of its group's plan.

        Raises SetupError for unknown names.
        """
        found, where = [(at, topic) for at, plan in enumerate(plans) for topic in plan.topics], ""
        names: dict[str, Callable[[int, ConsumedTopic], str]] = {
            "cluster": lambda at, topic: plans[at].cluster,
            "group": lambda at, topic: plans[at].group,
            "topic": lambda at, topic: topic.topic,
        }
        for what, name_of in names.items():
            if (name := getattr(self, what)) is not None:
                known = {name_of(*one) for one in found}
                found = [one for one in found if name_of(*one) == name]
                if not found:
                    self.refuse(f"no handler of this app has the {what} {name!r}{where}: {nearest(str(name), known)}")
                where += f" in {what} {name!r}"
        return found


class AdjustOptions(TypedDict, total=False):
    """What `app.adjust` changes. None: as it was declared or set at the start.

    concurrency: messages that each handler has in flight at once; of `orderly=True`, queues that call it at once.
    rate: messages a second that each handler with `rate=` starts in this process.
    batch: most messages of a batch, of each handler with `batch=`.
    queue_max_messages: unfinished messages of one queue that stop its pulls.
    queue_max_bytes: unfinished bytes of one queue that stop its pulls.
    queue_max_span: offsets from the lowest unfinished message to the highest pulled one that stop the pulls of a queue.
    topic_max_messages: unfinished messages of one topic that stop its pulls, divided among its queues here; 0: no
        limit.
    topic_max_bytes: unfinished bytes of one topic that stop its pulls, divided in the same way; 0: no limit.
    pull_interval: seconds between an answer with messages and the next pull of its queue.
    pull_batch_size: most messages asked for in one pull.
    pop_batch_size: most messages asked for in one pop (`mode="pop"`).
    pop_max_messages: messages of one topic and broker in flight that stop its pops.
    pop_invisible_time: seconds for which popped messages are hidden from other members; renewed while they are in
        flight.
    """

    concurrency: int | None
    rate: float | None
    batch: int | None
    queue_max_messages: int | None
    queue_max_bytes: int | None
    queue_max_span: int | None
    topic_max_messages: int | None
    topic_max_bytes: int | None
    pull_interval: float | None
    pull_batch_size: int | None
    pop_batch_size: int | None
    pop_max_messages: int | None
    pop_invisible_time: float | None


NAMES: frozenset[str] = frozenset(AdjustOptions.__annotations__)
OF_HANDLERS: frozenset[str] = frozenset({"concurrency", "rate", "batch"})
_OF_POPS = frozenset({"pop_batch_size", "pop_max_messages", "pop_invisible_time"})
_OF_PULLS = NAMES - OF_HANDLERS - _OF_POPS


def _limits(one: Subscription) -> set[str]:
    """The names of the limits that one handler has."""
    kind, found = kind_of(one), {"concurrency", "queue_max_bytes"}
    if kind is POPPED:
        found |= _OF_POPS
    else:
        found |= _OF_PULLS
    if kind in (ORDERLY, POLLED):  # its messages end in their order
        found.discard("queue_max_span")
    declared = {"rate": one.rate, "batch": one.batch}
    return found | {name for name, said in declared.items() if said is not None}


def _limits_of(topic: ConsumedTopic) -> set[str]:
    """The names of the limits that any handler of a topic has, without those that a plugin decides itself."""
    found = set[str]().union(*(_limits(handler.subscription) for handler in topic.handlers))
    if (sink := topic.sink) is not None:
        found -= OF_HANDLERS
        if sink.max_messages is not None:
            found -= {"queue_max_messages", "queue_max_span", "topic_max_messages"}
        if sink.max_bytes is not None:
            found -= {"queue_max_bytes", "topic_max_bytes"}
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitChange(TopicChange):
    """One call of `app.adjust`."""

    kind: str = "adjust"
    values: Mapping[str, Any]

    def __post_init__(self) -> None:
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
        """The changed limits by index of the group's plan, then by topic.

        Raises SetupError for a limit that no topic has.
        """
        named = self.named_in(plans)
        self._check_concurrency(topic for _, topic in named if topic.sink is None)
        limits = {(at, topic.topic): _limits_of(topic) for at, topic in named}
        found: dict[int, dict[str, dict[str, Any]]] = {at: {} for at, _ in named}
        for (at, topic), its in limits.items():
            if taken := {name: value for name, value in self.values.items() if name in its}:
                found[at][topic] = taken
        known = set[str]().union(*limits.values())
        if lacking := sorted(self.values.keys() - known):
            mend = f"change {', '.join(sorted(known))}" + (", or declare it" if OF_HANDLERS & {*lacking} else "")
            self.refuse(f"{self.topic or self.group or 'the app'} has no {', '.join(lacking)}: {mend}")
        # What is changed for everything that a group consumes holds for its retries too; those are pulled.
        of_pulls = {name: value for name, value in self.values.items() if name in _OF_PULLS}
        for at, topics in found.items() if self.topic is None and of_pulls else ():
            if not plans[at].topics[0].broadcast:
                topics[retry_topic(plans[at].group)] = of_pulls
        return found

    def _check_concurrency(self, topics: Iterable[ConsumedTopic]) -> None:
        """Raises SetupError for more concurrent calls than a handler can have."""
        value = self.values.get("concurrency")
        for one in (handler.subscription for topic in topics for handler in topic.handlers if value is not None):
            if (problem := option_problem("concurrency", value, runs_on_loop=one.is_async)) is not None:
                self.refuse(f"{problem}: {one.handler_name} of {one.topic}")
