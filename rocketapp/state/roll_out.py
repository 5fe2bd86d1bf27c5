"""What the members of a group subscribe, compared: what differs, what they want together, and who wants a message.

While a changed subscription is rolled out, members of one group want different messages. Each queue has one owner, so
every member has to pull what any of them wants, and what its own handlers do not take goes to a member that wants it.

A subscription of another kind than tags cannot be united with others: it is compared as text alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import chain

from rocketapp.model.names import is_retry_topic
from rocketapp.model.subscription import ALL_TAGS, TAGS, SubscriptionData

Wants = Mapping[str, SubscriptionData]
"""By topic; the retry topic is not among them."""


@dataclass(frozen=True, slots=True)
class Said:
    """What one member says of itself."""

    client_id: str
    wants: Wants
    pulls: Mapping[str, str] | None = None
    """By topic the expression that it pulls, of topics whose pulls it can widen; None: it takes part in no roll-out."""
    equals: tuple[str, ...] = ()
    """The client ids of other members that say the same."""


def said_of(client_id: str, subscriptions: Iterable[SubscriptionData], pulls: Mapping[str, str] | None) -> Said:
    """What a member's answer means. Retry topics are every member's."""
    return Said(client_id, {data.topic: data for data in subscriptions if not is_retry_topic(data.topic)}, pulls)


def digest_of(wants: Iterable[tuple[str, SubscriptionData, bool]], mode: str) -> str:
    """Members with equal digests subscribe alike: group, what it wants of a topic, whether its pulls can be widened.

    12 hexadecimal digits; empty when nothing is subscribed. `mode`: how the member checks subscriptions.
    """
    lines = sorted(f"{group}\0{data.topic}\0{shown(data)}\0{widens}" for group, data, widens in wants)
    return sha256("\n".join([mode, *lines]).encode()).hexdigest()[:12] if lines else ""


@dataclass(frozen=True, slots=True)
class Difference:
    """One topic that a member subscribes otherwise than we do."""

    client_id: str
    topic: str
    theirs: str
    """Its expression; empty when it does not subscribe the topic."""
    ours: str
    more: int = 0
    """How many other members do the same."""

    def __str__(self) -> str:
        who, verb, more = f"member {self.client_id}", "subscribes", self.more
        if more:
            who, verb = f"{who} and {more} more", "subscribe"
        if not self.theirs:
            verb = f"do{'es' * (not more)} not subscribe"
            return f"{who} {verb} {self.topic}, this app does, with {self.ours}"
        ours = f"with {self.ours}" if self.ours else "does not subscribe it"
        return f"{who} {verb} {self.topic} with {self.theirs}, this app {ours}"


def summary(found: Sequence[Difference], most: int) -> str:
    """Members that differ in the same way are told together; `most` ways, and how many more there are."""
    ways: dict[tuple[str, str, str], list[Difference]] = {}
    for one in found:
        ways.setdefault((one.topic, one.theirs, one.ours), []).append(one)
    told = [str(replace(alike[0], more=sum(1 + one.more for one in alike) - 1)) for alike in ways.values()]
    rest = f" and {len(told) - most} more" if len(told) > most else ""
    return "; ".join(told[:most]) + rest


def shown(data: SubscriptionData | None) -> str:
    """An expression as it is shown: equal ones look equal."""
    if data is None:
        return ""
    if data.expression_type != TAGS:
        return f"{data.expression_type} {data.expression}"
    return " || ".join(sorted(data.tags)) or ALL_TAGS


def differences(mine: Wants, said: Said) -> list[Difference]:
    """Every topic on which this member and we do not agree, sorted."""
    if said.wants is mine:
        return []
    pairs = [(topic, said.wants.get(topic), mine.get(topic)) for topic in sorted(mine.keys() | said.wants.keys())]
    return [
        Difference(said.client_id, topic, shown(theirs), shown(ours), len(said.equals))
        for topic, theirs, ours in pairs
        if theirs is None or ours is None or _meaning(theirs) != _meaning(ours)
    ]


def shared(wants: Wants, known: Iterable[Wants]) -> Wants:
    """The one of `known` that means the same, otherwise `wants`.

    Most members subscribe alike: with 100 members and 1,000 topics, what each says is neither kept nor compared anew.
    """
    return next((each for each in known if _are_alike(each, wants)), wants)


def _are_alike(one: Wants, other: Wants) -> bool:
    return one.keys() == other.keys() and all(_meaning(data) == _meaning(other[topic]) for topic, data in one.items())


def _meaning(data: SubscriptionData) -> tuple[str, object]:
    return data.expression_type, data.tags if data.expression_type == TAGS else data.expression


def united(wants: Iterable[Wants]) -> dict[str, SubscriptionData]:
    """What all of them want together. Where kinds of expressions differ, the first one's is kept."""
    found: dict[str, SubscriptionData] = {}
    for each in {id(one): one for one in wants}.values():
        for topic, data in each.items():
            known = found.get(topic)
            found[topic] = data if known is None else _both(known, data)
    return found


