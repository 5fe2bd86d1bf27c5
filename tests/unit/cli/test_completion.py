"""`rocketapp completion`: the scripts are printed, and what they ask for is answered."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rocketapp.cli.main import run_command
from tests.unit.cli.conftest import Send, Start


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_asks_rocketapp(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["completion", shell]) == 0
    assert f"_ROCKETAPP_COMPLETE={shell}_complete" in capsys.readouterr().out


def test_bash_takes_the_script() -> None:
    program = f'eval "$({sys.executable} -m rocketapp completion bash)" && complete -p rocketapp'
    run = subprocess.run(["bash", "--norc", "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout == "complete -o nosort -F _rocketapp_completion rocketapp\n"


@pytest.mark.parametrize(
    ("words", "current", "found"),
    [
        ("rocketapp co", "1", ["config", "completion"]),
        ("rocketapp new shop --te", "3", ["--template"]),
        ("rocketapp new shop --template p", "4", ["plugin", "pipeline"]),
    ],
)
def test_commands_options_and_choices_are_completed(start: Start, words: str, current: str, found: list[str]) -> None:
    asked = {"_ROCKETAPP_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": current}
    command = start(environment=asked)
    command.ends(0)
    assert command.out.splitlines() == [f"plain,{word}" for word in found]


def test_apps_topics_and_groups_are_completed(start: Start, send: Send, folder: Path, memory_broker: str) -> None:
    (folder / "billing.py").write_text("app = RocketApp('billing')\nother: RocketApp = RocketApp('x')\n")
    (folder / "shop").mkdir()
    (folder / "shop/__init__.py").write_text("app = RocketApp('shop')\n")
    for topic in ("orders", "order-events", "stock", "DefaultCluster"):
        send(topic, "x", at=memory_broker)

    def completed(words: str) -> list[str]:
        asked = {
            "_ROCKETAPP_COMPLETE": "zsh_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split()) - 1),
        }
        command = start(environment=asked)
        command.ends(0)
        return command.out.splitlines()[1::3]

    assert completed("rocketapp run b") == ["billing", "billing:other"]
    assert completed("rocketapp doctor s") == ["shop"]
    assert completed(f"rocketapp topic show --name-server {memory_broker} ord") == ["order-events", "orders"]
    assert completed(f"rocketapp topic show --name-server {memory_broker} Def") == []  # RocketMQ's own
    assert completed("rocketapp topic show ord") == []  # nothing names a cluster


def test_another_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["completion", "sh"]) == 2
    assert "'bash', 'zsh', 'fish'" in capsys.readouterr().err
