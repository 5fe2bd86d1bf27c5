"""`rocketapp send` and `rocketapp tail`, against one broker in memory."""

from __future__ import annotations

import base64
import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from rocketapp.cli.commands.messages import as_json_line
from rocketapp.cli.commands.send import parse_delay
from rocketapp.wire.layout import Record, encode_record
from rocketapp.wire.record import decode_records
from tests.cases import cases
from tests.peers.commands import Commands
from tests.unit.cli.brokers import serving_in_memory
from tests.unit.cli.conftest import Here, Start
from tests.unit.cli.processes import LIMIT, wait_until

SENT = re.compile(r"([0-9A-F]{32}) (\S+)@broker-a:(\d+) (\d+)")
Send = Callable[..., list[tuple[str, ...]]]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with serving_in_memory() as address:
        yield address


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "-", request.node.name)[-100:]


@pytest.fixture
def send(address: str, topic: str) -> Send:
    """Send with these arguments: message id, topic, queue and offset of each message."""

    def send_it(*arguments: str) -> list[tuple[str, ...]]:
        out = Commands(address).run("send", topic, *arguments).out
        matches = [SENT.fullmatch(line) for line in out.splitlines()]
        assert all(matches), out
        return [match.groups() for match in matches if match]

    return send_it


@pytest.fixture
def stored(address: str, topic: str) -> Callable[[int], list[dict[str, Any]]]:
    """The first N messages of the topic, as `tail --json` shows them."""

    def read(count: int) -> list[dict[str, Any]]:
        tail = Commands(address).run("tail", topic, "--from", "first", "--count", str(count), "--json")
        return [json.loads(line) for line in tail.out.splitlines()]

    return read


Stored = Callable[[int], list[dict[str, Any]]]


def test_it_prints_id_queue_and_offset(send: Send, stored: Stored, topic: str) -> None:
    ((message_id, where, queue, offset),) = send("hello")
    (message,) = stored(1)
    assert where == topic == message["topic"]
    assert (message["message_id"], str(message["queue_id"]), str(message["offset"])) == (message_id, queue, offset)
    assert message["body"] == "hello"


def test_everything_beside_the_body_arrives(send: Send, stored: Stored) -> None:
    send("x", "--tag", "paid", "--key", "a", "--key", "b", "--property", "k=v=w", "--property", "l=m")
    (message,) = stored(1)
    assert message["tag"] == "paid"
    assert message["keys"] == ["a", "b"]
    assert message["properties"].items() >= {"k": "v=w", "l": "m"}.items()
    assert message["attempt"] == 1
    assert datetime.fromisoformat(message["born_at"]).utcoffset() is not None


def test_a_time_that_is_no_date_hides_no_message() -> None:
    """A client may say that it sent a message in the year 287396."""
    stored = encode_record(Record("orders", b"x", born_ms=2**53 - 1, stored_ms=1_795_000_000_402))
    (message,) = decode_records(stored, None)
    shown = json.loads(as_json_line(message))
    assert (shown["born_at"], shown["stored_at"]) == (None, "2026-11-18T11:06:40.402000+00:00")


def test_copies_go_round_the_queues_and_those_with_an_order_key_to_one(send: Send) -> None:
    queues = [queue for _id, _topic, queue, _offset in send("x", "--count", "8")]
    assert queues == [str((int(queues[0]) + turn) % 4) for turn in range(8)]
    assert len({queue for _id, _topic, queue, _offset in send("x", "--count", "8", "--order-key", "a")}) == 1


def test_each_line_of_stdin_is_a_message(folder: Path, address: str, topic: str, stored: Stored) -> None:
    lines = [f"line {number}" for number in range(600)]
    text = "\n".join([*lines[:300], "", *lines[300:]])  # an empty line is not sent, and the last has no end
    command = [sys.executable, "-m", "rocketapp", "send", topic, "-", "--name-server", address]
    sent = subprocess.run(command, input=text, text=True, capture_output=True, cwd=folder, check=True, timeout=LIMIT)
    queues = [queue for _id, _topic, queue, _offset in SENT.findall(sent.stdout)]
    assert (len(queues), len(set(queues))) == (600, 4)
    assert sorted(message["body"] for message in stored(600)) == sorted(lines)


def test_a_line_is_sent_when_it_is_typed(folder: Path, address: str, topic: str) -> None:
    command = [sys.executable, "-m", "rocketapp", "send", topic, "-", "--name-server", address]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=folder) as process:
        assert process.stdin is not None and process.stdout is not None
        for text in ("first\n", "second\r\n"):
            process.stdin.write(text)
            process.stdin.flush()
            assert SENT.match(process.stdout.readline())
        process.stdin.close()
        assert process.wait(LIMIT) == 0


