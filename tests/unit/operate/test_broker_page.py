"""What a broker says of itself over HTTP: probes, figures and pages, of a real broker with a store on disk."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rocketapp.broker.facts import BrokerFacts
from rocketapp.model.subscription import SubscriptionData, parse_tags
from rocketapp.transport.connection import Connection
from rocketapp.wire.codes import RequestCode
from rocketapp.wire.command import Command
from rocketapp.wire.requests.clients import ConsumerData, Heartbeat
from tests.unit.operate.watched_broker import WatchedBroker

EVIL = "<script>alert('x')</script>"
SHOWN_EVIL = "&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WatchedBroker]:
    """It has 5 + 3 messages of orders, and one of stock; billing has committed 4 of the first queue.

    One message is delayed, one of an open transaction, one dead.
    """
    with WatchedBroker(tmp_path_factory.mktemp("store")).serving() as one:
        one.send("orders", *(b"%d" % number for number in range(5)))
        one.send("orders", b"a", b"b", b"c", queue=1)
        one.send("stock", b"crate", queues=1)
        one.commit("billing", "orders", 0, 4)
        one.send("%DLQ%billing", b"dead", queues=1)
        one.send("stock", b"x", DELAY="18", UNIQ_KEY="D1", KEYS=EVIL)
        one.send("orders", b"half", TRAN_MSG="true", PGROUP="makers", UNIQ_KEY="T1")
        yield one


def rows(html: str, card: str) -> list[list[str]]:
    """The text of the cells of a card's table."""
    (section,) = re.findall(rf'<section class="card"><h2 id="{card}".*?</section>', html, re.DOTALL)
    return [
        [re.sub(r"<.*?>", "", cell) for cell in re.findall(r"<td.*?>(.*?)</td>", row)]
        for row in re.findall(r"<tr.*?>(.*?)</tr>", section)[1:]
    ]


def test_probes_and_figures_are_answered(broker: WatchedBroker) -> None:
    assert broker.get("/health") == (200, "alive\n")
    assert broker.get("/ready") == (200, "ready\n")
    found = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(broker.get("/metrics").text)
        for sample in family.samples
    }
    assert found["rocketapp_broker_stored_total",] == 12
    assert found["rocketapp_broker_lag", ("group", "billing"), ("topic", "orders")] == 1 + 3
    assert found["rocketapp_broker_dead_letters", ("group", "billing")] == 1
    assert found["rocketapp_broker_log_bytes",] > 0


def test_the_page_has_topics_and_groups_with_their_numbers(broker: WatchedBroker) -> None:
    page = broker.get("/").text
    assert [row[:3] for row in rows(page, "topics")] == [["orders", "2", "8"], ["stock", "1", "1"]]
    assert rows(page, "groups") == [["billing", "0", "1", "4", "1"]]


def test_a_topic_and_a_group_have_a_page_of_their_own(broker: WatchedBroker) -> None:
    page = broker.get("/topic?name=orders").text
    assert [row[:4] for row in rows(page, "topic-orders")] == [["queue 0", "0", "5", "5"], ["queue 1", "0", "3", "3"]]
    assert '<a href="/group?name=billing">billing</a>' in page
    page = broker.get("/group?name=billing").text
    assert rows(page, "queues") == [["orders queue 1", "none", "3", "3"], ["orders queue 0", "4", "5", "1"]]
    assert "There is no such topic." in broker.get("/topic?name=nothing").text


def test_a_member_is_shown_while_it_is_connected(broker: WatchedBroker) -> None:
    async def joined(connection: Connection) -> str:
        subscription = SubscriptionData("orders", "paid || refunded", parse_tags("paid || refunded"), 1)
        heartbeat = Heartbeat("it<b>", (), (ConsumerData("billing", subscriptions=(subscription,)),))
        await connection.start_request(Command(RequestCode.HEART_BEAT, {}, heartbeat.encode()), timeout=30.0)
        return (await asyncio.to_thread(broker.get, "/group?name=billing")).text

    page = broker.on_connection(joined)
    assert [row[0] for row in rows(page, "group-billing")] == ["it&lt;b&gt;"]
    assert "paid || refunded" in page


def test_a_topic_is_found_by_a_part_of_its_name(broker: WatchedBroker) -> None:
    assert [row[0] for row in rows(broker.get("/topics?find=toc").text, "topics")] == ["stock"]
    assert "TBW102" in broker.get("/topics?find=TB&every=1").text
    assert "No topic has this in its name." in broker.get(f"/topics?find={EVIL}").text
    assert EVIL not in broker.get(f"/topics?find={EVIL}").text


def test_what_waits_is_shown(broker: WatchedBroker) -> None:
    page = broker.get("/waiting").text
    assert [row[1:] for row in rows(page, "delayed")] == [["stock", f"D1{SHOWN_EVIL}"]]
    assert [row[1:] for row in rows(page, "open-transactions")] == [["orders", "T1", "makers", "0"]]


def test_the_pages_are_for_a_known_name_alone_and_probes_for_all(broker: WatchedBroker) -> None:
    assert broker.get("/", Host="evil.example").status == 403
    assert broker.get("/health", Host="evil.example").status == 200
    assert broker.get("/nothing").status == 404
    assert broker.get("/?" + "a=1&" * 20).status == 400


def test_a_part_that_fails_is_said_and_the_others_are_there(
    broker: WatchedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BrokerFacts, "groups", lambda self: 1 / 0)
    page = broker.get("/").text
    assert "this part failed: the log has the traceback" in page
    assert [row[0] for row in rows(page, "topics")] == ["orders", "stock"]
    assert broker.get("/ready").status == 200


def test_a_name_that_no_broker_makes_is_text(tmp_path: Path) -> None:
    """The tables may be of another program."""
    (tmp_path / "config").mkdir()
    topic = {"topicName": EVIL, "readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "topicFilterType": "SINGLE_TAG"}
    saved = {"dataVersion": {"counter": 1, "timestamp": 1}, "topicConfigTable": {EVIL: topic}}
    (tmp_path / "config/topics.json").write_text(json.dumps(saved))
    with WatchedBroker(tmp_path).serving() as broker:
        page = broker.get("/").text
        assert SHOWN_EVIL in re.sub("<wbr>", "", page)
        assert "<script>alert" not in page
