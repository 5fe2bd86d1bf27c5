"""The embedded broker at a name server of Apache RocketMQ, and the other way round: Java finds both brokers."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketapp.wire.lenient_json import loads
from tests.peers import toolchain
from tests.peers.bare import GET_ROUTE, Bare
from tests.peers.clusters import Apache, Embedded
from tests.peers.java_client import JavaClient, Peer
from tests.peers.waiting import wait_until

COUNT = 200
GET_MAX_OFFSET = 30


def _masters(name_server: str, topic: str) -> dict[str, str]:
    """What the name server says where the topic is, by broker name."""
    with Bare(name_server) as asking:
        answer = asking.ask(GET_ROUTE, topic=topic)
    return {one["brokerName"]: one["brokerAddrs"]["0"] for one in loads(answer.body or b"{}").get("brokerDatas", [])}


def _stored(broker: Apache | Embedded, topic: str) -> int:
    with Bare(broker.broker_address) as asking:
        return sum(int(asking.ask(GET_MAX_OFFSET, topic=topic, queueId=queue).fields["offset"]) for queue in range(4))


@pytest.mark.timeout(300)
def test_java_finds_the_embedded_broker_at_apaches_name_server_until_it_stops(peer: Peer, tmp_path: Path) -> None:
    apache = Apache(tmp_path / "apache", options=toolchain.BRIEF)
    try:
        ours = Embedded(tmp_path / "ours", broker_name="ours", options={"name_server": apache.name_server})
        try:
            both = {"broker-a": apache.broker_address, "ours": ours.broker_address}
            wait_until(lambda: _masters(apache.name_server, "TBW102") == both, within=10, what="it is registered")
            java = JavaClient(peer, apache.name_server)
            assert ours.broker_address in java.admin("clusterList")
            java.create_topic("shared", 4)
            wait_until(lambda: _masters(apache.name_server, "shared") == both, within=5, what="the topic is on both")
            assert len(java.produce("shared", COUNT, size=100).wait(within=60)["stored"]) == COUNT
            assert 0 < _stored(ours, "shared") < COUNT
            consumer = java.consume("shared", "readers")
            seen = list[str]()
            wait_until(lambda: seen.extend(consumer.bodies()) or len(set(seen)) == COUNT, within=60, what="all is read")
            java.stop_consumers()
        finally:
            ours.stop()
        assert _masters(apache.name_server, "shared") == {"broker-a": apache.broker_address}
        assert ours.broker_address not in JavaClient(peer, apache.name_server).admin("clusterList")
    finally:
        apache.stop()


@pytest.mark.timeout(200)
def test_java_finds_a_broker_of_apaches_at_the_embedded_name_server_until_it_ends(peer: Peer, tmp_path: Path) -> None:
    ours = Embedded(tmp_path / "ours", broker_name="ours", options={"registrations": "true"})
    apache = None
    try:
        apache = Apache(tmp_path / "apache", name_server=ours.name_server, options=toolchain.BRIEF)
        both = {"broker-a": apache.broker_address, "ours": ours.broker_address}
        java = JavaClient(peer, ours.name_server)
        assert apache.broker_address in java.admin("clusterList")
        java.create_topic("shared", 4)
        wait_until(lambda: _masters(ours.name_server, "shared") == both, within=15, what="the topic is on both")
        assert len(java.produce("shared", COUNT, size=100).wait(within=60)["stored"]) == COUNT
        assert 0 < _stored(ours, "shared") < COUNT
        assert _stored(ours, "shared") + _stored(apache, "shared") == COUNT
        apache.kill_broker()
        left = {"ours": ours.broker_address}
        wait_until(lambda: _masters(ours.name_server, "shared") == left, within=15, what="what is gone is in no route")
    finally:
        if apache is not None:
            apache.stop()
        ours.stop()