def test_a_broker_that_is_lost_between_two_lines_is_one_line(start: Start, folder: Path, topic: str) -> None:
    broker = start("broker", "--memory", "--listen", "127.0.0.1:0")
    place = broker.says(r"serving on (\S+)")[1]
    command = [sys.executable, "-m", "rocketapp", "send", topic, "-", "--name-server", place]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, cwd=folder) as process:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        process.stdin.write("first\n")
        process.stdin.flush()
        assert SENT.match(process.stdout.readline())
        broker.stops()
        with socket.create_server(("127.0.0.1", int(place.rpartition(":")[2]))) as gone:
            gone.settimeout(LIMIT)
            for _ in range(2):  # it has looked for the broker, in vain
                gone.accept()[0].close()
        process.stdin.write("second\n")
        process.stdin.close()
        assert process.wait(LIMIT) == 1
        told = process.stderr.read()
        assert told.startswith(f"rocketapp: not stored in {topic}: ") and told.count("\n") == 1, told


def test_a_delayed_message_comes_later(send: Send, start: Start, address: str, topic: str) -> None:
    send("BEFORE")
    tail = start("tail", topic, "--name-server", address, "--from", "first", "--json")
    tail.says("BEFORE")
    send("AFTER", "--delay", "1s")
    tail.says("AFTER")
    message = json.loads(tail.out.splitlines()[1])
    stored_at, born_at = (datetime.fromisoformat(message[name]) for name in ("stored_at", "born_at"))
    assert 0.99 <= (stored_at - born_at).total_seconds() < 5


@cases(
    "text, seconds",
    [("1s", 1), ("5", 5), ("1m", 60), ("2h", 7200), ("0.5m", 30), ("45s", 45), ("3h", 10_800)],
)
def test_delays_are_read_with_their_unit(text: str, seconds: float) -> None:
    assert parse_delay(text) == seconds


def test_a_delay_longer_than_the_broker_keeps_is_refused(address: str, topic: str, here: Here) -> None:
    refused = here("send", topic, "x", "--delay", "73h", "--name-server", address)
    refused.ends(1)
    assert refused.err.count("\n") == 1
    assert "delay" in refused.err


def test_tail_begins_with_what_comes(start: Start, send: Send, address: str, topic: str) -> None:
    send("before")
    tail = start("tail", topic, "--count", "1", "--name-server", address)
    # It says nothing while it waits: what it shows must be sent again and again until it listens.
    wait_until(lambda: send("after") and tail.process.poll() is not None, "tail has shown one")
    tail.ends(0)
    assert tail.out.endswith(" after\n")


def test_tail_selects_by_tag_exactly(send: Send, address: str, topic: str, here: Here) -> None:
    """`Aa` and `BB` have one hash, by which the broker selects."""
    for tag in ("Aa", "BB", "C", "D"):
        send(tag, "--tag", tag)
    tail = here(
        "tail", topic, "--tag", "Aa || C", "--from", "first", "--count", "2", "--json", "--name-server", address
    )
    tail.ends(0)
    assert {json.loads(line)["body"] for line in tail.out.splitlines()} == {"Aa", "C"}


def test_tail_follows_until_a_signal(start: Start, send: Send, address: str, topic: str) -> None:
    send("one")
    tail = start("tail", topic, "--from", "first", "--name-server", address)
    tail.says(" one\n")
    send("two")
    tail.says(" two\n")
    tail.signal(signal.SIGINT)
    tail.ends(0)
    assert tail.err == ""


def test_tail_waits_for_a_topic_that_does_not_exist_yet(start: Start, send: Send, address: str, topic: str) -> None:
    tail = start("tail", topic, "--count", "1", "--name-server", address)
    tail.says(f"topic {topic} does not exist yet: waiting for it")
    send("first of all")
    tail.ends(0)
    assert tail.out.endswith(" first of all\n")


def test_tail_changes_no_offsets(start: Start, send: Send, folder: Path, address: str, topic: str, here: Here) -> None:
    send("one")
    here("tail", topic, "--from", "first", "--count", "1", "--name-server", address).ends(0)
    (folder / "app.py").write_text(
        "from rocketapp import RocketApp\n"
        'app = RocketApp("TOOLS")\n'
        f"@app.subscribe({topic!r}, start='first')\n"
        "async def settle(message): ...\n"
    )
    run = start("run", "app:app", "--name-server", address, "--exit-when-idle", "0.3")
    run.ends(0)
    assert run.summary == (1, 0, 0, 0)


