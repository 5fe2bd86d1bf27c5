"""The embedded broker with users, permissions and TLS: what the Java client, apps and commands see of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.conformance.secured import ADMIN, ADMIN_SECRET, READER, READER_SECRET
from tests.conformance.test_security import check_job, run_to_its_end
from tests.peers.clusters import Embedded
from tests.peers.java_client import JavaError, Peer
from tests.unit.certificates import Authority

pytestmark = [pytest.mark.java]


class Closed(NamedTuple):
    """`rocketapp broker` that wants TLS and keys."""

    broker: Embedded
    environment: dict[str, str]


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Closed]:
    folder = tmp_path_factory.mktemp("closed")
    authority = Authority(folder)
    shown = authority.issue("server", names="IP:127.0.0.1")
    config = folder / "data" / "config"
    config.mkdir(parents=True)
    entries = [
        {"resource": "Topic:open*", "actions": ["Pub", "Sub", "Get"]},
        {"resource": "Group:open*", "actions": ["Sub", "Get"]},
    ]
    user = {"username": READER, "password": READER_SECRET}
    acl = {"subject": f"User:{READER}", "policies": [{"entries": entries}]}
    (config / "access.json").write_text(json.dumps({"users": [user], "acls": [acl]}))
    options = {
        "authentication": "true",
        "authorization": "true",
        "admin_user": json.dumps({"username": ADMIN, "password": ADMIN_SECRET}),
        "tls": "enforcing",
        "cert_file": shown.cert,
        "key_file": shown.key,
    }
    broker = Embedded(folder, options=options)
    environment = {
        "ROCKETAPP_CLIENT__TLS": "true",
        "ROCKETAPP_CLIENT__CA_FILE": str(authority.cert),
        "ROCKETAPP_CLIENT__ACCESS_KEY": ADMIN,
        "ROCKETAPP_CLIENT__SECRET_KEY": ADMIN_SECRET,
    }
    yield Closed(broker, environment)
    broker.stop()


@pytest.mark.timeout(300)
def test_the_java_client_is_let_in_with_its_keys_only(closed: Closed, peer: Peer, topic: str) -> None:
    def trip(topic: str, access_key: str, secret_key: str) -> object:
        keys = {"access_key": access_key, "secret_key": secret_key}
        return peer.call(
            "signed_trip", ns=closed.broker.name_server, topic=topic, group=f"open-{topic}", text="été", **keys
        )

    assert trip(topic, ADMIN, ADMIN_SECRET) == "été"
    assert trip(f"open-{topic}", READER, READER_SECRET) == "été"
    for named, access_key, secret_key, said in [
        (topic, ADMIN, "another-secret", "check signature failed"),
        (topic, "stranger", "any-secret", "User:stranger is not found"),
        (topic, READER, READER_SECRET, f"has no permission to access Topic:{topic}"),
    ]:
        with pytest.raises(JavaError, match=said):
            trip(named, access_key, secret_key)


@pytest.mark.timeout(300)
def test_an_app_and_the_commands_do_their_whole_job_with_keys(
    closed: Closed, tmp_path: Path, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = check_job(closed.broker.name_server, tmp_path, topic, closed.environment, monkeypatch)
    assert ADMIN_SECRET not in app.stderr


def test_an_app_without_the_right_keys_ends_with_one_line(closed: Closed, tmp_path: Path) -> None:
    wrong = {**closed.environment, "ROCKETAPP_CLIENT__SECRET_KEY": "another-secret"}
    ended = run_to_its_end(closed.broker.name_server, tmp_path, wrong)
    assert ended.returncode == 2, ended.stderr
    assert "client.access_key: the cluster refuses the keys" in ended.stderr.splitlines()[-1]
