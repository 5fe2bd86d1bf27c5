"""What is subscribed. Conflicts are found here, before anything starts, and both places are named.

One consumer serves one group of one cluster. Its handlers share a subscription per
topic, so they must agree in what belongs to the topic (orderly, start, retries)
and must differ in their tags. Defaults come from settings, which are read at start:
the same rules are then checked once more on complete subscriptions.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rocketapp.app.call.binding import Binding, Call, bind, pull_problem
from rocketapp.app.call.chain import fold_around
from rocketapp.app.call.signature import Kind, Providers
from rocketapp.app.declare.declaration import Declaration
from rocketapp.app.payloads.payloads import Payloads, described
from rocketapp.app.publish.publishing import Publishing
from rocketapp.config.consumer import ConsumerConfig
from rocketapp.errors import SetupError
from rocketapp.model.decisions import Decisions
from rocketapp.model.handler_kind import kind_of
from rocketapp.model.names import DLQ_PREFIX, SCHEDULE_TOPIC, group_problem, retry_topic
from rocketapp.model.policy import unfit_for_concurrent
from rocketapp.model.subscription import ALL_TAGS, SQL92, Subscription, SubscriptionData, parse_tags

if TYPE_CHECKING:
    from rocketapp.consumer.handler import ConsumedTopic

_LONE_BAR = re.compile(r"\s\|(?!\|)|(?<!\|)\|\s")
"""A single `|` with a blank beside it."""
_BROKERS_OWN = frozenset({SCHEDULE_TOPIC, "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"})
"""Topics of delayed messages and of open transactions: a consumer would take the messages too early."""
_SYSTEM_GROUPS = "CID_RMQ_SYS_"
_SHARED = ("orderly", "start", "retries", "mode", "commit")
"""What handlers of one topic and group agree in: it belongs to the topic's queues."""
_REST = ""
"""Stands among the tags for every tag without a handler of its own. It cannot be `*`, which may be a tag."""
_DEFAULTS = ConsumerConfig()
BATCH_WAIT = 0.1
UNNAMED = ""
"""The cluster of `--name-server`."""


@dataclass(frozen=True, slots=True)
class Bound:
    """One handler, from its decorator to the running group: what was written, what it asks for, and what holds."""

    declaration: Declaration
    binding: Binding
    subscription: Subscription
    """Complete: with defaults until the settings are read."""

    def resolved(self, providers: Providers | None, payloads: Payloads) -> Bound:
        """The same with every argument known. Raises SetupError for what is still unknown."""
        return replace(self, binding=self.binding.resolved(providers, payloads))

    def call(self, publishing: Publishing, decisions: Decisions | None = None) -> Call:
        """The function behind what the app and its routers put around it. `resolved` comes first.

        publishing: the running app's. decisions: where a handler that commits by hand says so. Raises SetupError for
        what cannot stand around it.
        """
        call = self.binding.call(self.subscription, publishing, self.declaration.publication, decisions)
        # A polled call has no message that a middleware could see.
        return fold_around(call, self.subscription, self.declaration.around) if self.by_message else call

    @property
    def by_message(self) -> bool:
        """It is called with messages; a polled one pulls them."""
        return kind_of(self.subscription).by_message


@dataclass(frozen=True, slots=True)
class ConsumedGroup:
    """One consumer to be: a group of one cluster with all its topics."""

    cluster: str
    group: str
    topics: tuple[ConsumedTopic, ...]


class Registry:
    """The declarations of one app."""

    def __init__(self, app_name: str, clusters: Iterable[str], providers: Providers | None, payloads: Payloads) -> None:
        self._app_name, self._clusters, self._providers = app_name, frozenset(clusters), providers
        self._payloads = payloads
        self._entries: list[Bound] = []
        self._taken = _Taken()

    def add(self, declaration: Declaration) -> None:
        """Raises SetupError for what cannot work, alone or beside the others; then nothing was added."""
        declaration.check()
        problem = self.cluster_problem(declaration.options.get("cluster"))
        if problem is not None:
            declaration.refuse(problem)
        publication = declaration.publication
        problem = None if publication is None else self.cluster_problem(publication.options.get("cluster"))
        if publication is not None and problem is not None:
            raise SetupError(publication.place, f"publishes: {problem}")
        binding = bind(
            declaration.function,
            batch=declaration.options.get("batch") is not None,
            place=declaration.place,
            providers=self._providers,
            payloads=self._payloads,
            names=declaration.names,
        )
        _check_arguments(declaration, binding)
        own = _complete(declaration, binding, self._app_name, _DEFAULTS)
        _check_alone(own)
        if declaration.enabled:
            self._taken.add(own)
            # The user's local objects are not kept alive.
            self._entries.append(Bound(replace(declaration, names={}), binding, own))

    def cluster_problem(self, cluster: str | None) -> str | None:
        """Why this is not a cluster of the app, or None."""
        if not cluster or cluster in self._clusters:
            return None
        known = ", ".join(sorted(self._clusters)) or "none"
        return f"cluster={cluster!r} is unknown: RocketApp(clusters=...) names {known}"

    def __len__(self) -> int:
        return len(self._entries)

    def subscriptions(self, group: str, consumer: ConsumerConfig) -> list[Subscription]:
        """Every enabled subscription, complete. `group` is for those that name none."""
        taken = _Taken()
        complete = [_complete(one.declaration, one.binding, group, consumer) for one in self._entries]
        for subscription in complete:
            _check_alone(subscription)
        for subscription in complete:
            taken.add(subscription)
        return complete

    def check_bindings(self) -> None:
        """Raises SetupError for an argument that is still unknown when everything is imported."""
        for one in self._entries:
            _check_arguments(one.declaration, one.binding.resolved(self._providers, self._payloads))

    def bound(self, subscriptions: Sequence[Subscription]) -> list[Bound]:
        """The handlers behind `subscriptions()`, with every argument known. Raises SetupError."""
        return [
            replace(entry.resolved(self._providers, self._payloads), subscription=subscription)
            for subscription, entry in zip(subscriptions, self._entries, strict=True)
        ]