def test_tail_escapes_what_a_terminal_would_obey(send: Send, address: str, topic: str, here: Here) -> None:
    send("a\x1b[2Jb\nc\u202ed é")
    tail = here("tail", topic, "--from", "first", "--count", "1", "--name-server", address)
    tail.ends(0)
    assert tail.out.endswith("a\\x1b[2Jb\\nc\\u202ed é\n")


def test_a_body_that_is_no_text_is_shown_in_base64(
    folder: Path, address: str, topic: str, stored: Stored, here: Here
) -> None:
    body = b"\xff\xfe\x00"
    command = [sys.executable, "-m", "rocketapp", "send", topic, "-", "--name-server", address]
    subprocess.run(command, input=body, capture_output=True, cwd=folder, check=True, timeout=LIMIT)
    (message,) = stored(1)
    assert base64.b64decode(message["body_base64"]) == body
    assert "body" not in message
    tail = here("tail", topic, "--from", "first", "--count", "1", "--name-server", address)
    tail.ends(0)
    assert tail.out.endswith("\\xff\\xfe\\x00\n")


def test_the_settings_say_how_far_tail_inflates_a_body(send: Send, address: str, topic: str, here: Here) -> None:
    send("x" * 100_000)
    arguments = ("tail", topic, "--from", "first", "--count", "1", "--name-server", address)
    tail = here(*arguments, environment={"ROCKETAPP_CLIENT__MAX_INFLATED_BYTES": "2000"})
    tail.ends(0)
    assert "inflates to more than 2000 bytes" in tail.out


def test_a_reader_who_has_seen_enough_ends_tail(folder: Path, send: Send, address: str, topic: str) -> None:
    send("x", "--count", "300")
    command = [sys.executable, "-m", "rocketapp", "tail", topic, "--from", "first", "--name-server", address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=folder) as tail:
        assert tail.stdout is not None and tail.stderr is not None
        tail.stdout.readline()
        tail.stdout.close()
        send("x")
        assert tail.wait(LIMIT) == 0
        assert tail.stderr.read() == b""


def test_both_find_the_embedded_broker_of_the_folder(start: Start, folder: Path, here: Here) -> None:
    start("broker").says("serving on")
    here("send", "orders", "found").ends(0)
    tail = here("tail", "orders", "--from", "first", "--count", "1")
    tail.ends(0)
    assert tail.out.endswith(" found\n")


def test_the_settings_name_the_cluster_too(folder: Path, address: str, here: Here) -> None:
    (folder / "settings.toml").write_text(f'[client]\nname_server = "{address}"\n[some_plugin]\nkey = 1\n')
    here("send", "orders-by-settings", "x").ends(0)
    tail = here("tail", "orders-by-settings", "--from", "first", "--count", "1")
    tail.ends(0)
    assert tail.out.endswith(" x\n")


def test_what_is_left_is_sent_when_the_reader_has_seen_enough(
    folder: Path, address: str, topic: str, stored: Stored
) -> None:
    many = 2000  # whose lines are more than a pipe takes before somebody reads
    command = [sys.executable, "-m", "rocketapp", "send", topic, "x", "--count", f"{many}", "--name-server", address]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, cwd=folder) as process:
        assert process.stdout is not None and process.stderr is not None
        assert SENT.match(process.stdout.readline())
        process.stdout.close()
        assert process.wait(LIMIT) == 0
        assert process.stderr.read() == (
            "rocketapp: stdout was closed: all messages are sent, but no further one is shown\n"
        )
    assert len(stored(many)) == many


@pytest.mark.parametrize("command", [("send", "x"), ("tail", "--from", "first", "--count", "1")])
def test_a_full_disk_behind_stdout_is_one_line(
    folder: Path, address: str, topic: str, send: Send, command: tuple[str, ...]
) -> None:
    send("x")
    name, *others = command
    words = [sys.executable, "-m", "rocketapp", name, topic, *others, "--name-server", address]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, cwd=folder, check=False)
    problem = "stdout cannot be written: no space left on device: see where it is redirected to"
    assert (done.returncode, done.stderr) == (1, f"rocketapp: {problem}\n")


@pytest.mark.parametrize(
    ("stdin", "words", "code"),
    [("<&-", "stdin is closed: give it lines to send", 2), ("<&1", "stdin cannot be read: OSError", 1)],
)
def test_a_stdin_that_cannot_be_read_is_one_line(
    folder: Path, address: str, topic: str, stdin: str, words: str, code: int
) -> None:
    line = f'exec "$0" -m rocketapp send {topic} - --name-server {address} {stdin}'
    done = subprocess.run(
        ["sh", "-c", line, sys.executable], cwd=folder, capture_output=True, text=True, check=False, timeout=LIMIT
    )
    assert done.returncode == code, done.stderr
    assert words in done.stderr and done.stderr.count("\n") == 1, done.stderr
