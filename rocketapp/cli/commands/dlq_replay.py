"""`rocketapp dlq replay`: send dead letters out again, at a rate; goes on where it was ended."""

from __future__ import annotations

import contextlib
import random
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rocketapp.cli.asking import cluster_options, run_on, settings_for
from rocketapp.cli.completing import groups
from rocketapp.cli.failure import DONE, FAILED, CommandError
from rocketapp.cli.options import GROUP, Seconds, refuse_empty
from rocketapp.cli.output import print_json, say
from rocketapp.cli.processes.endings import ended_like_ctrl_c
from rocketapp.errors import did_you_mean

if TYPE_CHECKING:
    from rocketapp.admin.cluster import AdminCluster
    from rocketapp.admin.replay_state import ReplayState, StateFile
    from rocketapp.app.settings.settings import Settings
    from rocketapp.producer.producer import Producer

_PLACE = re.compile(r".+:\d+:\d+")
PRODUCER_GROUP = "rocketapp-replay"


@click.command(
    "replay",
    short_help="Send the dead letters of a group out again.",
    epilog="Example: rocketapp dlq replay billing --rate 200",
)
@click.argument("group", type=GROUP, shell_complete=groups)
@click.option("--rate", type=Seconds(), default=100.0, show_default=True, help="Messages a second; 0 for no limit.")
@click.option(
    "--to",
    type=click.Choice(["group", "topic"]),
    default="group",
    show_default=True,
    help="Back to this group alone, or to the topic of each, where every group gets it.",
)
@click.option("--state", "state_file", metavar="FILE", help="Default: beside the folder of the embedded broker.")
@click.option("--skip", "skipped", metavar="PLACE", multiple=True, help="Pass this one over; may be repeated.")
@click.option("--again", is_flag=True, help="All dead letters that are there, whatever was replayed before.")
@cluster_options
def replay_command(
    *,
    group: str,
    rate: float,
    to: str,
    state_file: str | None,
    skipped: tuple[str, ...],
    again: bool,
    name_server: str | None,
    as_json: bool,
) -> int:
    """Send the dead letters of GROUP out again, each once. Ended in any way, the same command goes on."""
    from rocketapp.admin.replay_state import ReplayStateError, StateFile

    refuse_empty({"--state": state_file})
    if state_file and Path(state_file).is_dir():
        raise CommandError(f"--state {state_file}: it is a folder: name a file in it")
    for place in skipped:
        if not _PLACE.fullmatch(place):
            raise CommandError(f"--skip {place}: write a place as rocketapp dlq list shows it, broker-a:0:17")
    settings = settings_for(name_server)
    folder = Path(settings.broker.dir)
    file = StateFile(Path(state_file) if state_file else folder.with_name(f"{folder.name}.replay-{group}.json"))
    named = settings.client.name_server or f"the embedded broker in {folder.resolve()}"
    one = _One(settings, file, named, frozenset(skipped))
    try:
        with file.held(), ended_like_ctrl_c():
            state = run_on(settings, lambda cluster: one.run(cluster, group, rate, to_group=to == "group", again=again))
    except ReplayStateError as error:
        raise CommandError(str(error)) from error
    except KeyboardInterrupt:
        raise CommandError(f"interrupted{one.progress()}", FAILED) from None
    if as_json:
        print_json({"group": group, "replayed": state.replayed, "left": state.left, "state": str(file.path)})
    elif not state.ends:
        say(f"group {group} has no dead letters{one.near}")
    else:
        letters = "dead letter" if state.replayed == 1 else "dead letters"
        say(f"replayed {state.replayed} {letters} of group {group}; {file.path} says so")
    return DONE


class _One:
    """One run of the command."""

    def __init__(self, settings: Settings, file: StateFile, named: str, skip: frozenset[str]) -> None:
        self._settings, self._file, self._named, self._skip = settings, file, named, skip
        self._state: ReplayState | None = None
        self.near = ""
        """The end of the line about a group that never had a dead letter."""

    def progress(self) -> str:
        """How far it came, and how to go on: the end of an error's line."""
        state = self._state
        if state is None:
            return ""
        return (
            f"; {state.replayed} are replayed and {state.left} left: the same command goes on, from {self._file.path}"
        )

    async def run(self, cluster: AdminCluster, group: str, rate: float, *, to_group: bool, again: bool) -> ReplayState:
        from rocketapp.admin.dead_letters import groups_with
        from rocketapp.admin.replay import Replay, begin
        from rocketapp.errors import RocketAppError

        state = await begin(cluster, self._file, group=group, named=self._named, to_group=to_group, again=again)
        self._state = state
        if not state.ends:
            self.near = did_you_mean(group, await groups_with(cluster))
            return state
        producer = self._producer(cluster)
        await producer.start()
        try:
            with _progress(state.left) as told:
                replay = Replay(cluster, producer, state, self._file, rate=rate or None, skip=self._skip, told=told)
                await replay.run()
        except RocketAppError as error:
            raise CommandError(f"{error}{self.progress()}", FAILED) from error
        finally:
            await producer.stop()
        return state

    def _producer(self, cluster: AdminCluster) -> Producer:
        from rocketapp.clock import SystemClock
        from rocketapp.producer.producer import Producer

        return Producer(
            client=cluster.client,
            config=replace(self._settings.producer, retries=0),
            group=PRODUCER_GROUP,
            clock=SystemClock(),
            random=random.Random(),
            observe=lambda event: None,
        )


@contextlib.contextmanager
def _progress(count: int) -> Iterator[Callable[[int], None]]:
    """A bar on stderr, if that is a terminal."""
    if not sys.stderr.isatty() or not count:
        yield lambda done: None
        return
    with click.progressbar(length=count, label="replaying", file=sys.stderr, show_pos=True) as bar:
        yield bar.update