def _check_arguments(declaration: Declaration, binding: Binding) -> None:
    """What its kind of handler can be given."""
    _check_payload(declaration, binding)
    _check_context(declaration, binding)
    if binding.arguments is not None:
        problem = pull_problem(binding, is_polled=declaration.is_polled)
        if problem is not None:
            raise SetupError(binding.place, problem)


def _check_payload(declaration: Declaration, binding: Binding) -> None:
    """The handler of a Topic takes its type, if it takes a payload at all."""
    for argument in binding.arguments or ():
        if declaration.kind is not None and argument.kind is Kind.PAYLOAD and argument.type != declaration.kind:
            wanted = described(declaration.kind)
            raise SetupError(
                binding.place,
                f"argument {argument.name!r} is a {argument.type_name}, but topic {declaration.topic!r} holds "
                f"{wanted}: annotate it as {wanted}, or ask for the Message",
            )


def _check_context(declaration: Declaration, binding: Binding) -> None:
    """A handler that commits by hand has something to say so with."""
    kinds = None if binding.arguments is None else {argument.kind for argument in binding.arguments}
    if declaration.options.get("commit") == "manual" and kinds is not None and Kind.CONTEXT not in kinds:
        problem = 'commit="manual": the handler would never commit; add an argument `context: Context`'
        raise SetupError(binding.place, problem)


def _complete(declaration: Declaration, binding: Binding, group: str, consumer: ConsumerConfig) -> Subscription:
    """Settings and defaults stand in for what the declaration leaves open."""
    options = declaration.options
    tags = options.get("tags", ALL_TAGS)
    broadcast, is_in_order = options.get("broadcast", False), options.get("orderly", False) or options.get("order_by")
    # In order, attempts in place need no broker.
    drops = broadcast and not is_in_order
    return Subscription(
        topic=declaration.topic,
        group=options.get("group", group),
        tags=parse_tags(tags),
        expression=tags,
        orderly=options.get("orderly", False) and options.get("order_by") is None,
        order_by=options.get("order_by"),
        mode=options.get("mode", "push"),
        rate=options.get("rate"),
        commit=options.get("commit", "auto"),
        batch=options.get("batch"),
        batch_wait=float(options.get("batch_wait", BATCH_WAIT)),
        concurrency=options.get("concurrency", consumer.concurrency if binding.is_async else consumer.threads),
        concurrency_most=consumer.concurrency_most,
        broadcast=broadcast,
        sql=options.get("sql", ""),
        every=None if options.get("every") is None else float(options["every"]),
        retries=-1 if declaration.is_polled else 0 if drops else options.get("retries", consumer.retries),
        retry=options.get("retry"),
        start=options.get("start", "last"),
        timeout=options.get("timeout"),
        cluster=options.get("cluster", UNNAMED),
        is_async=binding.is_async,
        handler_name=binding.name,
        place=declaration.place,
        idempotent=options.get("idempotent", False),
        publishes="" if declaration.publication is None else declaration.publication.topic_name,
        retries_from="broadcast" if drops else declaration.said_by("retries") or "consumer.retries",
        retry_from=declaration.said_by("retry"),
    )


def _check_alone(one: Subscription) -> None:
    """What depends on the completed group and retries."""
    problem = group_problem(one.group) or _system_problem(one) or _tags_problem(one.expression)
    if problem is None and one.topic == retry_topic(one.group):
        problem = f"{one.topic} is the group's own retry topic, which it consumes anyway: remove this subscription"
    if problem is None and one.topic.startswith(DLQ_PREFIX) and one.retries < 0:
        problem = f"{one.topic}: unlimited retries make no sense for dead letters"
    is_concurrent = not kind_of(one).in_order
    if problem is None and one.retries < 0 and is_concurrent:
        problem = (
            "retries=-1 (unlimited) needs orderly=True: a concurrent message would go round for ever behind the others"
        )
    if problem is None and one.commit == "manual":
        problem = _commit_problem(one)
    if problem is None and one.retry is not None and is_concurrent:
        problem = unfit_for_concurrent(one.retry)
    if problem is not None:
        raise SetupError(one.place, problem)


