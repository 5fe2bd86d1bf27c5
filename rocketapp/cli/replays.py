"""Dead letters that are sent out again: what the command and the page of a running app have in common."""

from __future__ import annotations

import contextlib
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from rocketapp.admin.cluster import AdminCluster
from rocketapp.admin.dead_letters import StoredDeadLetter, find, groups_with
from rocketapp.admin.replay import Replay, begin
from rocketapp.admin.replay_state import ReplayState, StateFile
from rocketapp.app.settings import EMBEDDED, Settings
from rocketapp.cli.cluster import run_on
from rocketapp.cli.failure import FAILED, CommandError
from rocketapp.clock import SystemClock
from rocketapp.errors import RocketAppError, did_you_mean
from rocketapp.producer.producer import Producer

T = TypeVar("T")
Progress = AbstractContextManager[Callable[[int], None]]
PRODUCER_GROUP = "rocketapp-replay"


async def found_letter(cluster: AdminCluster, group: str, which: str) -> StoredDeadLetter:
    """The dead letter at this place or with this id. Raises CommandError when there is none."""
    found = await find(cluster, group, which)
    if found is None:
        raise CommandError(f"group {group} has no dead letter {which}: see rocketapp dlq list {group}", FAILED)
    return found


class GroupReplay:
    """The dead letters of one group, on their way out again. Every method raises RocketAppError."""

    def __init__(self, settings: Settings, group: str, state_file: str | None = None) -> None:
        """`state_file`: where the state of the group's replays lies; None: beside the embedded broker's folder."""
        folder, client = Path(settings.broker.dir), settings.client
        is_embedded = not client.name_server or settings.source_of("client", "name_server") == EMBEDDED
        self.file: StateFile = StateFile(
            Path(state_file) if state_file else folder.with_name(f"{folder.name}.replay-{group}.json")
        )
        self.state: ReplayState | None = None
        """None until it has begun."""
        self._named = f"the embedded broker in {folder.resolve()}" if is_embedded else client.name_server
        """The cluster, in words."""
        self._settings, self._group = settings, group

    def one(self, which: str) -> str:
        """Send one dead letter out, ahead of the others: what became of it. No replay sends it a second time."""

        async def work(cluster: AdminCluster) -> str:
            letter = await found_letter(cluster, self._group, which)
            state = await begin(cluster, self.file, group=self._group, named=self._named, for_one=True)
            failed = state.failed
            async with self._sending(cluster) as producer:
                is_new = await Replay(cluster, producer, state, self.file, rate=None).one(letter)
            said = "was replayed" if is_new else "was replayed before: --again replays all that are there"
            if state.failed > failed:
                said += "; it failed again, and is a dead letter with the new reason"
            return f"dead letter {letter.place} of group {self._group}, {letter.message.message_id}, {said}"

        return self._run(work)

    def all(
        self, *, rate: float, skip: frozenset[str], again: bool, progress: Callable[[int], Progress]
    ) -> tuple[ReplayState, str]:
        """Send all of them out: what is done in the end, and of a group that has none its nearest name.

        `progress`: of so many, given a number it shows that so many more are done.
        """

        async def work(cluster: AdminCluster) -> tuple[ReplayState, str]:
            group, named = self._group, self._named
            self.state = state = await begin(cluster, self.file, group=group, named=named, again=again)
            if not state.ends:
                return state, did_you_mean(group, await groups_with(cluster))
            try:
                async with self._sending(cluster) as producer:
                    with progress(state.left) as told:
                        replay = Replay(cluster, producer, state, self.file, rate=rate or None, skip=skip, told=told)
                        await replay.run()
            except RocketAppError as error:
                raise CommandError(f"{error}{self.how_far()}", FAILED) from error
            return state, ""

        return self._run(work)

    def how_far(self) -> str:
        """How far it came, and how to go on: the end of an error's line."""
        state = self.state
        if state is None:
            return ""
        return f"; {state.replayed} are replayed and {state.left} left: the same command goes on, from {self.file.path}"

    def _run(self, work: Callable[[AdminCluster], Coroutine[Any, Any, T]]) -> T:
        with self.file.held():
            return run_on(self._settings, work)

    @contextlib.asynccontextmanager
    async def _sending(self, cluster: AdminCluster) -> AsyncIterator[Producer]:
        """A producer without retries."""
        config, clock, chance = replace(self._settings.producer, retries=0), SystemClock(), random.Random()
        producer = Producer(client=cluster.client, config=config, group=PRODUCER_GROUP, clock=clock, random=chance)
        await producer.start()
        try:
            yield producer
        finally:
            await producer.stop()
