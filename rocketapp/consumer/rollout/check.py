"""The subscription check: members of one group that subscribe differently lose nothing while a change is rolled out.

A broker keeps one subscription for a group, and the owner of a queue passes over what it does not pull. So each member
finds out what the others want. In a roll-out every member pulls what any of them wants: its pulls carry that union,
whatever the broker has heard last, and messages that no handler here takes go to a member that wants them
(`rollout.forward`). A member that joins is ready when all others pull the union, so nothing that it wants is passed
over from then on.

Who subscribes what is asked once per kind of member, never per message. Client ids carry a digest of what their process
subscribes: members with the same digest are of one kind, and one of them is asked for all. A member without a digest,
such as Java's, is a kind by itself. That all others pull the union is looked up by one member of a kind, and the others
ask that one. All members together ask about `_A_SECOND` questions a second, however many they are.
"""

from __future__ import annotations

import asyncio
from bisect import bisect
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from rocketapp.client.identity import subscribed_of
from rocketapp.config.consumer import ConsumerConfig
from rocketapp.consumer.handler import ConsumedTopic
from rocketapp.consumer.member import Member
from rocketapp.errors import ConfigError, RocketAppError
from rocketapp.model.event import RollOut, SubscriptionsDiffer
from rocketapp.model.subscription import TAGS, SubscriptionData
from rocketapp.state.roll_out import (
    Difference,
    Known,
    MemberKind,
    Others,
    Wants,
    differences,
    digest_of,
    not_yet_pulled,
    passed_over,
    shared,
    shown,
    summary,
    united,
    wants_of,
)
from rocketapp.wire.requests.running_info import AGREED, LOCKS, PULLED, RunningInfo, encode_pulled

LINGER = 30.0
"""Seconds for which a member that is gone still counts: a broker that restarts forgets all of them for a moment."""
ANSWER_TIMEOUT = 3.0
"""Seconds that members may take to answer, all that are asked at once."""
_AT_ONCE = 32
"""Questions of one member that are under way at the same time."""
_A_SECOND = 100
"""Questions a second that the members of a group ask each other, about: they spread them by their place in the list."""
_LOOK = 0.1
"""Seconds between looks whether the others pull the union, in a small group."""
_PAUSE, _LONGEST_PAUSE = 1.0, 300.0
"""Seconds between questions, and most seconds until members that did not answer are asked again: a broker waits in one
of its few threads for a member that does not answer.
"""
_SILENT = 3
"""Questions without an answer after which it is told."""
_YES = "true"
"""Told by a member of which it is known that all others pull the union."""
_MOST_OF_A_KIND = 3
"""Members of a kind that are asked one after the other when the first does not answer."""
_SHOWN = 4
"""Ways of differing that one line names."""
_MOST_UNMATCHED = 1_000
"""Topics and tags without a taker that are remembered. Beyond that nothing more is asked: such tags are many."""


