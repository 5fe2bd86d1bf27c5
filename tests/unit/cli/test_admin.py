"""The administrators' commands as processes, against one embedded broker: what they print and how they end."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from rocketapp.admin.cluster import AdminCluster
from rocketapp.admin.dead_letters import reachable_queues
from rocketapp.cli.commands.admin import parse_target
from rocketapp.cli.failure import CommandError
from rocketapp.cli.main import run_command
from rocketapp.cli.output import counted
from rocketapp.client.instance import ClientInstance
from rocketapp.errors import ConnectError
from rocketapp.model.message_queue import MessageQueue
from tests.cases import cases
from tests.peers.commands import Commands, Said
from tests.unit.cli.brokers import serving_in_memory
from tests.unit.cli.conftest import Start

Ask = Callable[..., Said]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with serving_in_memory() as address:
        yield address


@pytest.fixture
def ask(address: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Ask:
    """A command on that broker, in an empty folder, that ends with this code."""
    monkeypatch.chdir(folder)
    return Commands(address).run


def test_a_broker_that_does_not_answer_is_told_and_the_command_fails(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    answered = json.loads(ask("group", "list", "--json").out)
    with socket.create_server(("127.0.0.1", 0)) as frozen:
        found = AdminCluster.of

        async def with_another(client: ClientInstance, own: Mapping[str, str]) -> AdminCluster:
            cluster = await found(client, own)
            cluster.timeout = 0.5
            cluster.masters["broker-b"] = f"127.0.0.1:{frozen.getsockname()[1]}"
            return cluster

        monkeypatch.setattr(AdminCluster, "of", with_another)
        said = ask("group", "list", code=1)
        assert said.out.startswith("GROUP")
        assert said.err.startswith("rocketapp: broker broker-b does not answer, and what it has is left out: ")
        told = ask("group", "list", "--json", code=1)
        assert json.loads(told.out) == answered
        assert json.loads(told.err)["exit_code"] == 1


def test_a_group_is_created_once_and_one_member_is_counted_as_one(ask: Ask) -> None:
    assert ask("group", "create", "billing").out == "created billing on broker-a\n"
    assert ask("group", "create", "billing", code=1).err.startswith("rocketapp: group billing is there already: see ")
    assert "billing" in ask("group", "list").out
    assert (counted(1, "member"), counted(2, "member"), counted(0, "live member")) == (
        "1 member",
        "2 members",
        "0 live members",
    )


def test_the_settings_of_a_command_may_be_named(address: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    (folder / "other.toml").write_text(f'[client]\nname_server = "{address}"\n')
    assert run_command(["send", "sent", "1", "--settings", "other.toml"]) == 0
    assert run_command(["tail", "sent", "--from", "first", "--count", "1", "--settings", "other.toml"]) == 0
    assert run_command(["topic", "show", "sent", "--settings", "other.toml"]) == 0
    assert run_command(["topic", "list", "--settings", "missing.toml"]) == 2


async def test_dead_letters_of_brokers_that_answer_are_shown() -> None:
    here, there = MessageQueue("%DLQ%g", "broker-a", 0), MessageQueue("%DLQ%g", "broker-b", 0)

    class HalfSilent(AdminCluster):
        async def queues(self, topic: str) -> list[MessageQueue]:
            return [here, there]

        async def for_queues(self, queues: Any, ask: Any) -> dict[MessageQueue, Any]:
            if there in queues:
                raise ConnectError("b:1", "refused")
            return dict.fromkeys(queues, 3)

    client: Any = None
    cluster = HalfSilent(client, {"broker-a": "a:1", "broker-b": "b:1"})
    assert await reachable_queues(cluster, "g") == {here: range(3, 3)}
    assert list(cluster.silent) == ["broker-b"]


def test_tables_and_json_say_the_same(ask: Ask) -> None:
    ask("topic", "create", "orders", "--queues", "2")
    lines = ask("topic", "list").out.splitlines()
    assert lines[0].split() == ["TOPIC", "KIND", "BROKER", "READ", "QUEUES", "WRITE", "QUEUES", "MAY", "BE"]
    assert "orders  normal  broker-a            2             2  read, write" in lines
    listed = json.loads(ask("topic", "list", "--json").out)
    queues = {"broker": "broker-a", "read_queues": 2, "write_queues": 2, "readable": True, "writable": True}
    assert {"topic": "orders", "kind": "normal", "brokers": [queues]} in listed


FAILURES = [
    (["topic", "show", "missing"], 1, "topic missing: no broker holds it: see rocketapp topic list"),
    (["topic", "create", "a b"], 2, "only letters, digits"),
    (["topic", "create", "new", "--broker", "b"], 2, "--broker b: no such broker: known are broker-a"),
    (["group", "show", "missing"], 1, "group missing has neither members nor offsets here"),
    (["offset", "reset", "g", "missing", "--to", "first"], 1, "topic missing: no broker holds it"),
    (["offset", "reset", "g", "TBW102", "--to", "soon"], 2, "--to soon: write first, last, an offset"),
    (["dlq", "show", "g", "b:0:1"], 1, "group g has no dead letter b:0:1: see rocketapp dlq list g"),
    (["message"], 2, "message: give either an ID or --key"),
    (["message", "7F000001000C06D1C4A40D4E5C5E0000"], 1, "is stored in any topic"),
    (["dlq", "replay", "g", "--state", "missing/state.json"], 2, "give another with --state"),
    (["dlq", "replay", "g", "--state", "/"], 2, "--state /: it is a folder: name a file in it"),
    (["dlq", "replay", "g", "--state", ""], 2, "--state is empty"),
    (["dlq", "replay", "a/b"], 2, "group 'a/b': only letters, digits"),
    (["dlq", "replay", "g", "--skip", "17"], 2, "--skip 17: write a place as rocketapp dlq list shows it"),
    (["dlq", "list", ""], 2, "a group needs a name"),
    (["dlq", "show", "g", ""], 2, "WHICH is empty"),
    (["topic", "show", ""], 2, "a topic needs a name"),
    (["topic", "show", "注文"], 2, "topic '注文': only letters, digits"),
    (["topic", "show", "x" * 300], 2, "has 300 characters, at most 127"),
    (["group", "show", ""], 2, "a group needs a name"),
    (["offset", "show", "g", "--topic", ""], 2, "a topic needs a name"),
    (["offset", "reset", "a b", "TBW102", "--to", "first"], 2, "group 'a b': only letters, digits"),
    (["offset", "reset", "g", "TBW102", "--to", "0001-01-01"], 2, "--to 0001-01-01: write first, last, an offset"),
    (["offset", "reset", "g", "TBW102", "--to", "first", "--queue", "0", "--queue", "99"], 2, "--queue 99: topic"),
    (["message", ""], 2, "ID is empty"),
    (["message", "--key", ""], 2, "--key is empty"),
]


@cases("arguments, code, says", FAILURES)
def test_a_failure_is_one_line_with_its_mend(ask: Ask, arguments: list[str], code: int, says: str) -> None:
    failed = ask(*arguments, code=code)
    assert says in failed.err
    assert failed.err.count("\n") == 1
    assert failed.out == ""


DIES = """
@app.subscribe("bills", start="first", retries=0)
async def settle(message: Message):
    raise ValueError("not today")
