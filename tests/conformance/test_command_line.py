"""`rocketapp send` and `rocketapp tail` against both brokers."""

from __future__ import annotations

import json
import subprocess

from tests.conftest import on_apache
from tests.peers import toolchain
from tests.peers.clusters import Cluster


def rocketapp(*arguments: str, text: str = "") -> list[str]:
    """The lines of a command that ends with 0."""
    command = toolchain.rocketapp_command(*arguments)
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@on_apache
def test_what_is_sent_is_shown_as_it_was_stored(cluster: Cluster, topic: str) -> None:
    where = ("--name-server", cluster.name_server)
    (first,) = rocketapp("send", topic, "one", "--tag", "paid", "--key", "k", "--property", "p=v", *where)
    rest = rocketapp("send", topic, "-", "--tag", "paid", "--order-key", "k", *where, text="two\nthree\n")
    shown = [json.loads(line) for line in rocketapp("tail", topic, "--from", "first", "--count", "3", "--json", *where)]
    by_body = {message["body"]: message for message in shown}
    for line, body in zip([first, *rest], ["one", "two", "three"], strict=True):
        message_id, queue, offset = line.split()
        message = by_body[body]
        assert message["message_id"] == message_id
        assert f"{topic}@{message['broker']}:{message['queue_id']}" == queue
        assert message["offset"] == int(offset)
        assert message["tag"] == "paid"
    assert by_body["one"]["keys"] == ["k"]
    assert by_body["one"]["properties"]["p"] == "v"


@on_apache
def test_tail_selects_by_tag(cluster: Cluster, topic: str) -> None:
    """`Aa` and `BB` have one hash, by which the broker selects."""
    where = ("--name-server", cluster.name_server)
    for tag in ("Aa", "BB", "C"):
        rocketapp("send", topic, tag, "--tag", tag, *where)
    lines = rocketapp("tail", topic, "--tag", "BB || C", "--from", "first", "--count", "2", "--json", *where)
    assert {json.loads(line)["body"] for line in lines} == {"BB", "C"}
