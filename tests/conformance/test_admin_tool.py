"""Apache's admin tool prints the same about an embedded broker as about Apache's, for the same contents."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.conftest import on_embedded
from tests.peers import toolchain
from tests.peers.clusters import Apache, Cluster, Embedded, of_tests
from tests.peers.java_client import JavaClient, Peer
from tests.peers.waiting import wait_until

COMMANDS = """
topicStatus -t T
topicClusterList -t T
consumerProgress
consumerProgress -g G
consumerProgress -g G -t T
getConsumerConfig -g G
queryMsgByKey -t T -k k1
updateKvConfig -s space -k key -v value
deleteKvConfig -s space -k key
updateOrderConf -m put -t T -v broker-a:2
updateOrderConf -m get -t T
updateOrderConf -m delete -t T
wipeWritePerm -b broker-a
topicRoute -t T
addWritePerm -b broker-a
cleanExpiredCQ -b BROKER
cleanUnusedTopic -b BROKER
updateTopic -b BROKER -t U -r 4 -w 4
updateTopic -c DefaultCluster -t U -r 6 -w 6
updateSubGroup -b BROKER -g S -r 5
getConsumerConfig -g S
setConsumeMode -b BROKER -t T -g S -m POP -q 2
allocateMQ -t T -i 10.0.0.1,10.0.0.2
resetOffsetByTime -g G -t T -s 0
skipAccumulatedMessage -g G -t T
cloneGroupOffset -s G -d S -t T
updateTopicPerm -t T -p 4 -b BROKER
deleteSubGroup -c DefaultCluster -g G -r true
deleteTopic -c DefaultCluster -t T
"""
"""What the tool is told, in this order; the text stands for a topic, a group and the broker's address."""
SAME = (
    *("autoCreateTopicEnable", "brokerClusterName", "brokerId", "brokerName", "brokerRole", "channelExpiredTimeout"),
    *("enablePropertyFilter", "flushConsumerOffsetInterval", "flushDiskType", "flushIntervalCommitLog"),
    *("maxMessageSize", "messageDelayLevel", "timerMaxDelaySec", "timerWheelEnable", "useServerSideResetOffset"),
)
"""Options that both have by default."""


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory, java_classes: Path) -> Iterator[tuple[Apache, Embedded]]:
    """Brokers of their own: what is told here would disturb others."""
    apache = of_tests(tmp_path_factory.mktemp("apache-alone"))
    try:
        embedded = Embedded(tmp_path_factory.mktemp("embedded-alone"))
        try:
            yield apache, embedded
        finally:
            embedded.stop()
    finally:
        apache.stop()


def masked(printed: str) -> list[str]:
    """The lines in order of the alphabet, without what differs between two brokers, and between two moments."""
    for pattern, name in (
        (r"127\.0\.0\.1:\d+", "ADDRESS"),
        (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(,\d+)?", "TIME"),
        (r"[0-9A-F]{40,}", "ID"),
        (r"\b1[0-9]{12}\b", "MILLISECONDS"),
        (r"OK, \d+", "OK, COUNT"),
        (r"TPS: [\d.]+", "TPS"),
        (r" +", " "),
    ):
        printed = re.sub(pattern, name, printed)
    # Whether a member has committed in its retry topic depends on when it heard of that.
    return sorted(line.strip() for line in printed.splitlines() if line.strip() and not line.startswith("%RETRY%"))


def _filled(peer: Peer, cluster: Cluster) -> JavaClient:
    """Six messages in two queues of T, which the group G has consumed."""
    java = JavaClient(peer, cluster.name_server)
    java.create_topic("T", 2)
    java.send("T", *({"text": f"m{n}", "queue": n % 2, "keys": [f"k{n}"]} for n in range(6)))
    consumer = java.consume("T", "G")
    wait_until(lambda: len(consumer.bodies()) >= 6, within=40, what="six are consumed", every=0.1)
    consumer.stop()
    wait_until(lambda: java.lag("T", "G") == 0, within=10, what="all is committed", every=0.1)
    return java


def _options(printed: str) -> dict[str, str]:
    return {name.strip(): value.strip() for name, equals, value in map(_parts, printed.splitlines()) if equals}


def _parts(line: str) -> tuple[str, str, str]:
    return line.partition(" = ")


def _in_its_own_process(home: Path, *arguments: str) -> str:
    """This command of the tool can be given once in a process."""
    command = toolchain.java_command(
        "org.apache.rocketmq.tools.command.MQAdminStartup",
        *arguments,
        home=home,
        properties=(*toolchain.BRIEF, f"-Drocketmq.home.dir={home}"),
    )
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    return "\n".join(line for line in done.stdout.splitlines() if "|-" not in line)


def _printed(cluster: Apache | Embedded, home: Path) -> dict[str, list[str]]:
    """What the tool prints, by command."""
    peer = Peer(home)  # one process for each broker: the tool takes its time
    try:
        java = _filled(peer, cluster)
        address, name_server = cluster.broker_address, cluster.name_server
        found = {
            "brokerConsumeStats": _in_its_own_process(home, "brokerConsumeStats", "-b", address, "-n", name_server)
        }
        for line in COMMANDS.strip().splitlines():
            found[line] = java.admin(*(address if word == "BROKER" else word for word in line.split()))
        return {line: masked(printed) for line, printed in found.items()}
    finally:
        peer.stop()


def test_it_prints_the_same_of_both(both: tuple[Apache, Embedded], tmp_path: Path) -> None:
    with ThreadPoolExecutor() as pool:
        apache, embedded = pool.map(_printed, both, (tmp_path / "apache", tmp_path / "embedded"))
    assert embedded == apache
    assert all(apache.values())


def test_the_options_have_apaches_names_and_where_they_are_the_same_its_values(
    both: tuple[Apache, Embedded], peer: Peer
) -> None:
    theirs, ours = (
        _options(JavaClient(peer, cluster.name_server).admin("getBrokerConfig", "-b", cluster.broker_address))
        for cluster in both
    )
    of_the_jvm = {"rocketmq.broker.rebalance.lockMaxLiveTime", "tls.server.mode"}
    of_keys = {"authenticationEnabled", "authorizationEnabled"}  # there, options that this code leaves out
    assert ours.keys() - theirs.keys() == of_the_jvm | of_keys
    assert {name: ours[name] for name in SAME} == {name: theirs[name] for name in SAME}
    assert not [name for name in ours if "Path" in name or "Dir" in name]
    theirs, ours = (_options(JavaClient(peer, cluster.name_server).admin("getNamesrvConfig")) for cluster in both)
    assert ours.keys() <= theirs.keys()


@on_embedded
def test_the_offsets_of_a_group_are_cloned(cluster: Cluster, java: JavaClient, topic: str, group: str) -> None:
    java.create_topic(topic, 2)
    java.send(topic, *({"text": f"m{n}", "queue": n % 2} for n in range(6)))
    consumer = java.consume(topic, group)
    wait_until(lambda: len(consumer.bodies()) >= 6, within=40, what="six are consumed", every=0.1)
    consumer.stop()
    wait_until(lambda: java.lag(topic, group) == 0, within=10, what="all is committed", every=0.1)
    assert "success" in java.admin("cloneGroupOffset", "-s", group, "-d", f"{group}-b", "-t", topic)
    assert {line["committed"] for line in java.offsets(topic, f"{group}-b").values()} == {3}
