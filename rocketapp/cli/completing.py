"""What a shell is told while a user types: apps of this folder, topics and groups of the cluster.

A shell waits for it: the cluster gets a second, and whatever goes wrong, the shell is told nothing.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rocketapp.admin.cluster import AdminCluster
    from rocketapp.app.settings.settings import Settings

LIMIT = 1.0
"""Seconds that the cluster may take."""
MOST_FILES = 200
_APP = re.compile(r"^(\w+)\s*(?::[^=\n]+)?=\s*RocketApp\(", re.MULTILINE)


def apps(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """`module` or `module:attribute` of what looks like an app. Nothing is imported for it."""
    here = Path()
    files = [*here.glob("*.py"), *here.glob("[!.]*/*.py")][:MOST_FILES]
    return _beginning(incomplete, (name for file in files for name in _apps_in(file)))


def topics(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Those that users create: not those of retries, dead letters and the system."""

    async def names(cluster: AdminCluster) -> list[str]:
        from rocketapp.admin.topics import kinds_of_topics

        return [name for name, kind in (await kinds_of_topics(cluster)).items() if kind == "normal"]

    return _beginning(incomplete, _asked(ctx, names))


def groups(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Those that brokers know, without RocketMQ's own."""

    async def names(cluster: AdminCluster) -> list[str]:
        from rocketapp.admin.groups import group_names

        return await group_names(cluster)

    return _beginning(incomplete, _asked(ctx, names))


def _apps_in(file: Path) -> list[str]:
    try:
        text = file.read_text("utf-8", "replace")
    except OSError:
        return []
    parts = file.with_suffix("").parts
    module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    return [module if name == "app" else f"{module}:{name}" for name in _APP.findall(text)]


def _asked(ctx: click.Context, work: Callable[[AdminCluster], Coroutine[None, None, list[str]]]) -> list[str]:
    from rocketapp.admin.cluster import AdminCluster
    from rocketapp.cli.cluster import connected
    from rocketapp.cli.failure import CommandError
    from rocketapp.cli.loop import run_in_loop
    from rocketapp.cli.settings import read_settings
    from rocketapp.errors import RocketAppError

    async def ask(settings: Settings) -> list[str]:
        async with asyncio.timeout(LIMIT), connected(settings) as client:
            return await work(await AdminCluster.of(client))

    name_server = ctx.params.get("name_server")
    try:
        settings = read_settings({"client": {"name_server": name_server}} if name_server else {})
        return run_in_loop(ask(settings), "asyncio")
    except (CommandError, RocketAppError, OSError):
        return []


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    return sorted({name for name in names if name.startswith(incomplete)})
