"""SIGTERM drains: what is in hand is finished and committed, what is not is left for the next run."""

from __future__ import annotations

import signal
import time

import pytest

from tests.conftest import RunApp, on_apache
from tests.peers.java_client import JavaClient

SLOW = """
app = RocketApp("{group}")

@app.subscribe("{topic}", start="first"{options})
{kind} take(message: Message) -> None:
    note("start", message)
    {pause}
    note("done", message)
"""
KINDS = {
    "async": ("async def", "await asyncio.sleep({seconds})", ""),
    "sync": ("def", "threading.Event().wait({seconds})", ""),
    "orderly": ("async def", "await asyncio.sleep({seconds})", ", orderly=True"),
}


def slow(kind: str, topic: str, group: str, seconds: float) -> str:
    """An app whose handler takes so long for each message."""
    definition, pause, options = KINDS[kind]
    parts = {
        "{topic}": topic,
        "{group}": group,
        "{kind}": definition,
        "{pause}": pause.replace("{seconds}", str(seconds)),
        "{options}": options,
    }
    source = SLOW
    for name, value in parts.items():
        source = source.replace(name, value)
    return source


@on_apache
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_in_hand_is_finished_and_never_repeated(
    java: JavaClient, run_app: RunApp, topic: str, group: str, kind: str
) -> None:
    java.create_topic(topic, 2)
    java.send(topic, *({"text": str(n), "queue": n % 2} for n in range(40)))
    app = run_app(slow(kind, topic, group, 0.5))
    app.wait_for_count(1, "start")
    counts = app.stop(within=10)
    started, done = app.texts("start"), app.texts("done")
    assert sorted(started) == sorted(done)
    assert counts.handled == len(done)
    assert java.lag(topic, group) == 40 - len(done)
    # An orderly handler has at most one message of each queue in hand: most of the 40 are left for the second run.
    second = run_app(slow(kind, topic, group, 0.001), "--exit-when-idle", "0.5")
    assert second.wait(within=30).handled == 40 - len(done)
    assert sorted(map(int, done + second.texts("done"))) == list(range(40))


@on_apache
def test_a_drain_that_is_cut_commits_nothing_unfinished(
    java: JavaClient, run_app: RunApp, topic: str, group: str
) -> None:
    java.create_topic(topic, 1)
    java.send(topic, *(str(n) for n in range(5)))
    app = run_app(slow("async", topic, group, 60), "--drain-timeout", "0.3")
    app.wait_for_count(5, "start")
    app.process.send_signal(signal.SIGTERM)
    assert app.ended(within=10) == 1
    assert java.lag(topic, group) == 5
    second = run_app(slow("async", topic, group, 0.001), "--exit-when-idle", "0.5")
    assert second.wait(within=30).handled == 5


@on_apache
def test_a_second_signal_cuts_the_drain(java: JavaClient, run_app: RunApp, topic: str, group: str) -> None:
    java.send(topic, "only one")
    app = run_app(slow("async", topic, group, 60))
    app.wait_for_count(1, "start")
    app.process.send_signal(signal.SIGTERM)
    app.wait_for(lambda: "draining" in app.stderr, within=5, what="it drains")
    app.process.send_signal(signal.SIGTERM)
    assert app.ended(within=10) == 1
    assert java.lag(topic, group) == 1


@on_apache
def test_an_idle_app_does_not_wait_for_its_long_polls(
    java: JavaClient, run_app: RunApp, topic: str, group: str
) -> None:
    java.send(topic, "only one")
    app = run_app(slow("async", topic, group, 0.001), environment={"ROCKETAPP_CONSUMER__LONG_POLL": "20"})
    app.wait_for_count(1, "done")
    began = time.monotonic()
    app.stop()
    assert time.monotonic() - began < 10
