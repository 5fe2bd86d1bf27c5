"""The subscription guard: members of one group that subscribe differently lose nothing while a change is rolled out.

A broker keeps one subscription for a group, and the owner of a queue passes over what it does not pull. So the guard
asks the other members what they want. With `roll-out` every member pulls what any of them wants: its pulls carry that
union, whatever the broker has heard last. Messages that no handler here takes go to a member that wants them
(`consumer.wanted_elsewhere`). A member that joins is ready when all others pull the union, so nothing that it wants is
passed over from then on. It looks again after each rebalance, never per message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from rocketapp.config.consumer import ConsumerConfig
from rocketapp.consumer.group.asked_members import Asked, AskedMembers
from rocketapp.consumer.group.brokers import Brokers
from rocketapp.consumer.group.unwanted import Unwanted
from rocketapp.errors import ConfigError
from rocketapp.model.event import Observe, RollOut, SubscriptionsDiffer
from rocketapp.model.subscription import SubscriptionData
from rocketapp.state.roll_out import (
    Difference,
    Others,
    Said,
    Wants,
    differences,
    not_yet_pulled,
    passed_over,
    shared,
    shown,
    summary,
    united,
)
from rocketapp.tasks import Tasks

LINGER = 30.0
"""Seconds for which a member that is gone still counts: a broker that restarts forgets all of them for a moment."""
_LOOK = 0.1
"""Seconds between looks whether the others pull the union."""
_PAUSES = 1.0, 2.0, 4.0
"""Seconds until members that did not answer are asked again."""
_LONG_PAUSE = 300.0
"""The same after that: a broker waits in one of its few threads for a member that does not answer."""
_SHOWN = 4
"""Ways of differing that one line names."""


class SubscriptionGuard:
    """What one member knows of the subscriptions of the others, and what follows for its pulls and heartbeats."""

    def __init__(
        self,
        *,
        group: str,
        own: Mapping[str, SubscriptionData],
        retry: SubscriptionData | None,
        fixed: Collection[str],
        asked: AskedMembers,
        brokers: Brokers,
        config: ConsumerConfig,
        now: Callable[[], float],
        observe: Observe,
        tasks: Tasks,
        start_over: Callable[[Collection[str]], None],
        is_shared: bool,
    ) -> None:
        """`own`: what our handlers want, without the `retry` topic (None: the group has none).

        `fixed`: topics whose pulls cannot be widened. Without `is_shared` each member consumes
        every queue, and its pulls say what it wants.

        `now()`: seconds since 1970. `start_over(topics)` discards the pulls of these topics that are under way.
        """
        self._group, self._own, self._fixed = group, dict(own), frozenset(fixed)
        if not is_shared:
            # A broker keeps one subscription for a group, but here each member gets its own messages.
            brokers.carry(self._own)
        self._retry: tuple[SubscriptionData, ...] = () if retry is None else (retry,)
        self._asked, self._brokers, self._observe, self._tasks = asked, brokers, observe, tasks
        self._mode, self._limit = config.subscription_guard, config.rebalance_interval + 5.0
        self._now, self._start_over = now, start_over
        self._loop = asyncio.get_running_loop()
        self._said: dict[str, Said] = {}
        self._seen: dict[str, float] = {}
        """By member the loop's time when a list last named it."""
        self._silent: dict[str, str] = {}
        self._not_before: dict[str, float] = {}
        """By member that does not answer the loop's time when it is asked again."""
        self._absent: set[str] = set()
        """Members that the last list did not name: they are asked again when they are back, perhaps as another app."""
        self._asking: set[str] = set()
        """Members that are being asked, beside each other: one that does not answer must not keep others waiting."""
        self._version = max((data.version for data in own.values()), default=0)
        self._text = ""
        self.others: Others = Others(own, ())
        """Who wants what we have no handler for."""
        self.unwanted: Unwanted | None = Unwanted(self._ask_newcomers) if self._mode == "roll-out" else None
        """What no member wants; None: nothing is handed over, so it does not matter."""
        self.told: tuple[SubscriptionData, ...] = (*self._own.values(), *self._retry)
        """What heartbeats tell: without a roll-out what our handlers want, otherwise what all members want."""

    def __repr__(self) -> str:
        return f"<SubscriptionGuard {self._group}: {self._text or 'all members subscribe alike'}>"

    @property
    def own(self) -> tuple[SubscriptionData, ...]:
        """What our handlers want, and the retry topic."""
        return (*self._own.values(), *self._retry)

    @property
    def pulled(self) -> dict[str, str] | None:
        """By topic the expression of our pulls; None when we take part in no roll-out."""
        if self._mode != "roll-out":
            return None
        own = {topic: data for topic, data in self._own.items() if topic not in self._fixed}
        return {topic: shown(self._brokers.carried(topic) or data) for topic, data in own.items()}

    @property
    def text(self) -> str:
        """What is rolled out, in words; empty when all members subscribe alike."""
        return self._text

    # At the start.

    async def compare(self) -> None:
        """Before the first heartbeat: ask the living members. Raises ConfigError when the guard refuses."""
        if self._mode == "off":
            return
        members = await self._asked.others()
        if not members:
            return
        self._learn(members, await self._asked.ask(members))
        found = self._differences()
        if found and self._mode == "refuse":
            mend = "stop that member before, or roll out with consumer.subscription_guard = 'roll-out'"
            raise ConfigError("consumer.subscription_guard", f"group {self._group}: {summary(found, _SHOWN)}: {mend}")
        self._tell_silent()
        if self._mode == "roll-out":
            self._adopt()
        elif found:
            lost = "what only one side wants is lost in queues of the other"
            self._observe(SubscriptionsDiffer(self._group, f"{summary(found, _SHOWN)}: {lost}"))

    async def agreed(self) -> None:
        """After the first heartbeat: return when every member that can tell pulls the union, or after a limit."""
        if self._mode != "roll-out":
            return
        # Once more: one that joined at the same time was asked by neither side. From now on each is seen by the other.
        await self._catch_up(await self._asked.others())
        if not self._said:
            return
        self._tell_narrow()
        until = self._loop.time() + self._limit
        while behind := self._behind():
            if self._loop.time() >= until:
                names = ", ".join(sorted(behind))
                problem = f"{names} did not take up the union within {self._limit:g} s: messages may be lost there"
                self._observe(SubscriptionsDiffer(self._group, problem))
                return
            await asyncio.sleep(_LOOK)
            present = await self._asked.others()
            if present:  # otherwise no broker answers, or one has forgotten all members for a moment
                for name in set(behind) - present:
                    del self._said[name]
            await self._catch_up(present, behind)

    def _tell_narrow(self) -> None:
        """Name the queues in which messages are passed over all the same."""
        union, mine = self._union(), Said("this app", self._own, self.pulled)
        for said in (mine, *self._said.values()):
            if topics := passed_over(union, said):
                who = "this app" if said is mine else f"member {said.client_id}"
                lost = "what only others want is lost in its queues"
                problem = f"{who} cannot pull more of {', '.join(topics)} than it wants: {lost}"
                self._observe(SubscriptionsDiffer(self._group, problem))

    async def _catch_up(self, present: set[str], behind: Iterable[str] = ()) -> None:
        """Ask those that have not said yet what they want, and those that were behind."""
        if asked := (self._unknown(present) - self._silent.keys()) | present.intersection(behind):
            self._learn(present, await self._asked.ask(asked))
        self._adopt()

    async def _ask_newcomers(self) -> None:
        await self._catch_up(await self._asked.others())

    def unknown_elsewhere(self) -> list[str]:
        """Our topics that some member does not subscribe: its share of their queues waits."""
        return sorted({one.topic for one in self._differences() if not one.theirs})

    # While it runs.

    def look(self, members: frozenset[str]) -> None:
        """A rebalance has seen these members."""
        if self._mode != "roll-out" or not members:
            return
        now = self._loop.time()
        if self.unwanted is not None and not members <= self._seen.keys():
            self.unwanted.forget()
        self._seen.update(dict.fromkeys(members, now))
        unknown = {name for name in self._unknown(members) if self._not_before.get(name, now) <= now}
        unknown |= self._absent & members
        self._absent = self._said.keys() - members
        gone = [name for name in self._absent if now - self._seen.setdefault(name, now) > LINGER]
        for name in gone:
            del self._said[name]
        self._seen = {name: at for name, at in self._seen.items() if name in members or name in self._said}
        for name in self._silent.keys() - members:
            del self._silent[name]
            self._not_before.pop(name, None)
        if gone:
            self._adopt()
        if unknown := unknown - self._asking:
            self._asking |= unknown
            self._tasks.start(self._look(frozenset(unknown)), f"subscriptions of {self._group}")

    async def _look(self, members: frozenset[str]) -> None:
        try:
            await self._ask_again(members)
        finally:
            self._asking -= members

    async def _ask_again(self, members: frozenset[str]) -> None:
        unknown = set(members)
        for pause in _PAUSES:
            self._learn(unknown, await self._asked.ask(unknown))
            self._adopt()
            unknown = {name for name in unknown if name in self._silent}
            if not unknown:
                return
            await asyncio.sleep(pause)
        self._not_before.update(dict.fromkeys(unknown, self._loop.time() + _LONG_PAUSE))
        self._tell_silent()

    def _tell_silent(self) -> None:
        if self._silent:
            names = ", ".join(f"{name} ({why})" for name, why in sorted(self._silent.items()))
            self._observe(SubscriptionsDiffer(self._group, f"not asked what they subscribe: {names}"))

    def _unknown(self, members: Iterable[str]) -> set[str]:
        return {name for name in members if name not in self._said and name != self._asked.me}

    def _learn(self, members: Iterable[str], asked: Asked) -> None:
        now = self._loop.time()
        self._seen.update(dict.fromkeys(members, now))
        kinds: dict[int, Wants] = {id(one): one for one in (self._own, *(said.wants for said in self._said.values()))}
        for name, said in asked.said.items():
            wants = shared(said.wants, kinds.values())
            kinds[id(wants)] = wants
            self._said[name] = replace(said, wants=wants)
        self._silent.update(asked.silent)
        for name in asked.said:
            self._silent.pop(name, None)

    def _differences(self) -> list[Difference]:
        return [one for _, said in sorted(self._said.items()) for one in differences(self._own, said)]

    def _union(self) -> Wants:
        return united([self._own, *(said.wants for _, said in sorted(self._said.items()))])

    def _behind(self) -> list[str]:
        union = self._union()
        whole = {topic: shown(data) for topic, data in union.items()}
        return [name for name, said in self._said.items() if said.pulls != whole and not_yet_pulled(union, said)]

    def _adopt(self) -> None:
        """Pull and tell what all members want."""
        before, found = self.pulled or {}, self._differences()
        union = self._union() if found else self._own
        own = self._own.items()
        self._brokers.carry(
            {topic: data if topic in self._fixed else union[topic] for topic, data in own} if found else {}
        )
        self.others = Others(self._own, list(self._said.values()))
        after = self.pulled or {}
        if changed := [topic for topic in after if after[topic] != before.get(topic)]:
            self._start_over(changed)
        told = [data for data in self.told if data not in self._retry]
        if {data.topic: shown(data) for data in told} != {topic: shown(data) for topic, data in union.items()}:
            # A broker takes the subscription of the newest version, from any member.
            self._version = max(self._version + 1, int(self._now() * 1000))
            self.told = (*(replace(data, version=self._version) for data in union.values()), *self._retry)
            self._brokers.heartbeat_soon()
        self._tell(found)

    def _tell(self, found: list[Difference]) -> None:
        text = ""
        if found:
            pulled, topics = self.pulled or {}, sorted({one.topic for one in found if one.ours})
            parts = [f"{topic} with {pulled[topic]}" for topic in topics if topic in pulled]
            more = f" and {len(parts) - _SHOWN} more" if len(parts) > _SHOWN else ""
            text = summary(found, _SHOWN) + (f"; it pulls {', '.join(parts[:_SHOWN])}{more}" if parts else "")
        if text != self._text:
            self._text = text
            self._observe(RollOut(self._group, text))
