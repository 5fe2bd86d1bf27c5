"""`rocketapp doctor`: with a running app, with the cluster alone, and with neither."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable
from pathlib import Path

from tests.unit.cli.asking import Http
from tests.unit.cli.conftest import Here, Send, Start

WriteApp = Callable[[str], None]
APP = """
@app.subscribe("orders", start="first")
async def settle(message):
    note("settled", message.text())
"""


def test_a_running_app_is_asked_where_the_settings_say_that_it_is_served(
    start: Start, send: Send, write_app: WriteApp, folder: Path, here: Here
) -> None:
    write_app(APP)
    run = start("run", "app", "--http", "127.0.0.1:0")
    Http(run).becomes("/ready", 200)
    send("orders", "1")
    run.says("settled 1")
    address = run.says(r"http://(\S+) tells")[1]
    (folder / "settings.toml").write_text(f'[app]\nhttp = "{address}"\n')
    doctor = here("doctor", "app")
    doctor.ends(0)
    assert "group shop: 1 member, " in doctor.out
    assert doctor.out.endswith("shop: nothing stands still\n")
    run.stops()


def test_after_a_queue_that_has_just_begun_to_stand_still_it_does_not_say_that_none_does(
    start: Start, send: Send, write_app: WriteApp, here: Here
) -> None:
    write_app(APP + '    raise Pause("maintenance")\n')
    run = start("run", "app", "--http", "127.0.0.1:0")
    http = Http(run)
    http.becomes("/ready", 200)
    send("orders", "1")
    http.becomes("/ready", 200, "stands still: paused")
    doctor = here("doctor", "app", "--http", http.address)
    doctor.ends(0)
    assert "stands still: paused: app:settle said pause: " in doctor.out
    assert doctor.out.endswith("shop: nothing needs a person\n")
    run.stops()


def test_without_the_app_the_cluster_says_that_nothing_consumes(
    start: Start, send: Send, write_app: WriteApp, memory_broker: str, here: Here
) -> None:
    write_app(APP)
    run = start("run", "app", "--exit-when-idle", "0.3", "--name-server", memory_broker)
    run.ends(0)
    send("orders", "1", "--count", "3", at=memory_broker)
    doctor = here("doctor", "app", "--name-server", memory_broker)
    doctor.ends(1)
    assert "group shop has no members: nothing consumes its topics" in doctor.out
    assert "    start the app: rocketapp run" in doctor.out


def test_what_waits_for_a_broadcast_group_is_not_told_as_its_members_alone_know(
    start: Start, send: Send, write_app: WriteApp, memory_broker: str, here: Here
) -> None:
    write_app(APP.replace('start="first"', 'start="first", broadcast=True'))
    send("orders", "1", "--count", "3", at=memory_broker)
    doctor = here("doctor", "app", "--name-server", memory_broker)
    doctor.ends(1)
    assert "group shop has no members: nothing consumes its topics\n" in doctor.out
    run = start("run", "app", "--name-server", memory_broker)
    run.says("settled 1")
    doctor = here("doctor", "app", "--name-server", memory_broker)
    doctor.ends(0)
    assert re.search(r"group shop: 1 member, \d+ queues?, each member keeps its own offsets\n", doctor.out)
    run.stops()


def test_a_topic_that_does_not_exist_yet_needs_a_person_unless_the_app_waits_for_it(
    start: Start, write_app: WriteApp, memory_broker: str, here: Here
) -> None:
    write_app(APP)
    doctor = here("doctor", "app", "--name-server", memory_broker)
    doctor.ends(1)
    assert "topic orders does not exist yet" in doctor.out
    assert "group shop has no members" in doctor.out
    assert "nothing stands still" not in doctor.out
    run = start("run", "app", "--name-server", memory_broker, "--http", "127.0.0.1:0")
    address = run.says(r"http://(\S+) tells")[1]
    run.says("consuming|started")
    doctor = here("doctor", "app", "--name-server", memory_broker, "--http", address, "--json")
    doctor.ends(0)
    said = json.loads(doctor.out)
    assert said["well"] is True
    assert any("topic orders does not exist yet" in one["text"] for one in said["findings"])
    run.stops()


def test_without_a_cluster_it_says_what_is_missing(write_app: WriteApp, memory_broker: str, here: Here) -> None:
    write_app(APP)
    doctor = here("doctor", "app")
    doctor.ends(2)
    assert "no name server is set and no embedded broker serves .rocketapp/" in doctor.err


def test_an_address_where_nothing_answers_is_said(write_app: WriteApp, here: Here) -> None:
    write_app(APP)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        free = f"127.0.0.1:{taken.getsockname()[1]}"
    doctor = here("doctor", "app", "--http", free)
    doctor.ends(1)
    assert f"nothing answers at {free}: connection refused" in doctor.out


def test_a_frozen_app_is_said(write_app: WriteApp, memory_broker: str, here: Here) -> None:
    write_app(APP)
    with socket.create_server(("127.0.0.1", 0)) as frozen:
        address = f"127.0.0.1:{frozen.getsockname()[1]}"
        doctor = here("doctor", "app", "--name-server", memory_broker, "--http", address)
        doctor.ends(1)
    assert f"the app at {address} has not answered for 5 s: its process is frozen" in doctor.out


def test_an_address_of_something_else_is_a_usage_error(write_app: WriteApp, memory_broker: str, here: Here) -> None:
    write_app(APP)
    doctor = here("doctor", "app", "--http", memory_broker)
    doctor.ends(2)
    assert doctor.err.startswith(f"rocketapp: {memory_broker}: what answers is not an app with --http")


def test_a_group_that_goes_on_is_known_as_soon_as_it_has_committed(
    start: Start, send: Send, write_app: WriteApp, here: Here
) -> None:
    write_app(APP.replace("    note", "    await asyncio.sleep(0.05)\n    note"))
    quick = {"ROCKETAPP_CONSUMER__COMMIT_INTERVAL": "0.2"}
    run = start("run", "app", environment=quick)
    run.says("serves on")
    send("orders", "1", "--count", "20000")
    run.says("settled 1")
    # It would wait for a minute for a queue that stands still.
    doctor = here("doctor", "app", environment={"ROCKETAPP_CONSUMER__COMMIT_INTERVAL": "60"})
    doctor.ends(0)
    assert "shop: nothing stands still, as far as its cluster knows" in doctor.out


def test_a_queue_that_no_member_owns_is_said_with_what_to_look_at(
    start: Start, send: Send, write_app: WriteApp, folder: Path, memory_broker: str, here: Here
) -> None:
    write_app(APP)
    listed = '["orders@broker-a:0", "%RETRY%shop@broker-a:0"]'
    (folder / "settings.toml").write_text(
        f'[consumer]\nallocation = "CONFIG"\nallocation_queues = {listed}\ncommit_interval = 0.2\n'
    )
    here("topic", "create", "orders", "--queues", "2", "--name-server", memory_broker).ends(0)
    send("orders", "1", "--count", "4", at=memory_broker)
    run = start("run", "app", "--name-server", memory_broker, "--http", "127.0.0.1:0")
    run.says("settled 1")
    for environment in ({}, {"ROCKETAPP_BROKER__DIR": "elsewhere"}):  # with the app, and with its cluster alone
        doctor = here("doctor", "app", "--name-server", memory_broker, environment=environment)
        doctor.ends(1)
        assert re.search(r"orders@broker-a:1 stands still: 2 messages wait .*, for no member owns it\n", doctor.out)
        assert "    see that every member takes the topic (rocketapp group show) and has the same" in doctor.out
        assert "broker-a:0" not in doctor.out
    run.stops()
