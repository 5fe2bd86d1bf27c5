"""What stands still is named by the log, by `/ready` and by `rocketapp doctor`, in the same words."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from rocketapp.client.calls.locks import lock
from rocketapp.client.instance import ClientInstance
from rocketapp.clock import SystemClock
from rocketapp.config.client import ClientConfig
from rocketapp.model.event import unobserved
from rocketapp.model.message_queue import MessageQueue
from rocketapp.transport.tcp import dial_tcp
from tests.unit.cli.asking import Http
from tests.unit.cli.conftest import PRELUDE
from tests.unit.cli.processes import Command

COMMON = {
    "ROCKETAPP_APP__READY_PATIENCE": "0.5",
    "ROCKETAPP_CONSUMER__HANDLER_WARNING": "1",
    "ROCKETAPP_CONSUMER__CACHE_MAX_BYTES": "4096",
}
HANDLER = """
@app.subscribe("orders", start="first", concurrency=1{options})
async def settle(message):
    {work}
"""


class Case(NamedTuple):
    """One thing that goes wrong."""

    work: str
    words: str
    """What all three have to say."""
    options: str = ""


CASES = {
    "blocked loop": Case(
        "import time; time.sleep(600)",
        r"app:settle has blocked the event loop for \d+ s at app\.py:\d+: nothing else runs; a handler that blocks "
        r"must be a sync function; it stands in settle app\.py:\d+",
    ),
    "hung handler": Case(
        "await asyncio.Event().wait()",
        r"handler app:settle has been running for \d+ s on orders \w+",
    ),
    "dead broker": Case("pass", r"pull failed: [^\n;(]*\w"),
    "full cache": Case(
        "await asyncio.Event().wait()",
        r"flow control: [^\n;]+ limit cache_max_bytes \d+",
    ),
    "lost lock": Case("pass", r"no lock: another member holds its lock", ", orderly=True"),
}


class Sick(NamedTuple):
    """An app with one thing wrong, and its broker."""

    broker: Command
    address: str
    run: Command
    http: Http
    folder: Path


async def take_locks(address: str) -> None:
    """What another member of the group does."""
    client = ClientInstance(
        config=ClientConfig(name_server=address),
        dial=dial_tcp,
        clock=SystemClock(),
        random=Random(),
        observe=unobserved,
    )
    await client.start()
    route = await client.routes.fetch("orders")
    assert route is not None
    queues: list[MessageQueue] = route.readable_queues("orders")
    connection = await client.connection(client.broker_address(queues[0].broker_name) or "")
    assert await lock(connection, "shop", "another", queues, 5.0) == set(queues)
    await client.stop()


@pytest.fixture(scope="module")
def sick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Sick]]:
    """All of them, side by side: each takes its seconds until it is noticed."""
    found: dict[str, Sick] = {}
    commands: list[Command] = []
    try:
        for name, case in CASES.items():
            folder = tmp_path_factory.mktemp(name.replace(" ", "-"))
            (folder / "app.py").write_text(PRELUDE + HANDLER.format(work=case.work, options=case.options))
            broker = Command(folder, "broker", "--memory")
            commands.append(broker)
            address = broker.says(r"serving on (\S+)")[1]
            body = "x" * 3000
            Command(folder, "send", "orders", body, "--count", "8", "--name-server", address).ends(0)
            if name == "lost lock":
                asyncio.run(take_locks(address))
            run = Command(folder, "run", "app", "--http", "127.0.0.1:0", "--name-server", address, environment=COMMON)
            commands.append(run)
            found[name] = Sick(broker, address, run, Http(run), folder)
        found["dead broker"].http.becomes("/ready", 200)
        found["dead broker"].broker.signal(signal.SIGKILL)
        yield found
    finally:
        for command in reversed(commands):
            command.process.kill()
            command.discard()


def words(pattern: str, text: str) -> set[str]:
    """What the pattern finds, with all numbers alike."""
    return {re.sub(r"\d+", "N", match[0]) for match in re.finditer(pattern, text)}


@pytest.mark.parametrize("name", CASES)
def test_it_is_named_by_the_log_by_ready_and_by_doctor_in_the_same_words(sick: dict[str, Sick], name: str) -> None:
    case, one = CASES[name], sick[name]
    told = one.http.becomes("/ready", 503, case.words).text
    one.run.says(case.words)
    doctor = Command(one.folder, "doctor", "app", "--http", one.http.address, "--name-server", one.address, "--json")
    doctor.ends(1)
    said = json.loads(doctor.out)
    finding = next(each for each in said["findings"] if re.search(case.words, each["text"]))
    assert finding["mend"]
    in_doctor = words(case.words, finding["text"])
    assert in_doctor
    assert in_doctor <= words(case.words, told)
    assert in_doctor <= words(case.words, one.run.err)


def test_a_blocked_loop_is_named_before_five_seconds_are_over(sick: dict[str, Sick]) -> None:
    seconds = sick["blocked loop"].run.says(r"has blocked the event loop for (\d+) s")[1]
    assert int(seconds) < 5