class SubscriptionCheck:
    """What one member knows of the subscriptions of the others, and what follows for its pulls and heartbeats."""

    def __init__(self, member: Member) -> None:
        subscriptions, retry = member.subscriptions, member.retry_topic
        self._member = member
        self._own: Wants = {topic: data for topic, data in subscriptions.items() if topic != retry}
        self._fixed = {one.topic for one in member.topics if not _widens(one)}
        """Topics whose pulls cannot be widened."""
        if member.broadcast:
            # A broker keeps one subscription for a group, but here each member gets its own messages.
            member.brokers.carried = self._own
        self._retry: tuple[SubscriptionData, ...] = () if retry is None else (subscriptions[retry],)
        self._mode = member.config.subscription_check
        self._limit = member.config.rebalance_interval + 5.0
        self._loop = asyncio.get_running_loop()
        self._kind = _kind_of(member.client_id)
        self._kinds: dict[str, MemberKind] = {}
        """The other members, by the digest of their client id."""
        self._listed: Collection[str] = ()
        """The members that the last list has named."""
        self._asking: asyncio.Task[None] | None = None
        """Asks kinds that have not said what they want."""
        self._told_silent = ""
        self._unmatched: set[tuple[str, bytes | None]] = set()
        """Topics and tags that no member wanted when all were asked, since the members changed."""
        self._settling = asyncio.Lock()
        self._version = max((data.version for data in self._own.values()), default=0)
        self.text: str = ""
        """What is rolled out, in words; empty when all members subscribe alike."""
        self._has_agreed = False
        """All others pull the union, as far as this member or another one of its kind has looked it up."""
        self.others: Others = Others(self._own, ())
        """Who wants what we have no handler for."""
        self.told: tuple[SubscriptionData, ...] = self.own
        """What heartbeats tell: without a roll-out what our handlers want, otherwise what all members want."""

    def __repr__(self) -> str:
        return f"<SubscriptionCheck {self._member.name}: {self.text or 'all members subscribe alike'}>"

    @property
    def rolls_out(self) -> bool:
        """Whether this member takes part in roll-outs."""
        return self._mode == "roll-out"

    @property
    def own(self) -> tuple[SubscriptionData, ...]:
        """The subscriptions of our handlers, and the retry topic."""
        return (*self._own.values(), *self._retry)

    def info(self) -> RunningInfo:
        """What other members are told: what we subscribe and pull, whether all others pull it, whether we lock."""
        properties, held = {LOCKS: str(self._member.has_locks).lower()}, dict[str, str]()
        if (pulled := self._pulled()) is not None:
            for queue, owned in self._member.owned.items():
                if owned.asked is not None and (text := shown(owned.asked)) != pulled.get(queue.topic):
                    held[queue.topic] = text
            properties[PULLED] = encode_pulled({**pulled, **held})
        return RunningInfo(properties | ({AGREED: _YES} if self._has_agreed else {}), self.own)

    def _pulled(self) -> dict[str, str] | None:
        """The expression of our pulls by topic; None when we take part in no roll-out."""
        if not self.rolls_out:
            return None
        own = {topic: data for topic, data in self._own.items() if topic not in self._fixed}
        return {topic: shown(self._member.brokers.carried.get(topic) or data) for topic, data in own.items()}

    # At the start.

    async def compare(self) -> None:
        """Before the first heartbeat: ask the living members. Raises ConfigError if a difference refuses the start."""
        if self._mode == "off":
            return
        self._see(await self._present())
        unknown = self._unknown()
        if not unknown:
            return
        # Members that start together are not in any list yet: chance spreads their questions.
        await asyncio.sleep(self._member.random.random() * self._count() / _A_SECOND)
        await self._ask(unknown)
        found = self._differences()
        if found and self._mode == "refuse":
            mend = "stop that member before, or roll out with consumer.subscription_check = 'roll-out'"
            problem = f"group {self._member.name}: {summary(found, _SHOWN)}: {mend}"
            raise ConfigError("consumer.subscription_check", problem)
        self._tell_silent()
        if self.rolls_out:
            self._adopt()
        elif found:
            lost = "what only one side wants is lost in queues of the other"
            self._differs(f"{summary(found, _SHOWN)}: {lost}")

    async def agreed(self) -> None:
        """After the first heartbeat: wait until every member that can tell pulls the union, or a time limit."""
        if not self.rolls_out:
            return
        # Once more: one that joined at the same time was asked by neither side. From now on each is seen by the other.
        await self._catch_up(await self._present())
        self._tell_narrow()
        until = self._loop.time() + self._limit
        while self._said() and (behind := await self._behind()):
            if self._loop.time() >= until:
                names = ", ".join(sorted(behind))
                self._differs(f"{names} did not take up the union within {self._limit:g} s: messages may be lost there")
                break
            await asyncio.sleep(max(_LOOK, self._count() / _A_SECOND))
            present = await self._present()
            if present:  # otherwise no broker answers, or one has forgotten all members for a moment
                self._forget(set(behind) - present)
            await self._catch_up(present)
        self._has_agreed = True

    async def _behind(self) -> list[str]:
        """The members that do not pull the union yet, or the one that finds this out for our kind."""
        if self._kind in self._kinds:
            first = self._kinds[self._kind].names[0]
            if (info := await self._ask_one(first)) is not None:
                if info.properties.get(AGREED) == _YES and not not_yet_pulled(self._union(), info.pulled):
                    return []
                if first < self._member.client_id:
                    return [first]
        await self._ask_each(self._unsure())
        return self._unsure()

    def _unsure(self) -> list[str]:
        """Members of other kinds that may not pull the union yet; silent ones do not count."""
        union, found = self._union(), list[str]()
        for kind, _ in self._said():
            for name, known in kind.members.items():
                # One that has answered before is waited for, though it does not answer now.
                if not_yet_pulled(union, known.pulls) if known.has_said else kind.pulls and not known.silent:
                    found.append(name)
        return sorted(found)

    def _tell_narrow(self) -> None:
        """Report the queues in which messages are passed over all the same."""
        union, kinds = self._union(), self._said()
        members = [("this app", self._own, self._pulled())] if kinds else []
        for who, wants, pulls in (*members, *((f"member {kind.names[0]}", wants, kind.pulls) for kind, wants in kinds)):
            if topics := passed_over(union, wants, pulls):
                lost = "what only others want is lost in its queues"
                self._differs(f"{who} cannot pull more of {', '.join(topics)} than it wants: {lost}")

    def unknown_to_others(self) -> list[str]:
        """Our topics that some member does not subscribe: its share of their queues waits."""
        return sorted({one.topic for one in self._differences() if not one.theirs})

    # While it runs.

    def look(self, members: frozenset[str]) -> None:
        """Called after each rebalance with the members that it found."""
        if not self.rolls_out or not members:
            return
        now = self._loop.time()
        self._see(members)
        for name, kind in self._kinds.items():
            if name in kind.members and name not in members:
                kind.is_known = False  # without a digest: when it is back, it is perhaps another app
        gone = {
            one for kind in self._kinds.values() for one, known in kind.members.items() if now - known.seen > LINGER
        }
        if gone:
            self._forget(gone)
            self._adopt()
        if self._asking is None and self._unknown():
            rank = bisect(sorted(members), self._member.client_id) / _A_SECOND
            self._asking = self._member.tasks.start(self._ask_unknown(rank), f"subscriptions of {self._member.name}")

    async def _ask_unknown(self, wait: float) -> None:
        """Ask until every kind has said what it wants; less and less often those that do not answer."""
        try:
            while unknown := self._unknown():
                await asyncio.sleep(wait)
                now, wait = self._loop.time(), _PAUSE
                if due := {name for name in unknown & self._kinds.keys() if self._kinds[name].not_before <= now}:
                    await self._ask(due)
                    self._adopt()
                if any(self._kinds[name].tries >= _SILENT for name in self._unknown()):
                    self._tell_silent()
        finally:
            self._asking = None

    def is_wanted(self, topic: str, tag: bytes | None) -> bool:
        """Whether another member wants messages of this tag that no handler here takes, or may want them.

        A process that was frozen, or has missed that a member joined, gets messages that only that member wants: the
        broker hands out by what it heard from the newest one. They are not done before all were asked once more.
        """
        if not self.rolls_out:
            return False
        is_known = (topic, tag) in self._unmatched or len(self._unmatched) >= _MOST_UNMATCHED
        return not is_known or self.others.are_wanting(topic, tag)

    def is_listed(self, member: str | None) -> bool:
        """Whether a broker named this member in the last list."""
        return member in self._listed

    async def takers(self, topic: str, tag: bytes | None) -> list[str]:
        """The members that want such a message. When none is known, unknown members are asked first."""
        if found := self.others.takers(topic, tag):
            return found
        async with self._settling:
            if self.is_wanted(topic, tag) and not self.others.are_wanting(topic, tag):
                await self._catch_up(await self._present())
                if not self._unheard():
                    self._unmatched.add((topic, tag))
        return self.others.takers(topic, tag)

    # Members, their kinds, and questions.

    async def _present(self) -> set[str]:
        return await self._member.brokers.everyone() - {self._member.client_id}

    def _see(self, members: Collection[str]) -> None:
        """Note that these members are present now."""
        self._listed, now, is_news = members, self._loop.time(), False
        for name in members:
            if name != self._member.client_id:
                key = _kind_of(name)
                if (kind := self._kinds.get(key)) is None:
                    is_ours = key == self._kind
                    kind = self._kinds[key] = MemberKind(wants=self._own if is_ours else None, is_known=is_ours)
                if name not in kind.members:
                    is_news, kind.tries, kind.not_before = True, 0, now  # this one may answer for all of its kind
                kind.members.setdefault(name, Known(now)).seen = now
        if is_news:
            self._unmatched.clear()

    def _forget(self, members: Iterable[str]) -> None:
        for name in members:
            kind = self._kinds.get(_kind_of(name), MemberKind())
            kind.members.pop(name, None)
            if not kind.members:
                self._kinds.pop(_kind_of(name), None)
        self._name_others()

    def _count(self) -> int:
        return sum(len(kind.members) for kind in self._kinds.values())

    def _said(self) -> list[tuple[MemberKind, Wants]]:
        """The other kinds that have told what they want, and what; in an order that all members share."""
        said = [(one, one.wants) for name, one in self._kinds.items() if name != self._kind and one.wants is not None]
        return sorted(said, key=lambda each: min(each[0].members))

    def _unknown(self) -> set[str]:
        """Present kinds that have not told yet what they want, or may have changed."""
        unknown = {name: kind for name, kind in self._kinds.items() if not kind.is_known}
        return {name for name, kind in unknown.items() if not kind.members.keys().isdisjoint(self._listed)}

    def _unheard(self) -> bool:
        """Whether some kind, present or recently gone, may want anything: it has not told yet."""
        return any(kind.wants is None and kind.tries < _SILENT for kind in self._kinds.values())

    async def _catch_up(self, present: set[str]) -> None:
        """Ask kinds that have not told yet what they want, except those that do not answer."""
        self._see(present)
        await self._ask({name for name in self._unknown() if not self._kinds[name].tries})
        self._adopt()

    async def _ask(self, kinds: Iterable[str]) -> None:
        """Ask one member of each kind: not the same one as other members do, and another one after a failure."""
        left = set(kinds)
        for _ in range(_MOST_OF_A_KIND):
            chosen: dict[str, str] = {}
            for name in sorted(left & self._kinds.keys()):
                ids = self._kinds[name].names
                chosen[ids[(bisect(ids, self._member.client_id) + self._kinds[name].tries) % len(ids)]] = name
            answered = await self._ask_each(chosen)
            for client_id, name in chosen.items():
                kind = self._kinds.get(name, MemberKind())
                kind.tries = 0 if client_id in answered else kind.tries + 1
                kind.not_before = self._loop.time() + min(2.0**kind.tries, _LONGEST_PAUSE)
                if kind.tries == 0 or len(kind.members) < 2:
                    left.discard(name)
        self._name_others()

    async def _ask_each(self, client_ids: Iterable[str]) -> set[str]:
        """Ask these members. Returns those that answered within `ANSWER_TIMEOUT`."""
        names, room, answered = list(client_ids), asyncio.Semaphore(_AT_ONCE), set[str]()

        async def one(name: str) -> None:
            async with room:
                if await self._ask_one(name) is not None:
                    answered.add(name)

        if names:
            try:
                async with asyncio.timeout(ANSWER_TIMEOUT):
                    await asyncio.gather(*map(one, names))
            except TimeoutError:
                pass
        return answered

    async def _ask_one(self, name: str) -> RunningInfo | None:
        kind = self._kinds.get(_kind_of(name), MemberKind())
        known = kind.members.get(name, Known(0.0))
        known.silent = f"it did not answer within {ANSWER_TIMEOUT:g} s"
        try:
            info = await self._member.brokers.subscribed(name, ANSWER_TIMEOUT)
        except RocketAppError as error:
            known.silent = str(error)
            return None
        # Most members subscribe alike: what each says is neither kept nor compared anew.
        alike = {id(one): one for one in (self._own, *(wants for _, wants in self._said()))}
        kind.wants, kind.pulls = shared(wants_of(info.subscriptions), alike.values()), info.pulled
        kind.is_known = True
        known.pulls, known.has_said, known.silent = info.pulled, True, ""
        return info

    def _name_others(self) -> None:
        """Report what has changed among the members."""
        self.others = Others(self._own, self._kinds.values())

    # What follows from it.

    def _differences(self) -> list[Difference]:
        return [one for kind, wants in self._said() for one in differences(self._own, wants, kind.names)]

    def _union(self) -> Wants:
        return united([self._own, *(wants for _, wants in self._said())])

    def _adopt(self) -> None:
        """Pull, and tell brokers, what all members want."""
        brokers, before, found = self._member.brokers, self._pulled() or {}, self._differences()
        union = self._union() if found else self._own
        every = {topic: SubscriptionData(topic) for topic in self._own}
        is_unheard = self._unheard()
        wide = every if is_unheard else union
        wider = {} if wide is self._own else {topic: wide[topic] for topic in self._own if topic not in self._fixed}
        brokers.carried = {**self._own, **wider} if wider else {}
        after = self._pulled() or {}
        changed = {topic for topic in after if after[topic] != before.get(topic)}
        for queue, owned in self._member.owned.items() if changed else ():
            if queue.topic in changed:
                owned.pull_anew()
        if is_unheard or any(self._kinds[name].tries for name in self._unknown()):
            # A member that stands still filters by what brokers have heard from us, when it goes on: that must be no
            # less than it wants, which nobody knows.
            union = {topic: data if topic in self._fixed else every.get(topic, data) for topic, data in union.items()}
        told = [data for data in self.told if data not in self._retry]
        if {data.topic: shown(data) for data in told} != {topic: shown(data) for topic, data in union.items()}:
            # A broker takes the subscription of the newest version, from any member.
            self._version = max(self._version + 1, int(self._member.clock.now() * 1000))
            self.told = (*(replace(data, version=self._version) for data in union.values()), *self._retry)
            brokers.heartbeat_soon()
        self._tell(found, after)

    def _tell(self, found: list[Difference], pulled: Mapping[str, str]) -> None:
        text = ""
        if found:
            topics = sorted({one.topic for one in found if one.ours})
            parts = [f"{topic} with {pulled[topic]}" for topic in topics if topic in pulled]
            more = f" and {len(parts) - _SHOWN} more" if len(parts) > _SHOWN else ""
            text = summary(found, _SHOWN) + (f"; it pulls {', '.join(parts[:_SHOWN])}{more}" if parts else "")
        if text != self.text:
            self.text = text
            self._member.observe(RollOut(self._member.name, text))

    def _tell_silent(self) -> None:
        silent = [(one, known.silent) for kind in self._kinds.values() for one, known in kind.members.items()]
        names = ", ".join(f"{name} ({why})" for name, why in sorted(silent) if why)
        is_news, self._told_silent = names != self._told_silent, names
        if names and is_news:
            self._differs(f"not asked what they subscribe: {names}")

    def _differs(self, problem: str) -> None:
        self._member.observe(SubscriptionsDiffer(self._member.name, problem))


def _widens(topic: ConsumedTopic) -> bool:
    """Whether pulls of this topic can ask for more than its handlers want."""
    return topic.by_message and topic.data.expression_type == TAGS


def digest(groups: Mapping[str, Iterable[ConsumedTopic]], config: ConsumerConfig) -> str:
    """The digest in a client id of the groups' subscriptions: equal for processes that subscribe alike."""
    wants = [(group, topic.data, _widens(topic)) for group, topics in groups.items() for topic in topics]
    return digest_of(wants, config.subscription_check)


def _kind_of(client_id: str) -> str:
    return subscribed_of(client_id) or client_id
