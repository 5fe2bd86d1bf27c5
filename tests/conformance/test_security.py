"""Apps and commands on clusters that want TLS and access keys, and on Apache RocketMQ 4.9.7."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from rocketapp import Client, SendRefused
from tests.conformance.secured import ADMIN, ADMIN_SECRET, READER, READER_SECRET, Old, Secured
from tests.peers import toolchain
from tests.peers.clusters import Embedded
from tests.peers.commands import Commands
from tests.peers.running_app import RunningApp
from tests.peers.waiting import wait_until

pytestmark = [pytest.mark.apache, pytest.mark.java]

JOB = """
app = RocketApp("{group}")

@app.on_startup
async def fill() -> None:
    for number in range(40):
        await app.publish("{topic}", str(number))
        await app.publish("{topic}-orderly", str(number), order_key=str(number % 4), keys=[str(number % 4)])

@app.subscribe("{topic}", start="first")
async def take(message: Message) -> None:
    if message.text() == "7" and message.attempt == 1:
        raise Retry(after=1)
    if message.text() == "9":
        raise DeadLetter("not wanted")
    note("done", message)

@app.subscribe("{topic}-orderly", start="first", orderly=True, group="{group}-orderly")
async def move(message: Message) -> None:
    note("moved", message)
"""


POPPED = """
app = RocketApp("{group}", mode="pop", start="first")

@app.on_startup
async def fill() -> None:
    for number in range(20):
        await app.publish("{topic}", str(number))

@app.subscribe("{topic}", retries=1)
async def take(message: Message) -> None:
    if message.text() == "7":
        note("attempt", message)
        raise Retry(after=1)
    note("done", message)
"""


READING = """
app = RocketApp("readers")

@app.subscribe("open-topic", start="first")
async def take(message: Message) -> None:
    note("done", message)
