"""Handlers that end the process: the message is found and becomes a dead letter, all others are handled."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rocketapp import SyncClient
from tests.peers.commands import Commands
from tests.unit.cli.brokers import serving_in_memory
from tests.unit.cli.conftest import Start
from tests.unit.cli.processes import LIMIT

WriteApp = Callable[[str], None]

POISON = """
def work(message):
    if message.text() == "poison":
        note("poison", message.attempt)
        os._exit(9)
    note("settled", message.text())
"""
SUBSCRIBE = '@app.subscribe("orders", start="first", retries=RETRIES{more})\n'
CALL = "{kind} settle(message):\n{pause}    work(message)\n"
# Each consume mode with its threads and its retries, in one process: tests/unit/consumer/test_quarantine.py.
KINDS = {
    "async": SUBSCRIBE.format(more="") + CALL.format(kind="async def", pause=""),
    "suspended": SUBSCRIBE.format(more="") + CALL.format(kind="async def", pause="    await asyncio.sleep(0.05)\n"),
    "sync": SUBSCRIBE.format(more="") + CALL.format(kind="def", pause=""),
    "batch": SUBSCRIBE.format(more=", batch=4")
    + "async def settle(messages: list[Message]):\n    for message in messages:\n        work(message)\n",
    "keyed": SUBSCRIBE.format(more=", order_by=lambda message: message.text()")
    + CALL.format(kind="async def", pause=""),
    "orderly": SUBSCRIBE.format(more=", orderly=True") + CALL.format(kind="async def", pause=""),
}


CLOSED = POISON.replace("os._exit(9)", "os.closerange(3, 4096)")
STOPPED = POISON.replace("os._exit(9)", "asyncio.get_running_loop().stop()")
CANCELLED = POISON.replace("os._exit(9)", "[task.cancel() for task in asyncio.all_tasks()]")
OTHER_ENDS = {
    "stops the loop": (STOPPED, "async", "asyncio"),
    "stops the loop, uvloop": (STOPPED, "orderly", "uvloop"),
    "cancels all tasks": (CANCELLED, "async", "asyncio"),
    "cancels all tasks, uvloop": (CANCELLED, "orderly", "uvloop"),
    "closes what is open": (CLOSED, "async", "uvloop"),
    "closes what is open and suspends": (CLOSED, "closed and suspended", "asyncio"),
    "closes what is open and suspends, uvloop": (CLOSED, "closed and suspended", "uvloop"),
    "closes what is open in a thread": (CLOSED, "sync", "asyncio"),
    "closes what is open, in order in a thread": (CLOSED, "orderly in threads", "asyncio"),
    "closes what is open, by key": (CLOSED, "keyed", "asyncio"),
}
MORE_KINDS = {
    "closed and suspended": SUBSCRIBE.format(more="")
    + "async def settle(message):\n    work(message)\n    await asyncio.sleep(0.05)\n",
    "orderly in threads": SUBSCRIBE.format(more=", orderly=True") + CALL.format(kind="def", pause=""),
}


def publish_poison(address: str) -> None:
    with SyncClient(address) as client:
        for number in range(12):
            client.publish("orders", "poison" if number == 6 else f"m{number}", order_key=str(number % 3))


@pytest.fixture
def broker() -> Iterator[str]:
    """The address of a broker, with twelve messages, one of which is poison."""
    # The lock of a dead member lives for a minute otherwise.
    with serving_in_memory(lock_expiry=1.0) as address:
        publish_poison(address)
        yield address


def settled(text: str) -> set[str]:
    return set(re.findall(r"^settled (\S+)$", text, re.MULTILINE))


ALL = {f"m{number}" for number in range(12) if number != 6}


# A process for each attempt, and one for the rest: one retry shows as much of most modes as two.
@pytest.mark.parametrize(("kind", "retries"), [(kind, 2 if kind == "async" else 1) for kind in KINDS])
def test_a_message_that_ends_the_only_process_is_dead_after_its_retries(
    start: Start, write_app: WriteApp, broker: str, folder: Path, kind: str, retries: int
) -> None:
    write_app(f"RETRIES = {retries}\n{POISON}{KINDS[kind]}")
    attempts, out, code = [], "", 9
    while code == 9:
        last = start("run", "app:app", "--name-server", broker, "--exit-when-idle", "0.5")
        code = last.process.wait(LIMIT)
        attempts += re.findall(r"^poison (\d+)$", last.out, re.MULTILINE)
        out += last.out
    assert code == 0, last.err
    # What ran before a queue was locked goes on beside its suspect: some deaths more make sure which it was.
    every = [str(number) for number in range(1, retries + 2)]
    assert attempts == (sorted(attempts) if kind in ("orderly", "keyed") else every)
    assert retries < len(attempts) <= retries + 6
    assert settled(out) == ALL
    assert last.summary[2] == 1
    assert "app:settle" in last.err and "the process died while handling it, " in last.err
    dead = json.loads(Commands(broker).run("tail", "%DLQ%shop", "--from", "first", "--count", "1", "--json").out)
    assert dead["body"] == "poison"
    assert dead["properties"]["rocketapp.attempts"] > str(retries)
    assert dead["properties"]["rocketapp.handler"] == "app:settle"
    assert not list((folder / ".rocketapp" / "crashes").glob("*.hand"))


@pytest.mark.parametrize("end", OTHER_ENDS)
def test_a_message_whose_handler_takes_the_loop_or_the_descriptors_away_ends_the_process(
    start: Start, write_app: WriteApp, broker: str, folder: Path, end: str
) -> None:
    work, kind, loop = OTHER_ENDS[end]
    write_app(f"RETRIES = 0\n{work}{(KINDS | MORE_KINDS)[kind]}")
    out, codes = "", [1]
    while codes[-1] != 0 and len(codes) < 12:
        last = start("run", "app:app", "--name-server", broker, "--exit-when-idle", "0.5", "--loop", loop)
        codes.append(last.process.wait(LIMIT))
        out += last.out
    assert codes[-1] == 0, last.err
    assert "poison 1\n" in out
    assert settled(out) - {"poison"} == ALL  # its handler goes on for a moment
    assert last.summary[2] == 1
    dead = json.loads(Commands(broker).run("tail", "%DLQ%shop", "--from", "first", "--count", "1", "--json").out)
    assert dead["body"] == "poison"
    assert not list((folder / ".rocketapp" / "crashes").glob("*.hand"))


def test_of_several_workers_each_learns_of_the_suspects_of_one_that_died(
    start: Start, write_app: WriteApp, broker: str
) -> None:
    write_app(f"RETRIES = 2\n{POISON}{KINDS['async']}")
    run = start("run", "app:app", "--name-server", broker, "--workers", "2", "--exit-when-idle", "1")
    run.ends(0, within=90)
    attempts = re.findall(r"^poison (\d+)$", run.out, re.MULTILINE)
    # The system closes what a dead process had open one by one: a broker may hear of it before its record is free.
    # Then the next worker does not count that death yet.
    assert attempts == sorted(attempts) and set(attempts) == {"1", "2", "3"}
    assert len(attempts) <= 6
    assert settled(run.out) == ALL
    assert run.summary[2] == 1
