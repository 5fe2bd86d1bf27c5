"""What a start costs, in seconds of CPU of a quiet machine."""

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

import rocketapp
from rocketapp import Message, RocketApp
from rocketapp.testing import TestApp
from tests.unit.cpu import cheapest

TOPICS = 1_000
MOST_PACKAGES = 16


def cpu_of(*command: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *command], stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.parametrize(
    ("command", "most"),
    [
        (["-c", "import rocketapp"], 0.15),
        (["-c", "from rocketapp import Message, RocketApp; RocketApp('shop')"], 0.27),
        ([str(Path(sys.executable).parent / "rocketapp"), "--help"], 0.3),
    ],
    ids=["import", "an app", "help"],
)
def test_python_has_imported_it_before_one_notices(command: list[str], most: float) -> None:
    assert cheapest(lambda: cpu_of(*command), within=most) < most


def test_the_package_itself_imports_next_to_nothing() -> None:
    """Ctrl-C shows a traceback until the command line takes it."""
    code = "import sys; sys.path.insert(0, sys.argv[1]); import rocketapp; print('typing' in sys.modules)"
    folder = str(Path(rocketapp.__file__).parent.parent)
    words = [sys.executable, "-I", "-S", "-c", code, folder]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout == "False\n"


def start_with(published: int, subscribed: int) -> float:
    """Start an app with these numbers of topics; the seconds of CPU."""
    app = RocketApp("shop")

    async def settle(message: Message) -> None: ...

    for number in range(subscribed):
        app.subscribe(f"orders-{number}")(settle)

    @app.on_startup
    async def publish() -> None:
        for number in range(published):
            await app.publish(f"paid-{number}", b"1")

    began = time.process_time()
    with TestApp(app) as t:
        t.publish("orders-0", b"1")
        t.settle()
        spent = time.process_time() - began
        assert len(t.handled) == 1
        assert len(t.published) == published
    return spent


def test_a_thousand_topics_to_publish_to_and_as_many_to_consume_are_ready_in_six_seconds() -> None:
    assert cheapest(lambda: start_with(TOPICS, TOPICS), within=6.0, tries=3) < 6.0


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