"""
TRIED = """
@app.on_startup
async def begin():
    app.ready = True

@app.subscribe("bills", tags="paid")
async def settle(message: Message, publisher: Publisher):
    assert app.ready
    await publisher.publish("invoices", b"1")
    await app.publish("invoices", b"2")
    if message.text() == "bad":
        raise ValueError("no good")

@app.subscribe("bills", tags="paid", cluster="eu")
async def elsewhere(message: Message): ...
"""


def test_a_dead_letter_is_tried_with_everything_around_it_and_nothing_is_sent(
    ask: Ask,
    start: Start,
    address: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    write_app: Callable[[str], None],
) -> None:
    for body in ("good", "bad"):
        ask("send", "bills", body, "--tag", "paid")
    ask("send", "bills", "other", "--tag", "late")
    write_app(DIES)

    died = start("run", "app:app", "--exit-when-idle", "0.2", "--name-server", address)
    died.ends(0)
    assert died.summary == (0, 0, 3, 0)
    letters = {letter["body"]: letter["place"] for letter in json.loads(ask("dlq", "list", "shop", "--json").out)}
    code = (folder / "app.py").read_text().replace(DIES, TRIED)
    named = code.replace('RocketApp("shop")', 'RocketApp("shop", clusters={"eu": "127.0.0.1:1"})')
    (folder / "tried_app.py").write_text(named)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "tried_app", raising=False)
    tried = ask("dlq", "try", "tried_app:app", letters["good"])
    assert tried.out.splitlines() == [
        "tried_app:settle: done",
        "would publish to invoices: 1",
        "would publish to invoices: 2",
    ]
    failed = ask("dlq", "try", "tried_app:app", letters["bad"], "--json", code=1)
    said = json.loads(failed.out)
    assert (said["outcome"], [one["body"] for one in said["would_publish"]]) == ("retry", ["1", "2"])
    assert said["text"].startswith("tried_app.py:") and said["text"].endswith("ValueError: no good")
    refused = ask("dlq", "try", "tried_app:app", letters["other"], code=1)
    assert "is from topic bills with tag late, and no handler of group shop takes that" in refused.err
    assert "invoices" not in ask("topic", "list").out


def test_an_empty_replay_is_done(ask: Ask, folder: Path) -> None:
    done = ask("dlq", "replay", "nothing")
    assert done.out == "group nothing has no dead letters\n"
    assert not (folder / ".rocketapp.replay-nothing.json").exists()


@pytest.mark.parametrize("text", ["first", "last", "12", "2026-01-31T08:00+01:00", "2026-01-31"])
def test_a_target_is_read(text: str) -> None:
    target: Any = parse_target(text)
    shown = {"first": "first", "last": "last", "12": 12}
    assert target == shown[text] if text in shown else target.tzinfo is not None


@cases("text", ["9" * 5000, "", "soon", "-1", "1.5", "٣", "0001-01-01", "99999-01-01"])
def test_what_is_no_target_is_refused_with_what_is(text: str) -> None:
    with pytest.raises(CommandError, match="write first, last, an offset"):
        parse_target(text)
