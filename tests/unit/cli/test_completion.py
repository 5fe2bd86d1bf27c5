"""A shell that completes commands gets its script, and what that asks for is answered."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.unit.cli.conftest import Start


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_asks_rocketapp(start: Start, shell: str) -> None:
    command = start(environment={"_ROCKETAPP_COMPLETE": f"{shell}_source"})
    command.ends(0)
    assert f"_ROCKETAPP_COMPLETE={shell}_complete" in command.out


def test_bash_takes_the_script() -> None:
    program = f'eval "$(_ROCKETAPP_COMPLETE=bash_source {sys.executable} -m rocketapp)" && complete -p rocketapp'
    run = subprocess.run(["bash", "--norc", "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout == "complete -o nosort -F _rocketapp_completion rocketapp\n"


@pytest.mark.parametrize(
    ("words", "current", "found"),
    [
        ("rocketapp co", "1", ["config"]),
        ("rocketapp new shop --te", "3", ["--template"]),
        ("rocketapp new shop --template p", "4", ["plugin", "pipeline"]),
    ],
)
def test_commands_options_and_choices_are_completed(start: Start, words: str, current: str, found: list[str]) -> None:
    asked = {"_ROCKETAPP_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": current}
    command = start(environment=asked)
    command.ends(0)
    assert command.out.splitlines() == [f"plain,{word}" for word in found]
