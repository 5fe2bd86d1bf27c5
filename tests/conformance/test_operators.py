"""What Apache's own admin tool shows of a member of ours, and has it do.

The embedded broker moves groups by itself, and does not ask members how far they are: those cases run on Apache's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.conftest import RunApp, on_apache
from tests.peers.bare import Bare
from tests.peers.clusters import Apache, Cluster
from tests.peers.java_client import JavaClient
from tests.peers.running_app import RunningApp
from tests.peers.waiting import wait_until

TAKE = """
app = RocketApp("{group}")

@app.subscribe("{topic}", start="first")
async def take(message: Message) -> None:
    note("seen", message)
    if message.text().startswith("slow"):
        await asyncio.sleep(3600)
    note("done", message)
"""
INVOKE_BROKER_TO_GET_CONSUMER_STATUS = 223
QUICK = {"ROCKETAPP_CONSUMER__LONG_POLL": "1"}


@pytest.fixture
def consumed(java: JavaClient, run_app: RunApp, topic: str, group: str) -> RunningApp:
    """A member that has taken ten messages of two queues."""
    java.create_topic(topic, 2)
    java.send(topic, *({"text": f"m{n}", "queue": n % 2} for n in range(10)))
    source = TAKE.replace("{group}", group).replace("{topic}", topic)
    app = run_app(source, "--drain-timeout", "0", environment=QUICK)
    app.wait_for_count(10, within=20)
    wait_until(lambda: java.lag(topic, group) == 0, within=15, what="all is committed", every=0.2)
    return app


def test_the_tool_shows_what_a_member_does(java: JavaClient, consumed: RunningApp, topic: str, group: str) -> None:
    java.send(topic, {"text": "slow", "queue": 1})
    consumed.wait_for_count(11, "seen", within=20)
    (member,) = java.members(group)["ids"]
    shown = java.admin("consumerStatus", "-g", group, "-i", member, "-s", "true")
    rows = {line.split()[2]: line for line in shown.splitlines() if line.startswith(topic) and "commitOffset" in line}
    assert rows.keys() == {"0", "1"}, shown
    assert "commitOffset=5, cachedMsgMinOffset=5, cachedMsgMaxOffset=5, cachedMsgCount=1" in rows["1"]
    assert "commitOffset=5, cachedMsgMinOffset=0, cachedMsgMaxOffset=0, cachedMsgCount=0" in rows["0"]
    # Pull RT, Pull TPS, Consume RT, ConsumeOK TPS, ConsumeFailed TPS, and what failed in the last hour.
    ((_, pulled, _, handled, failed, failed_in_hour),) = re.findall(
        rf"^{topic} +([\d.]+) +([\d.]+) +([\d.]+) +([\d.]+) +([\d.]+) +(\d+)$", shown, re.MULTILINE
    )
    assert float(pulled) >= float(handled) > 0
    assert (float(failed), failed_in_hour) == (0, "0")
    for wanted in ("CONSUME_PASSIVELY", "consumer.queue_max_messages", f"%RETRY%{group}", "at take"):
        assert wanted in shown
    # Members together: the tool compares their subscriptions and queues.
    together = java.admin("consumerStatus", "-g", group)
    assert member in together
    assert "Same subscription in the same group of consumer" in together
    assert "Rebalance OK" in together
    progress = [line.split() for line in java.admin("consumerProgress", "-g", group).splitlines() if topic in line]
    assert sorted((row[2], row[5]) for row in progress if row[0] == topic) == [("0", "0"), ("1", "1")]
    assert member in java.admin("consumerConnection", "-g", group)


def test_the_tool_has_a_member_consume_a_message(
    java: JavaClient, consumed: RunningApp, topic: str, group: str
) -> None:
    (sent,) = java.send(topic, "again")
    consumed.wait_for_count(11, within=20)
    (member,) = java.members(group)["ids"]
    shown = java.admin("queryMsgById", "-t", topic, "-i", sent["offset_id"], "-g", group, "-d", member)
    assert "consumeResult=CR_SUCCESS" in shown
    consumed.wait_for_count(12, within=20)
    assert consumed.texts().count("again") == 2


@on_apache
def test_a_broker_is_told_how_far_a_member_is(
    java: JavaClient, cluster: Cluster, consumed: RunningApp, topic: str, group: str
) -> None:
    assert isinstance(cluster, Apache)
    with Bare(cluster.broker_address) as asking:
        told = asking.ask(INVOKE_BROKER_TO_GET_CONSUMER_STATUS, topic=topic, group=group, clientAddr="").body.decode()
    (member,) = java.members(group)["ids"]
    assert f'"{member}":' in told
    offsets = re.findall(rf'"queueId":(\d),"topic":"{topic}"\}}:(\d+)', told)
    assert sorted(offsets) == [("0", "5"), ("1", "5")], told


@pytest.fixture
def moved_by_members(java: JavaClient, cluster: Cluster) -> Iterator[None]:
    """The broker leaves it to the members to move their group."""
    assert isinstance(cluster, Apache)

    def server_side(value: str) -> None:
        option = ("-k", "useServerSideResetOffset", "-v", value)
        assert "success" in java.admin("updateBrokerConfig", "-b", cluster.broker_address, *option)

    server_side("false")
    yield
    server_side("true")


def moved(java: JavaClient, app: RunningApp, topic: str, group: str) -> list[str]:
    """What the member has taken in all, once the tool has moved its group to the beginning."""
    assert topic in java.admin("resetOffsetByTime", "-g", group, "-t", topic, "-s", "0")
    app.wait_for_count(20, within=40)
    wait_until(lambda: java.lag(topic, group) == 0, within=15, what="all is committed again", every=0.2)
    return sorted(app.texts())


TWICE = sorted(2 * [f"m{n}" for n in range(10)])


def test_the_tool_moves_a_group_by_its_broker(java: JavaClient, consumed: RunningApp, topic: str, group: str) -> None:
    assert moved(java, consumed, topic, group) == TWICE


@on_apache
@pytest.mark.usefixtures("moved_by_members")
def test_the_tool_moves_a_group_by_its_members(java: JavaClient, consumed: RunningApp, topic: str, group: str) -> None:
    assert moved(java, consumed, topic, group) == TWICE
