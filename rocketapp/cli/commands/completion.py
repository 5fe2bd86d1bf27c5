"""`rocketapp completion`: what makes a shell complete commands, options and their choices."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from rocketapp.cli.failure import DONE
from rocketapp.cli.output import say

SHELLS = ("bash", "zsh", "fish")


@click.command("completion", epilog="Example: rocketapp completion bash")
@click.argument("shell", type=click.Choice(SHELLS))
def command(*, shell: str) -> int:
    """Print what makes a SHELL complete commands. Source it, or keep it where the shell looks for such scripts."""
    group = click.get_current_context().find_root().command
    kind = get_completion_class(shell)
    assert kind is not None, f"click completes {shell}"
    say(kind(group, {}, "rocketapp", "_ROCKETAPP_COMPLETE").source())
    return DONE
