"""Dead letters that are sent out again: what the command and the page of a running app have in common."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rocketapp.cli.cluster import producer_of, run_on
from rocketapp.cli.failure import FAILED, CommandError

if TYPE_CHECKING:
    from rocketapp.admin.cluster import AdminCluster
    from rocketapp.admin.dead_letters import StoredDeadLetter
    from rocketapp.admin.replay_state import StateFile
    from rocketapp.app.settings import Settings
    from rocketapp.producer.producer import Producer

PRODUCER_GROUP = "rocketapp-replay"


async def found_letter(cluster: AdminCluster, group: str, which: str) -> StoredDeadLetter:
    """The dead letter at this place or with this id. Raises CommandError when there is none."""
    from rocketapp.admin.dead_letters import find

    found = await find(cluster, group, which)
    if found is None:
        raise CommandError(f"group {group} has no dead letter {which}: see rocketapp dlq list {group}", FAILED)
    return found


def place_of(settings: Settings, group: str, state_file: str | None = None) -> tuple[StateFile, str]:
    """Where the state of a group's replays lies, and the cluster that it is of, in words."""
    from rocketapp.admin.replay_state import StateFile
    from rocketapp.app.settings import EMBEDDED

    folder, client = Path(settings.broker.dir), settings.client
    file = StateFile(Path(state_file) if state_file else folder.with_name(f"{folder.name}.replay-{group}.json"))
    is_embedded = not client.name_server or settings.source_of("client", "name_server") == EMBEDDED
    return file, f"the embedded broker in {folder.resolve()}" if is_embedded else client.name_server


def replay_one(
    settings: Settings, group: str, which: str, state_file: str | None = None, *, to_group: bool = True
) -> str:
    """Send one dead letter out again, ahead of the others: what became of it. No replay sends it a second time.

    Raises CommandError.
    """
    from rocketapp.admin.replay import Replay, begin_one
    from rocketapp.admin.replay_state import ReplayStateError

    file, named = place_of(settings, group, state_file)

    async def work(cluster: AdminCluster) -> str:
        letter = await found_letter(cluster, group, which)
        state = await begin_one(cluster, file, group=group, named=named, to_group=to_group)
        failed = state.failed
        async with sending(cluster, settings) as producer:
            is_new = await Replay(cluster, producer, state, file, rate=None).one(letter)
        said = "was replayed" if is_new else "was replayed before: --again replays all that are there"
        if state.failed > failed:
            said += "; it failed again, and is a dead letter with the new reason"
        return f"dead letter {letter.place} of group {group}, {letter.message.message_id}, {said}"

    try:
        with file.held():
            return run_on(settings, work)
    except ReplayStateError as error:
        raise CommandError(str(error)) from error


@contextlib.asynccontextmanager
async def sending(cluster: AdminCluster, settings: Settings) -> AsyncIterator[Producer]:
    """A producer without retries."""
    producer = producer_of(cluster.client, replace(settings.producer, retries=0), PRODUCER_GROUP)
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()
