"""Users and policies that Apache's admin tool changes while a broker runs: here and on Apache RocketMQ alike."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.conformance.secured import ADMIN, ADMIN_SECRET, WITH_KEYS
from tests.conformance.test_admin_tool import masked
from tests.peers import toolchain
from tests.peers.clusters import Apache, Embedded
from tests.peers.java_client import JavaClient, Peer

pytestmark = [pytest.mark.apache, pytest.mark.java]

COMMANDS = """
createUser -b BROKER -u alice -p alice-secret -t Normal
createUser -b BROKER -u alice -p alice-secret -t Normal
createUser -b BROKER -u chief -p chief-secret -t Super
getUser -b BROKER -u alice
getUser -b BROKER -u nobody
updateUser -b BROKER -u alice -p another-secret
updateUser -b BROKER -u alice -s disable
updateUser -b BROKER -u nobody -p x
listUser -b BROKER -f i
createAcl -b BROKER -s User:alice -r Topic:orders*,Group:* -a Pub,Sub -i 10.0.0.0/8 -d Allow
createAcl -b BROKER -s User:nobody -r Topic:orders -a Pub -d Allow
createAcl -b BROKER -s User:alice -r orders -a Pub -d Allow
updateAcl -b BROKER -s User:alice -r Topic:orders* -a Sub -d Deny
updateAcl -b BROKER -s User:chief -r Topic:bills -a Get -d Allow
getAcl -b BROKER -s User:alice
getAcl -b BROKER -s User:nobody
listAcl -b BROKER -s chi
listAcl -b BROKER -r orders
deleteAcl -b BROKER -s User:alice -r Group:*
listAcl -b BROKER
deleteAcl -b BROKER -s User:alice
deleteAcl -b BROKER -s User:alice
deleteUser -b BROKER -u chief
deleteUser -b BROKER -u nobody
listUser -b BROKER
listAcl -b BROKER
"""


def _apache(directory: Path) -> Apache:
    return Apache(directory, conf=WITH_KEYS, options=toolchain.BRIEF)


def _embedded(directory: Path) -> Embedded:
    admin = json.dumps({"username": ADMIN, "password": ADMIN_SECRET})
    return Embedded(directory, options={"authentication": "true", "authorization": "true", "admin_user": admin})


def _told(home: Path, start: Callable[[Path], Apache | Embedded]) -> list[tuple[str, list[str]]]:
    """What the tool prints for each command."""
    keys = home / "conf" / "tools.yml"
    keys.parent.mkdir(parents=True)
    keys.write_text(f"accessKey: {ADMIN}\nsecretKey: {ADMIN_SECRET}\n")
    cluster = start(home / "broker")
    peer = Peer(home, properties=(f"-Drocketmq.home.dir={home}",))
    try:
        java = JavaClient(peer, cluster.name_server)
        lines = COMMANDS.strip().splitlines()
        printed = [java.admin(*line.replace("BROKER", cluster.broker_address).split()) for line in lines]
        # Apache's broker signs its own requests in the name of a user, which it lists too.
        left_out = ("|-", "inner-client")
        texts = [
            "\n".join(line for line in text.splitlines() if not any(each in line for each in left_out))
            for text in printed
        ]
        return [(line, masked(text)) for line, text in zip(lines, texts, strict=True)]
    finally:
        peer.stop()
        cluster.stop()


@pytest.mark.timeout(600)
def test_the_admin_tool_changes_users_and_policies_here_as_there(tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        theirs = pool.submit(_told, tmp_path / "apache", _apache)
        ours = pool.submit(_told, tmp_path / "embedded", _embedded)
    pairs = zip(ours.result(), theirs.result(), strict=True)
    assert [(our, their) for our, their in pairs if our != their] == []
