"""What a start costs, in seconds of CPU: a busy machine makes it slower, and not dearer."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from rocketapp import Message, RocketApp
from rocketapp.testing import TestApp

BUSY = 2.0
"""A busy machine has cold caches and slow clocks: this many times the CPU of a quiet one is not our fault."""
TOPICS = 1_000
MOST_PACKAGES = 16


def cpu_of(*command: str) -> float:
    """The cheapest of five runs."""
    spent = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *command], stdout=subprocess.DEVNULL, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(spent)


@pytest.mark.parametrize(
    ("command", "most"),
    [
        (["-c", "import rocketapp"], 0.15),
        (["-c", "from rocketapp import Message, RocketApp; RocketApp('shop')"], 0.15),
        ([str(Path(sys.executable).parent / "rocketapp"), "--help"], 0.25),
    ],
    ids=["import", "an app", "help"],
)
def test_python_has_imported_it_before_one_notices(command: list[str], most: float) -> None:
    assert cpu_of(*command) < most * BUSY


@pytest.mark.parametrize("doing", ["published", "subscribed", "both"])
def test_a_thousand_topics_are_ready_in_three_seconds(doing: str) -> None:
    app = RocketApp("shop")

    async def settle(message: Message) -> None: ...

    for number in range(TOPICS if doing != "published" else 1):
        app.subscribe(f"orders-{number}")(settle)

    @app.on_startup
    async def publish() -> None:
        for number in range(TOPICS if doing != "subscribed" else 0):
            await app.publish(f"paid-{number}", b"1")

    began = time.process_time()
    with TestApp(app) as t:
        t.publish("orders-0", b"1")
        t.settle()
        spent = time.process_time() - began
        assert len(t.handled) == 1
        assert len(t.published) == (TOPICS if doing != "subscribed" else 0)
    assert spent < 3.0 * BUSY, f"{spent:.1f} s of CPU"


def test_the_core_needs_few_packages() -> None:
    needed, open_ = set(), ["rocketapp"]
    while open_:
        name = canonicalize_name(open_.pop())
        if name not in needed:
            needed.add(name)
            wanted = map(Requirement, distribution(name).requires or ())
            open_.extend(one.name for one in wanted if one.marker is None or one.marker.evaluate({"extra": ""}))
    assert "click" in needed
    assert len(needed) <= MOST_PACKAGES, sorted(needed)
