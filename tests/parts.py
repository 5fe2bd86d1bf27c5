"""Several processes share the tests out by parts: some compute, the others run what mostly waits.

Those that compute, and a few of the others, have collected all tests: they help with the other kind when nothing of
their own is left. The rest collect only what waits, which saves most of their start.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

COMPUTING = max(2, len(os.sched_getaffinity(0)))
"""Processes for what needs a core of its own."""
_HELPING = 2
"""Processes for what waits that compute at the end."""
_WAITING = (
    "tests/faults/test_faults",
    "tests/conformance/test_replication",
    "tests/conformance/",
    "contrib/rocketapp-pyspark/tests/pipeline/test_template",
    "contrib/rocketapp-lake/tests/sink/test_kills",
    "contrib/rocketapp-lake/tests/sink/test_restarts",
    "contrib/rocketapp-sqlalchemy/tests/test_outbox",
    "tests/faults/test_embedded_faults",
    "tests/faults/test_links",
    "tests/unit/cli/",
    "tests/unit/testing/test_contracts",
)
"""Rooms that mostly wait, the longest first: for brokers, for processes that start and for time that passes."""
_OWN_BROKERS = tuple(
    f"tests/conformance/test_{name}.py"
    for name in ("access_keys", "admin_tool", "moving_up", "old_topics", "registration", "security", "users")
)
"""They ask nothing of the brokers that others share: each is a part of its own."""
_LONG = (
    "contrib/rocketapp-pyspark/",
    "contrib/rocketapp-lake/",
    "tests/simulation/test_seeds",
    "tests/simulation/",
    "tests/templates/",
    "tests/docs/",
    "tests/typing/",
    "tests/property/",
)
"""Rooms that compute for long, the longest first."""
_APPS = tuple(
    f"tests/conformance/test_{name}.py"
    for name in (
        *(
            "admin",
            "batch",
            "broadcast",
            "command_line",
            "keyed",
            "offsets",
            "operators",
            "poll",
            "rebalance",
            "selection",
        ),
        *("roll_out", "send", "stopping", "tags"),
    )
)
"""Conformance mostly of our own apps; `send` is not `send_back`. `operators` changes a setting of the broker while
`admin` must not run."""
_ONE_BY_ONE = (
    "tests/conformance/test_replication",
    *(
        f"tests/unit/cli/test_{name}"
        for name in ("bad_inputs", "crashes", "reload", "run", "service_manager", "workers")
    ),
)
"""Files whose tests share nothing: each goes to the process that is free, so that all end at about the same time."""
_WITH_SPARK = (
    "contrib/rocketapp-pyspark/tests/source/",
    "contrib/rocketapp-pyspark/tests/pipeline/test_pages",
    "contrib/rocketapp-pyspark/tests/sink/",
)
"""They share one session of Spark, or one broker that it reads."""


class ByPart(LoadScopeScheduling):
    """What shares a part that is slow to start stays together, in the order of collection."""

    def __init__(self, config: pytest.Config, log: Any) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def add_node_collection(self, node: Any, collection: Sequence[str]) -> None:
        self.registered_collections[node] = list(collection)

    def schedule(self) -> None:
        every = self.registered_collections
        self.registered_collections = dict(sorted(every.items(), key=lambda node_and_tests: -len(node_and_tests[1])))
        super().schedule()
        self.config.pluginmanager.get_plugin("session").testscollected = len(self.collection or ())

    def _check_nodes_have_same_collection(self) -> bool:
        return True  # of the first one all others have a part

    def _split_scope(self, nodeid: str) -> str:
        return shares(nodeid)

    def _reschedule(self, node: Any) -> None:
        if node not in self.registered_collections:
            return  # it replaces another one, and collects yet
        if self._next_for(node) is None and not node.shutting_down:
            node.shutdown()
        else:
            super()._reschedule(node)

    def _assign_work_unit(self, node: Any) -> None:
        part = self._next_for(node)
        if part is None:
            node.shutdown()
            return
        self.workqueue.move_to_end(part, last=False)
        super()._assign_work_unit(node)

    def _next_for(self, node: Any) -> str | None:
        """The next part of the kind that the process is for; when there is none, any, if it has collected all."""
        waits = _number_of(node.gateway.id) >= COMPUTING
        own = (part for part, tests in self.workqueue.items() if mostly_waits(next(iter(tests))) is waits)
        has_all = len(self.registered_collections[node]) == len(self.collection or ())
        return next(own, next(iter(self.workqueue), None) if has_all else None)


class OnlyWhatWaits:
    """Keeps a process from collecting what computes."""

    @pytest.hookimpl
    def pytest_ignore_collect(self, collection_path: Path, config: pytest.Config) -> bool | None:
        path = collection_path.as_posix().removeprefix(f"{config.rootpath}/")
        if collection_path.is_dir():
            wanted = any(room.startswith(f"{path}/") or f"{path}/".startswith(room) for room in _WAITING)
        else:
            wanted = mostly_waits(path)
        return None if wanted else True


def _number_of(process: str) -> int:
    return int(process.removeprefix("gw"))


def is_to_wait(config: pytest.Config) -> bool:
    """Whether this process of a test run is for what mostly waits alone. One that replaces another one is not."""
    of_run: dict[str, Any] = getattr(config, "workerinput", {"workerid": "gw0", "workercount": 1})
    return COMPUTING + _HELPING <= _number_of(of_run["workerid"]) < of_run["workercount"]


def mostly_waits(nodeid: str) -> bool:
    """Whether a test mostly waits."""
    return nodeid.startswith(_WAITING)


def shares(nodeid: str) -> str:
    """What a test runs together with: a part of conformance, all with Spark, otherwise its file.

    Parts of conformance are about equally long, and each needs one broker: Java members and long waits on Apache
    RocketMQ, the same on the embedded broker, and apps of ours on Apache RocketMQ.
    """
    if nodeid.startswith(_ONE_BY_ONE):
        return nodeid
    if nodeid.startswith("tests/conformance/"):
        if nodeid.startswith(_OWN_BROKERS) and "[embedded]" not in nodeid:
            return nodeid.partition("::")[0]
        if re.search(r"[\[-]embedded[\]-]", nodeid):
            return "the embedded broker"
        return "apps on Apache RocketMQ" if nodeid.startswith(_APPS) else "Apache RocketMQ"
    return "Spark" if nodeid.startswith(_WITH_SPARK) else nodeid.partition("::")[0]


def length(item: pytest.Item) -> tuple[int, bool]:
    """The place of its room among the long ones; after them come all others.

    Within a room those come last that read what long waits have brought, or that fill the end of the run.
    """
    rooms = (*_WAITING, *_LONG)
    place = next((place for place, room in enumerate(rooms) if item.nodeid.startswith(room)), len(rooms))
    return place, "waits" in getattr(item, "fixturenames", ()) or item.nodeid.startswith(_ONE_BY_ONE)
