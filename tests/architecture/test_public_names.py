"""The list of public names: a change here is a decision in a diff."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import rocketapp
import rocketapp.testing

PUBLIC = {
    # What a user writes.
    "RocketApp", "Router", "Message", "Context", "Publisher", "TypeByTag", "TypeByProperty", "Topic", "TopicPublisher",
    "Pull", "SyncPull",
    # What a handler says, and what publishing answers.
    "Retry", "Skip", "DeadLetter", "Pause", "Outcomes", "Policy", "Breaker", "SendResult", "MessageQueue",
    # What talks to a cluster without an app.
    "Client", "SyncClient",
    # What a user catches.
    "RocketAppError", "ConfigError", "SetupError", "TransportError", "BrokerError",
    "NoRouteError", "NoReply", "NotRecalled", "SendRefused", "SendUnknown",
}  # fmt: skip

MOST = 32

OF_TESTING = {
    # What a test makes, and what it gets.
    "TestApp", "TestedApp", "AsyncTestedApp", "StartTestApp", "call", "call_sync", "make_message", "Faults",
    "check_offset_store", "check_idempotency_store", "check_codec", "check_allocation",
    # What the app did.
    "Handled", "Retried", "Dead", "Published", "Done", "Dropped",
    # What a test may catch.
    "StandstillError",
}  # fmt: skip


def test_the_public_names_are_these_and_no_others() -> None:
    assert set(rocketapp.__all__) == PUBLIC
    assert len(PUBLIC) <= MOST
    assert rocketapp.__all__ == sorted(rocketapp.__all__)
    visible = {name for name in dir(rocketapp) if not name.startswith(("_", "@"))}  # pytest adds names with @
    submodules = {path.stem for path in Path(rocketapp.__path__[0]).iterdir()}
    assert visible - submodules - PUBLIC == {"TYPE_CHECKING", "imported"}


def test_the_names_of_the_testing_room_are_these_and_no_others() -> None:
    assert set(rocketapp.testing.__all__) == OF_TESTING
    assert rocketapp.testing.__all__ == sorted(rocketapp.testing.__all__)


@pytest.mark.parametrize(("door", "names"), [(rocketapp, PUBLIC), (rocketapp.testing, OF_TESTING)])
def test_a_name_is_what_checkers_are_told_it_is(door: ModuleType, names: set[str]) -> None:
    tree = ast.parse(Path(str(door.__file__)).read_text())
    told = {
        name.name: statement.module
        for block in tree.body
        if isinstance(block, ast.If)
        for statement in block.body
        if isinstance(statement, ast.ImportFrom)
        for name in statement.names
    }
    assert set(told) == names
    for name, module in told.items():
        assert getattr(door, name) is getattr(importlib.import_module(str(module)), name)


def test_an_unknown_name_is_an_ordinary_error() -> None:
    program = "import rocketapp\ntry:\n    rocketapp.Consumer\nexcept AttributeError as error:\n    print(error)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout == "module 'rocketapp' has no attribute 'Consumer'\n"


def test_importing_the_package_imports_nothing_slow() -> None:
    program = (
        "import sys, rocketapp.cli.main; print(sorted({'asyncio', 'msgspec', 'pluggy', 'dynaconf'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"


def test_an_app_starts_without_what_it_does_not_use() -> None:
    program = (
        "import sys, rocketapp.app.run.lifecycle, rocketapp.app.sources;"
        "print(sorted({'dynaconf', 'opentelemetry', 'click'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"
