"""What the members of a group subscribe, compared: what differs, what they want together, and who wants a message.

While a changed subscription is rolled out, members of one group want different messages. Each queue has one owner, so
every member has to pull what any of them wants, and what its own handlers do not take goes to a member that wants it.

A subscription of another kind than tags cannot be united with others: it is compared as text alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from itertools import chain
from math import inf

from rocketapp.model.names import is_retry_topic
from rocketapp.model.subscription import ALL_TAGS, TAGS, SubscriptionData

Wants = Mapping[str, SubscriptionData]
"""By topic; the retry topic is not among them."""


Pulls = Mapping[str, str] | None
"""By topic what a member pulls, of topics whose pulls it can widen; None: it takes part in no roll-out."""


def wants_of(subscriptions: Iterable[SubscriptionData]) -> Wants:
    """What a member's answer means. Retry topics are every member's."""
    return {data.topic: data for data in subscriptions if not is_retry_topic(data.topic)}


@dataclass(slots=True)
class Known:
    """What is known of one other member."""

    seen: float
    """When a list of members last named it."""
    pulls: Pulls = None
    """What it pulled when it was asked: members of one kind take up the union one by one."""
    has_said: bool = False
    silent: str = ""
    """Why it did not say what it subscribes, when it was last asked."""


@dataclass(slots=True)
class MemberKind:
    """Other members that subscribe alike: what one of them says holds for all."""

    members: dict[str, Known] = field(default_factory=dict)
    """By client id."""
    wants: Wants | None = None
    """None: none of them has said it yet."""
    is_known: bool = False
    """Whether `wants` holds; otherwise the members are to be asked."""
    pulls: Pulls = None
    """What one of them pulled: all can widen the same topics."""
    tries: int = 0
    """How many of them did not answer since one has."""
    not_before: float = -inf
    """When it is asked again after nobody has answered."""

    @property
    def names(self) -> list[str]:
        """The client ids of its members, sorted."""
        return sorted(self.members)


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


def differences(mine: Wants, theirs: Wants, members: Sequence[str]) -> list[Difference]:
    """Every topic on which these members, which subscribe alike, do not agree with us, sorted."""
    if theirs is mine:
        return []
    first, more = members[0], len(members) - 1
    pairs = [(topic, theirs.get(topic), mine.get(topic)) for topic in sorted(mine.keys() | theirs.keys())]
    return [
        Difference(first, topic, shown(other), shown(own), more)
        for topic, other, own in pairs
        if other is None or own is None or _meaning(other) != _meaning(own)
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


def not_yet_pulled(union: Wants, pulls: Pulls) -> list[str]:
    """The topics of which a member with these pulls does not pull yet what all want, and will."""
    return [topic for topic, pulled in (pulls or {}).items() if topic in union and not _covers(pulled, union[topic])]


def passed_over(union: Wants, wants: Wants, pulls: Pulls) -> list[str]:
    """The topics of which a member pulls only what it wants itself: in its queues the rest is lost."""
    fixed = wants.keys() - (pulls or {}).keys()
    return [topic for topic, data in wants.items() if topic in fixed and _meaning(data) != _meaning(union[topic])]


def _covers(pulled: str, wanted: SubscriptionData) -> bool:
    """Whether pulls of this expression bring all that is wanted: one may still count a member that has just left."""
    if wanted.expression_type != TAGS or not wanted.tags:
        return pulled == shown(wanted)
    return pulled == ALL_TAGS or wanted.tags.issubset(pulled.split(" || "))


class Others:
    """Which members want messages that we have no handler for."""

    def __init__(self, mine: Wants, kinds: Iterable[MemberKind]) -> None:
        self._mine = mine
        self._kinds = [(kind, kind.wants) for kind in kinds if kind.wants is not None and kind.wants is not mine]

    def name(self, topic: str, tag: bytes | None) -> bool:
        """Whether any member subscribes this very tag, and not all tags."""
        return any(data.tags for _, data in self._wanting(topic, tag))

    def are_wanting(self, topic: str, tag: bytes | None) -> bool:
        """Whether any member wants it."""
        return any(True for _ in self._wanting(topic, tag))

    def takers(self, topic: str, tag: bytes | None) -> list[str]:
        """The client ids of the members that want a message of this topic and tag, which no handler of ours takes.

        Sorted: every owner of a queue asks the same member first, which calls its handler once.
        """
        return sorted(chain.from_iterable(kind.members for kind, _ in self._wanting(topic, tag)))

    def _wanting(self, topic: str, tag: bytes | None) -> Iterator[tuple[MemberKind, SubscriptionData]]:
        own, name = self._mine.get(topic), None if tag is None else tag.decode("utf-8", "replace")
        for kind, wants in self._kinds:
            data = wants.get(topic)
            is_alike = data is None or data.expression_type != TAGS or (own and _meaning(own) == _meaning(data))
            if data is not None and not is_alike and (not data.tags or name in data.tags):
                yield kind, data
