"""The front door of plugin authors: its names are a decision in a diff, and our own plugins use no other."""

from __future__ import annotations

import ast
import subprocess
import sys

import rocketapp
from rocketapp import plugin
from tests.architecture.source import PACKAGE, shown

NAMES = {
    # What every plugin begins with.
    "hookimpl", "option", "Surface", "Subscription", "Start", "PluginError",
    # Tables of settings that `Surface.options` takes, beside the plugin's own.
    "AppConfig", "ClientConfig", "ConsumerConfig", "ProducerConfig",
    # Around handlers.
    "Wrapper", "SyncCall", "AsyncCall", "Predicate", "Park", "CheckedArgument",
    # Around publishing.
    "Sending", "PublishCall", "PublishWrapper", "Outgoing",
    # Bodies, and copies of messages.
    "Codec", "RESERVED_PROPERTIES",
    # Handling a message once, and what the engine makes of an outcome.
    "IdempotencyStore", "Claim", "Answer", "MarkState", "CLAIMED", "DONE", "is_done", "outcome_of",
    "outcomes_of", "keys_of", "MakeKey",
    # Work in the background.
    "Tasks",
    # Which queues a member gets, and where offsets are kept.
    "Allocation", "OffsetStore", "Taken",
    # Sinks.
    "Sink", "NewWriter", "QueueWriter", "QueueSession", "QueueStart", "StoredRecords",
    # What the app does now.
    "AppSnapshot", "GroupSnapshot", "HandlerSnapshot", "QueueSnapshot", "LeaseState", "HandlerStats",
    # What a plugin measures.
    "Metric", "ReadMetrics", "metrics_of",
    # Modules: every event, and what receives them; the names of metrics, labels and attributes.
    "events", "conventions",
}  # fmt: skip
MOST = 60


def test_the_names_are_these_and_no_others() -> None:
    assert set(plugin.__all__) == NAMES
    assert len(plugin.__all__) == len(NAMES) <= MOST
    assert not NAMES & set(rocketapp.__all__), "each name has one home"
    own = {name for name in vars(plugin) if not name.startswith(("_", "@")) and name != "annotations"}
    assert own == NAMES


def test_our_own_plugins_use_the_front_door_alone() -> None:
    """What an outsider cannot reach, they do not use: `rocketapp.plugin`, public names, and files of their room."""
    found = []
    for file in sorted((PACKAGE / "plugins").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                is_public = node.module == "rocketapp" and all(
                    alias.name in {*rocketapp.__all__, "plugin"} for alias in node.names
                )
                modules = [] if is_public else [str(node.module)]
            else:
                continue
            found += [
                f"{shown(file)}:{node.lineno}: {module}"
                for module in modules
                if module.split(".")[0] == "rocketapp"
                and module != "rocketapp.plugin"
                and not f"{module}.".startswith("rocketapp.plugins.")
            ]
    assert found == []


def test_the_package_is_imported_without_the_front_door() -> None:
    program = "import sys, rocketapp; print('rocketapp.plugin' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout == "False\n"