def _commit_problem(one: Subscription) -> str | None:
    if not one.orderly:
        return 'commit="manual" needs orderly=True: only in order "everything so far" has a meaning'
    if one.idempotent:
        return 'commit="manual" handles a message again after a rollback, and idempotent= skips it then: remove one'
    return None


def _system_problem(one: Subscription) -> str | None:
    """Why this is the broker's own business, or None."""
    if one.topic in _BROKERS_OWN:
        return f"{one.topic} holds what the broker still works on: subscribe the topic that its messages are sent to"
    if one.group.startswith(_SYSTEM_GROUPS):
        return f"group {one.group!r}: names that begin with {_SYSTEM_GROUPS} are the broker's own: choose another"
    return None


def _tags_problem(expression: str) -> str | None:
    """Why these tags, legal to a broker, are not what was meant; or None.

    `a|b` may be the name of one tag; with a blank beside its bar it was meant to be two.
    """
    if any(unicodedata.category(character) == "Cc" for character in expression):
        return f"tags={expression!r} has a control character in it, which no tag has: remove it"
    if _LONE_BAR.search(expression):
        return f"tags={expression!r}: one bar does not separate tags: write || between tags"
    return None


class _Taken:
    """What the subscriptions so far have taken: a new one is compared with its own topic's alone.

    Those of one topic and group agree in what `_SHARED` names, so that one of them speaks for all.
    """

    def __init__(self) -> None:
        self._groups: dict[tuple[str, str], Subscription] = {}
        """(cluster, group) -> its first handler, which says whether it is broadcast."""
        self._topics: dict[tuple[str, str, str], dict[str, Subscription]] = {}
        """(cluster, group, topic) -> tag -> who takes it, in the order of declaration."""

    def add(self, new: Subscription) -> None:
        """Raises SetupError, with both places, when another one of the topic and group contradicts it."""
        first = self._groups.setdefault((new.cluster, new.group), new)
        if new.broadcast != first.broadcast:
            said = f"broadcast={new.broadcast} contradicts broadcast={first.broadcast}"
            why = "a group is broadcast or not as a whole: give this handler a group= of its own"
            other = f"the other is {first.handler_name} at {first.place}"
            raise SetupError(new.place, f"group {new.group!r}: {said}: {why}; {other}")
        owners = self._topics.setdefault((new.cluster, new.group, new.topic), {})
        if owners:
            problem = _beside_poll(owners, new) or _contradiction(owners, new)
            if problem is not None:
                before, why = problem
                where = f"topic {new.topic!r} of group {new.group!r}"
                raise SetupError(new.place, f"{where}: {why}; the other is {before.handler_name} at {before.place}")
        owners.update(dict.fromkeys(new.tags or (_REST,), new))


def _beside_poll(owners: Mapping[str, Subscription], new: Subscription) -> tuple[Subscription, str] | None:
    first = next(iter(owners.values()))
    if kind_of(first).by_message and kind_of(new).by_message:
        return None
    return first, "a polled topic has no other handler in its group: give this one a group= of its own"


def _contradiction(owners: Mapping[str, Subscription], new: Subscription) -> tuple[Subscription, str] | None:
    """The handler of the same topic and group that cannot live beside the new one, and why; or None."""
    first = next(iter(owners.values()))
    for name in _SHARED:
        one, other = getattr(first, name), getattr(new, name)
        if one != other:
            why = f"{name}={other!r} contradicts {name}={one!r}: handlers of one topic and group agree in it"
            return first, why
    if (first.order_by is None) != (new.order_by is None):
        return first, "one has order_by= and the other has not: handlers of one topic and group agree in it"
    if new.sql or first.sql:
        why = "a broker applies one sql= to a topic and group, for one handler: give this one a group= of its own"
        return first, why
    if not new.tags:
        before = owners.get(_REST)
        why = "two handlers take every tag that no other names: name tags= on one, or give it a group= of its own"
        return None if before is None else (before, why)
    twice = min((tag for tag in new.tags if tag in owners), default=None)
    if twice is None:
        return None
    why = f"tag {twice!r} has two handlers, and a message goes to one: for both, give one a group= of its own"
    return owners[twice], why


def union_of(subscriptions: Sequence[Subscription], version: int) -> SubscriptionData:
    """What the handlers of one topic want together, as brokers hear it. `version`: milliseconds since 1970."""
    topic = subscriptions[0].topic
    if sql := subscriptions[0].sql:
        return SubscriptionData(topic, sql, frozenset(), version, SQL92)
    tags = [one.tags for one in subscriptions]
    if not all(tags):
        return SubscriptionData(topic, ALL_TAGS, frozenset(), version)
    union = frozenset().union(*tags)
    return SubscriptionData(topic, " || ".join(sorted(union)), union, version)
