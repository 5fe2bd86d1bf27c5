"""Several processes share the tests out by parts: some begin with what computes, the others with what mostly waits.

So neither kind is left to the end, when the cores would stand idle or all processes would compute. Who finds nothing of
his kind any more helps with the other one.
"""

from __future__ import annotations

import os
import re
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

COMPUTING = 1 + len(os.sched_getaffinity(0))
"""Processes for what needs a core: one more than there are, for each of them waits now and then."""
_WAITING = (
    "tests/faults/test_faults",
    "tests/conformance/test_replication",
    "tests/conformance/",
    "tests/faults/test_links",
    "contrib/rocketapp-pyspark/tests/pipeline/test_template",
    "contrib/rocketapp-lake/tests/sink/test_kills",
    "contrib/rocketapp-lake/tests/sink/test_restarts",
    "contrib/rocketapp-sqlalchemy/tests/test_outbox",
    "tests/faults/test_embedded_faults",
    "tests/unit/testing/test_contracts",
    "tests/unit/cli/",
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

    def _split_scope(self, nodeid: str) -> str:
        return shares(nodeid)

    def _reschedule(self, node: Any) -> None:
        if node not in self.registered_collections:
            return  # it replaces another one, and collects yet
        super()._reschedule(node)

    def _assign_work_unit(self, node: Any) -> None:
        waits = int(node.gateway.id.removeprefix("gw")) >= COMPUTING
        own = (part for part, tests in self.workqueue.items() if mostly_waits(next(iter(tests))) is waits)
        self.workqueue.move_to_end(next(own, next(iter(self.workqueue))), last=False)
        super()._assign_work_unit(node)


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