def _both(one: SubscriptionData, other: SubscriptionData) -> SubscriptionData:
    if one.expression_type != TAGS or other.expression_type != TAGS:
        return one
    tags = one.tags | other.tags if one.tags and other.tags else frozenset[str]()
    expression = " || ".join(sorted(tags)) or ALL_TAGS
    return SubscriptionData(one.topic, expression, tags, max(one.version, other.version))


def not_yet_pulled(union: Wants, said: Said) -> list[str]:
    """The topics of which this member does not pull yet what all want, and will."""
    pulls = (said.pulls or {}).items()
    return [topic for topic, pulled in pulls if topic in union and not _covers(pulled, union[topic])]


def passed_over(union: Wants, said: Said) -> list[str]:
    """The topics of which this member pulls only what it wants itself: in its queues the rest is lost."""
    wants = said.wants.items()
    pulls = said.pulls or {}
    return [topic for topic, data in wants if topic not in pulls and _meaning(data) != _meaning(union[topic])]


def _covers(pulled: str, wanted: SubscriptionData) -> bool:
    """Whether pulls of this expression bring all that is wanted: one may still count a member that has just left."""
    if wanted.expression_type != TAGS or not wanted.tags:
        return pulled == shown(wanted)
    return pulled == ALL_TAGS or wanted.tags.issubset(pulled.split(" || "))


class Others:
    """Which members want messages that we have no handler for."""

    def __init__(self, mine: Wants, others: Sequence[Said]) -> None:
        self._by_topic: dict[str, tuple[dict[bytes, list[Said]], list[Said]]] = {}
        for said in others:
            for topic, data in said.wants.items() if said.wants is not mine else ():
                own = mine.get(topic)
                if data.expression_type != TAGS or (own is not None and _meaning(own) == _meaning(data)):
                    continue
                named, rest = self._by_topic.setdefault(topic, ({}, []))
                for tag in data.tags:
                    named.setdefault(tag.encode(), []).append(said)
                if not data.tags:
                    rest.append(said)

    def __bool__(self) -> bool:
        return bool(self._by_topic)

    def topics(self) -> list[str]:
        """The topics that others subscribe otherwise than we do."""
        return sorted(self._by_topic)

    def are_wanting(self, topic: str, tag: bytes | None) -> bool:
        """Whether any member wants it."""
        known = self._by_topic.get(topic)
        return known is not None and bool(known[1] or (tag is not None and tag in known[0]))

    def takers(self, topic: str, tag: bytes | None) -> list[str]:
        """The client ids of the members that want a message of this topic and tag, which no handler of ours takes.

        Sorted: every owner of a queue asks the same member first, which calls its handler once.
        """
        known = self._by_topic.get(topic)
        if known is None:
            return []
        named, rest = known
        found = named.get(tag, []) + rest if tag is not None else rest
        return sorted(chain.from_iterable((said.client_id, *said.equals) for said in found))
