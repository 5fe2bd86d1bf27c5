"""`rocketapp completion`, and what a shell is told while a user types: apps, topics and groups.

A shell waits for it: the cluster gets a second, and whatever goes wrong, the shell is told nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING

import click

from rocketapp.cli.failure import DONE, CommandError
from rocketapp.cli.options import beginning, overrides_of
from rocketapp.cli.output import say

if TYPE_CHECKING:
    from rocketapp.admin.cluster import AdminCluster
    from rocketapp.app.settings import Settings

SHELLS = ("bash", "zsh", "fish")
LIMIT = 1.0
"""Seconds that the cluster may take."""


def topics(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Those that users create: not those of retries, dead letters and the system."""

    async def names(cluster: AdminCluster) -> list[str]:
        from rocketapp.admin.topics import kinds_of_topics

        return [name for name, kind in (await kinds_of_topics(cluster)).items() if kind == "normal"]

    return beginning(incomplete, _asked(ctx, names))


def groups(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Those that brokers know, without RocketMQ's own."""

    async def names(cluster: AdminCluster) -> list[str]:
        from rocketapp.admin.groups import group_names

        return await group_names(cluster)

    return beginning(incomplete, _asked(ctx, names))


def _asked(ctx: click.Context, work: Callable[[AdminCluster], Coroutine[None, None, list[str]]]) -> list[str]:
    from rocketapp.admin.cluster import AdminCluster
    from rocketapp.cli.cluster import connected
    from rocketapp.cli.loop import run_in_loop
    from rocketapp.cli.settings import read_settings
    from rocketapp.errors import RocketAppError

    async def ask(settings: Settings) -> list[str]:
        async with asyncio.timeout(LIMIT), connected(settings) as client:
            return await work(await AdminCluster.of(client))

    try:
        return run_in_loop(ask(read_settings(overrides_of(ctx.params))), "asyncio")
    except (CommandError, RocketAppError, OSError):
        return []


@click.command(
    "completion", short_help="Print what makes a shell complete commands.", epilog="Example: rocketapp completion bash"
)
@click.argument("shell", type=click.Choice(SHELLS))
def command(*, shell: str) -> int:
    """Print the completion script of SHELL: source it, or keep it where the shell looks for such scripts."""
    from click.shell_completion import get_completion_class

    group = click.get_current_context().find_root().command
    kind = get_completion_class(shell)
    assert kind is not None, f"click completes {shell}"
    say(kind(group, {}, "rocketapp", "_ROCKETAPP_COMPLETE").source())
    return DONE