"""


@pytest.fixture(scope="module")
def starting(
    java_classes: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Future[Secured], Future[Old]]]:
    """Both clusters, started side by side: the second is ready when the first is done with."""
    with ThreadPoolExecutor(2) as both:
        started = (
            both.submit(Secured, tmp_path_factory.mktemp("secured")),
            both.submit(Old, tmp_path_factory.mktemp("old")),
        )
        yield started
    for one in started:
        if one.exception() is None:
            one.result().stop()


@pytest.fixture(scope="module")
def secured(starting: tuple[Future[Secured], Future[Old]]) -> Secured:
    return starting[0].result(300)


@pytest.fixture(scope="module")
def old(starting: tuple[Future[Secured], Future[Old]]) -> Old:
    return starting[1].result(300)


def check_job(
    name_server: str, directory: Path, topic: str, environment: dict[str, str], patch: pytest.MonkeyPatch
) -> RunningApp:
    """Everything is handled: once, after a retry, as a dead letter that the commands find, and in its order."""
    group = f"group-of-{topic}"
    source = JOB.replace("{group}", group).replace("{topic}", topic)
    app = RunningApp(directory, source, name_server, environment=environment)
    try:
        app.wait_for_count(39, within=90)
        app.wait_for_count(40, "moved", within=90)
        counts = app.stop()
    finally:
        app.discard()
    assert sorted(map(int, app.texts())) == [number for number in range(40) if number != 9]
    assert [event["attempt"] for event in app.events("done", text="7")] == [2]
    by_key: dict[str, list[int]] = {}
    for event in app.events("moved"):
        by_key.setdefault(event["keys"][0], []).append(int(event["text"]))
    assert {key: sorted(numbers) for key, numbers in by_key.items()} == by_key
    assert (counts.handled, counts.retried, counts.dead_lettered) == (79, 1, 1)
    for name, value in environment.items():
        patch.setenv(name, value)
    check_commands(Commands(name_server), group, topic, directory)
    return app


def check_commands(commands: Commands, group: str, topic: str, directory: Path) -> None:
    """What operators ask and change after that job."""
    assert commands.json("topic", "show", topic)["messages"] == 40
    shown = commands.json("group", "show", group)
    assert (shown["lag"], shown["members"]) == (0, [])
    assert len(commands.json("message", "--key", "3", "--topic", f"{topic}-orderly")) == 10
    dead = commands.json("dlq", "list", group)
    assert [one["reason"].endswith("not wanted") for one in dead] == [True]
    commands.run("dlq", "replay", group, "--state", str(directory / "replay"))
    commands.run("offset", "reset", group, topic, "--to", "first")
    assert {one["committed_offset"] for one in commands.json("offset", "show", group, "--topic", topic)} == {0}


def test_an_embedded_slave_copies_from_a_master_that_wants_tls_and_keys(
    secured: Secured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in secured.environment().items():
        monkeypatch.setenv(name, value)
    keys = json.dumps({"accessKey": ADMIN, "secretKey": ADMIN_SECRET})
    options = {"role": "slave", "id": 1, "name_server": secured.apache.name_server, "credentials": keys}
    slave = Embedded(tmp_path / "slave", options=options)
    try:
        wait_until(lambda: len(secured.addresses()) == 2, within=30, what=slave.log)
        assert secured.addresses()["1"] == slave.broker_address
        wait_until(lambda: "copying the log of the master" in slave.log(), within=30, what=slave.log)
    finally:
        slave.stop()


def run_to_its_end(name_server: str, directory: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """`rocketapp run` of an app that is not let in."""
    directory.mkdir(exist_ok=True)
    (directory / "app.py").write_text(
        'from rocketapp import RocketApp\n\napp = RocketApp("refused")\n\n\n'
        '@app.subscribe("open-topic")\nasync def take(body: bytes) -> None: ...\n'
    )
    command = toolchain.rocketapp_command("run", "app:app", "--name-server", name_server, "--connect-timeout", "1")
    return subprocess.run(
        ["env", *(f"{name}={value}" for name, value in environment.items()), *command],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.timeout(300)
def test_an_app_with_tls_and_keys_does_its_whole_job_and_its_secret_is_in_no_output(
    secured: Secured, tmp_path: Path, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = secured.environment()
    environment = {**keys, "ROCKETAPP_APP__LOG_LEVEL": "DEBUG"}
    app = check_job(secured.apache.name_server, tmp_path, topic, environment, monkeypatch)
    assert keys["ROCKETAPP_CLIENT__SECRET_KEY"] not in app.stderr


@pytest.mark.timeout(300)
def test_a_popped_topic_of_a_namespace_is_handled_with_keys(
    secured: Secured, tmp_path: Path, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = {**secured.environment(), "ROCKETAPP_CLIENT__NAMESPACE": "shop"}
    group = f"group-of-{topic}"
    source = POPPED.format(group=group, topic=topic)
    app = RunningApp(tmp_path, source, secured.apache.name_server, environment=environment)
    try:
        app.wait_for_count(19, within=60)
        app.wait_for_count(2, "attempt", within=60)
        counts = app.stop()
    finally:
        app.discard()
    assert (counts.handled, counts.retried, counts.dead_lettered) == (19, 1, 1)
    assert {event["topic"] for event in app.events()} == {topic}
    for name, value in secured.environment().items():
        monkeypatch.setenv(name, value)
    commands = Commands(secured.apache.name_server)
    assert commands.json("topic", "show", f"shop%{topic}")["messages"] == 20
    assert len(commands.json("dlq", "list", f"shop%{group}")) == 1


@pytest.mark.timeout(300)
def test_keys_that_the_cluster_does_not_know_end_apps_and_commands_with_one_line(
    secured: Secured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = run_to_its_end(secured.apache.name_server, tmp_path, secured.environment(ADMIN, "another-secret"))
    assert ended.returncode == 2, ended.stderr
    assert "client.access_key: the cluster refuses the keys" in ended.stderr.splitlines()[-1]
    assert "another-secret" not in ended.stdout + ended.stderr
    without = secured.environment("", "")
    none = run_to_its_end(secured.apache.name_server, tmp_path, without)
    assert none.returncode == 2, none.stderr
    assert "client.access_key: is not set, and brokers want keys" in none.stderr.splitlines()[-1]
    for name, value in secured.environment("stranger", "any-secret-4").items():
        monkeypatch.setenv(name, value)
    refused = Commands(secured.apache.name_server).run("topic", "create", "open-topic", code=2)
    assert "User:stranger is not found" in refused.err
    assert len(refused.err.splitlines()) == 1
    assert "any-secret-4" not in refused.err


@pytest.mark.timeout(300)
def test_a_client_that_speaks_plain_or_trusts_another_authority_is_told_what_to_set(
    secured: Secured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = run_to_its_end(secured.apache.name_server, tmp_path, {"ROCKETAPP_CLIENT__TLS": "false"})
    assert plain.returncode == 1
    assert "does it want TLS (client.tls, client.cert_file)?" in plain.stderr.splitlines()[-1]
    for name, value in {**secured.environment(), "ROCKETAPP_CLIENT__CA_FILE": ""}.items():
        monkeypatch.setenv(name, value)
    strange = Commands(secured.apache.name_server).run("topic", "list", code=2)
    assert "set client.ca_file to the authority that issued it" in strange.err.splitlines()[-1]


@pytest.mark.timeout(300)
def test_a_user_that_may_only_read_is_refused_by_name_and_waits_while_it_is_disabled(
    secured: Secured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in secured.environment().items():
        monkeypatch.setenv(name, value)
    commands = Commands(secured.apache.name_server)
    commands.run("topic", "create", "open-topic", "--queues", "1")
    commands.run("send", "open-topic", "hello")
    for name, value in secured.environment(READER, READER_SECRET).items():
        monkeypatch.setenv(name, value)
    refused = commands.run("send", "open-topic", "hello", code=None)
    assert f"User:{READER} has no permission to access Topic:open-topic" in refused.err
    assert READER_SECRET not in refused.err
    environment = {**secured.environment(READER, READER_SECRET), "ROCKETAPP_CONSUMER__LONG_POLL": "1"}
    app = RunningApp(tmp_path, READING, secured.apache.name_server, environment=environment)
    try:
        app.wait_for_count(1, within=60)
        secured.set_reader("disable")
        app.wait_for(
            lambda: f"User:{READER} is disabled" in app.stderr, within=60, what="the log says why it stands still"
        )
        secured.set_reader("enable")
        for name, value in secured.environment().items():
            monkeypatch.setenv(name, value)
        commands.run("send", "open-topic", "again")
        app.wait_for_count(2, within=40)
        app.stop()
    finally:
        app.discard()
    assert app.texts() == ["hello", "again"]


@pytest.mark.timeout(300)
def test_what_4_9_7_would_deliver_at_once_is_refused_and_a_level_waits(old: Old, topic: str) -> None:
    # Without access control they are not looked at.
    keys = {"client": {"access_key": ADMIN, "secret_key": ADMIN_SECRET}}

    async def story() -> tuple[str, list[str]]:
        async with Client(old.apache.name_server, settings=keys) as client:
            with pytest.raises(SendRefused) as refused:
                await client.publish(topic, "at once", delay=45)
            await client.publish(topic, "level", delay=1)
            return str(refused.value), [one.text() async for one in client.messages(topic, start="first", idle=3)]

    problem, bodies = asyncio.run(story())
    assert "has no timers" in problem and "the nearest are 30 and 60 s" in problem
    assert bodies == ["level"]


@pytest.mark.timeout(300)
def test_the_whole_job_runs_on_4_9_7_without_keys_and_then_with_them(
    old: Old, tmp_path: Path, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_job(old.apache.name_server, tmp_path / "open", topic, {}, monkeypatch)
    old.want_keys()
    environment = {
        "ROCKETAPP_CLIENT__ACCESS_KEY": ADMIN,
        "ROCKETAPP_CLIENT__SECRET_KEY": "admin-secret-1",
    }
    check_job(old.apache.name_server, tmp_path / "closed", f"{topic}-closed", environment, monkeypatch)
    wrong = {**environment, "ROCKETAPP_CLIENT__SECRET_KEY": "another-secret"}
    ended = run_to_its_end(old.apache.name_server, tmp_path / "wrong", wrong)
    assert ended.returncode == 2, ended.stderr
    assert "client.access_key: the cluster refuses the keys" in ended.stderr.splitlines()[-1]
    none = run_to_its_end(old.apache.name_server, tmp_path / "none", dict.fromkeys(environment, ""))
    assert none.returncode == 2, none.stderr
    assert "client.access_key: is not set, and brokers want keys" in none.stderr.splitlines()[-1]
