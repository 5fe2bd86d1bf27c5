"""What a broker says of itself over HTTP: probes, figures and pages, of a real broker with a store on disk."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rocketapp.broker.broker_state import BrokerFacts, QueueState
from rocketapp.wire.codes import RequestCode
from rocketapp.wire.replication import encode_report
from tests.peers.bare import Bare
from tests.peers.clusters import free_port
from tests.peers.waiting import wait_until
from tests.unit.operate.watched_broker import WatchedBroker

EVIL = "<script>alert('x')</script>"
SHOWN_EVIL = "&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WatchedBroker]:
    """It has 5 + 3 messages of orders, and one of stock; billing has committed 4 of the first queue.

    One message has a delay level and one a timer, one is of an open transaction, and one dead.
    """
    with WatchedBroker(tmp_path_factory.mktemp("store")).serving() as one:
        one.send("orders", *(b"%d" % number for number in range(5)))
        one.send("orders", b"a", b"b", b"c", queue=1)
        one.send("stock", b"crate", queues=1)
        one.commit("billing", "orders", 0, 4)
        one.send("%DLQ%billing", b"dead", queues=1, UNIQ_KEY="L1", RETRY_TOPIC="orders", **{"rocketapp.reason": EVIL})
        one.send("odd", EVIL.encode(), queues=1, UNIQ_KEY="E1", KEYS=f"k1 {EVIL}", TAGS=EVIL, evil=EVIL)
        one.send("odd", b"\xff\x00", queues=1, UNIQ_KEY="E2")
        one.send("stock", b"x", DELAY="18", UNIQ_KEY="D1", KEYS=EVIL)
        one.send("stock", b"y", TIMER_DELAY_SEC="3600", UNIQ_KEY="D2")
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
    assert found["rocketapp_broker_stored_total",] >= 14
    assert found["rocketapp_broker_lag", ("group", "billing"), ("topic", "orders")] == 1 + 3
    assert found["rocketapp_broker_dead_letters", ("group", "billing")] == 1
    assert found["rocketapp_broker_log_bytes",] > 0


def test_the_page_has_topics_and_groups_with_their_numbers(broker: WatchedBroker) -> None:
    page = broker.get("/").text
    assert [row[:3] for row in rows(page, "topics")] == [["odd", "1", "2"], ["orders", "2", "8"], ["stock", "1", "1"]]
    assert rows(page, "groups") == [["billing", "0", "1", "4", "1"]]


def test_slaves_are_shown_with_what_they_lack_as_the_admin_tool_does(tmp_path: Path) -> None:
    port, ha_port = free_port(around=(0, -2)), free_port()  # slaves ask two below the broker's
    with WatchedBroker(tmp_path, listen=f"127.0.0.1:{port}", ha_port=ha_port).serving() as broker:
        assert "No slave copies the log now." in broker.get("/").text
        broker.send("orders", b"one", b"two")
        with socket.create_connection(("127.0.0.1", ha_port)) as slave:
            slave.sendall(encode_report(0))
            wait_until(lambda: "127.0.0.1</b>" in broker.get("/").text, within=10, what="the slave is shown")
            with Bare(broker.address) as asking:
                status = json.loads(asking.ask(RequestCode.GET_BROKER_HA_STATUS).body)
            (line,) = status["haConnectionInfo"]
            assert rows(broker.get("/").text, "slaves") == [["127.0.0.1", "0", f"{line['diff']:,}"]]
            assert line["diff"] == status["masterCommitLogMaxOffset"] > 0
            metrics = broker.get("/metrics").text
            assert "\nrocketapp_broker_slaves 1\n" in metrics
            assert f"\nrocketapp_broker_slaves_behind_bytes {line['diff']}\n" in metrics


def test_a_slave_says_whether_it_copies_its_master(tmp_path: Path) -> None:
    port, ha_port = free_port(around=(0, -2)), free_port()
    slave = WatchedBroker(tmp_path / "slave", role="slave", id=1, master=f"127.0.0.1:{port}")
    with slave.serving():
        assert "copies nobody now: its log says why" in slave.get("/").text
        assert "\nrocketapp_broker_copies 0\n" in slave.get("/metrics").text
        with WatchedBroker(tmp_path / "master", listen=f"127.0.0.1:{port}", ha_port=ha_port).serving() as master:
            said = f"copies 127.0.0.1:{ha_port}"
            wait_until(lambda: said in slave.get("/").text, within=20, what="the master is copied")
            assert "\nrocketapp_broker_copies 1\n" in slave.get("/metrics").text
            assert "rocketapp_broker_copies" not in master.get("/metrics").text
            master.send("orders", b"hello")
            master.send("%DLQ%billing", b"dead", queues=1, RETRY_TOPIC="orders")
            wait_until(lambda: "billing" in slave.get("/topics?every=1").text, within=20, what="it has their topics")
        wait_until(lambda: "copies nobody now" in slave.get("/").text, within=20, what="the master is gone")
        assert "hello</code>" in slave.get("/messages?topic=orders").text
        letters = slave.get("/dead-letters?group=billing").text
        assert len(rows(letters, "dead-letters")) == 1
        assert "<form" not in letters  # a slave sends nothing


def test_where_nobody_may_copy_the_log_the_page_has_no_slaves(broker: WatchedBroker) -> None:
    page = broker.get("/").text
    assert '<h2 id="slaves">' not in page
    assert "async master" in page


def test_a_topic_and_a_group_have_a_page_of_their_own(broker: WatchedBroker) -> None:
    page = broker.get("/topic?name=orders").text
    assert [row[:4] for row in rows(page, "topic-orders")] == [["queue 0", "0", "5", "5"], ["queue 1", "0", "3", "3"]]
    assert '<a href="/group?name=billing">billing</a>' in page
    page = broker.get("/group?name=billing").text
    assert rows(page, "queues") == [["orders queue 1", "none", "3", "3"], ["orders queue 0", "4", "5", "1"]]
    assert "There is no such topic." in broker.get("/topic?name=nothing").text


def test_a_member_is_shown_while_it_is_connected(broker: WatchedBroker) -> None:
    page = broker.joined(
        "billing", "orders", "paid || refunded", "it<b>", lambda: broker.get("/group?name=billing")
    ).text
    assert [row[0] for row in rows(page, "group-billing")] == ["it&lt;b&gt;"]
    assert "paid || refunded" in page


def test_a_topic_is_found_by_a_part_of_its_name(broker: WatchedBroker) -> None:
    assert [row[0] for row in rows(broker.get("/topics?find=toc").text, "topics")] == ["stock"]
    assert "TBW102" in broker.get("/topics?find=TB&every=1").text
    assert "No topic has this in its name." in broker.get(f"/topics?find={EVIL}").text
    assert EVIL not in broker.get(f"/topics?find={EVIL}").text


def test_what_waits_is_shown(broker: WatchedBroker) -> None:
    page = broker.get("/waiting").text
    assert [row[1:] for row in rows(page, "delayed")] == [["stock", "D2"], ["stock", f"D1{SHOWN_EVIL}"]]
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
    assert [row[0] for row in rows(page, "topics")] == ["odd", "orders", "stock"]
    assert broker.get("/ready").status == 200


def test_a_broker_in_memory_replays_and_leaves_nothing(tmp_path: Path) -> None:
    with WatchedBroker(tmp_path / "store", memory=True).serving() as one:
        one.send("%DLQ%billing", b"dead", queues=1, RETRY_TOPIC="orders")
        page = one.get("/dead-letters?group=billing").text
        fields = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', page))
        assert "was replayed" in one.post("/replay", **fields).text
        assert "was replayed before" in one.post("/replay", **fields).text
        assert "in memory" in one.get("/").text
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_stores_no_more_is_said_everywhere(broker: WatchedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    state = BrokerFacts.state
    problem = "the store is read-only since: sync failed"
    monkeypatch.setattr(BrokerFacts, "state", lambda self: replace(state(self), problem=problem))
    assert broker.get("/health").status == 200
    assert broker.get("/ready") == (503, f"not ready\n{problem}\n")
    assert "rocketapp_broker_ready 0" in broker.get("/metrics").text
    page = broker.get("/").text
    assert "read-only</span>" in page
    assert problem in page


def test_a_loop_that_does_not_run_is_said_and_the_next_question_is_answered(
    broker: WatchedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rocketapp.operate.broker_requests.PROBED_WITHIN", 0.05)
    may_go_on = threading.Event()
    broker.loop.call_soon_threadsafe(may_go_on.wait, 30)
    assert broker.get("/health") == (503, "the event loop of the broker does not answer\n")
    may_go_on.set()
    monkeypatch.undo()
    assert broker.get("/health").status == 200


def test_a_walk_over_many_queues_lets_others_have_their_turn(
    broker: WatchedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rocketapp.operate.broker_console.LONGEST_TURN", 0.0)
    turns, is_over = 0, False

    def count() -> None:
        nonlocal turns
        turns += 1
        if not is_over:
            broker.loop.call_soon(count)

    def looked(self: BrokerFacts, topic: str) -> Iterator[QueueState]:
        for queue_id in range(50):
            seen.append(turns)
            yield QueueState(queue_id, 0, 0, 0)

    seen: list[int] = []
    monkeypatch.setattr(BrokerFacts, "queues", looked)
    broker.loop.call_soon_threadsafe(count)
    try:
        assert broker.get("/topic?name=orders").status == 200
    finally:
        is_over = True
    assert len(set(seen)) == 50


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


def test_messages_are_found_by_topic_key_id_and_time(broker: WatchedBroker) -> None:
    def ids(query: str) -> list[str]:
        return [row[2] for row in rows(broker.get(f"/messages?{query}").text, "messages-of-odd")]

    assert ids("topic=odd") == ["E2", "E1"]
    assert ids("topic=odd&by=key&value=k1") == ["E1"]
    assert ids("topic=odd&by=id&value=E2") == ["E2"]
    assert ids("topic=odd&by=time&value=2026-01-01 00:00:00".replace(" ", "%20")) == ["E1", "E2"]
    assert ids("topic=odd&by=time&value=9000-01-01") == []
    assert "write a time as" in broker.get("/messages?topic=odd&by=time&value=soon").text
    assert "no broker holds it" in broker.get("/messages?topic=nowhere").text
    assert "No message was found." in broker.get("/messages?by=id&value=E1").text


def test_a_message_is_shown_whole_and_all_that_strangers_wrote_is_text(broker: WatchedBroker) -> None:
    listed = broker.get("/messages?topic=odd").text
    assert "<script>alert" not in listed
    assert SHOWN_EVIL in listed.replace("<wbr>", "")
    second, first = re.findall(r'href="(/message\?at=\d+)"', listed)
    page = broker.get(first).text
    assert "<script>alert" not in page
    assert f'<pre class="body">{SHOWN_EVIL}</pre>' in page
    assert page.replace("<wbr>", "").count(SHOWN_EVIL) == 4  # key, tag, property and body
    assert '<pre class="body">ff 00</pre>' in broker.get(second).text
    assert "No message begins there." in broker.get("/message?at=7").text
    assert "No message begins there." in broker.get("/message?at=many").text


def test_a_dead_letter_is_replayed_with_the_token_of_its_page_alone(broker: WatchedBroker) -> None:
    page = broker.get("/dead-letters?group=billing").text
    assert SHOWN_EVIL in page.replace("<wbr>", "")
    assert "<script>alert" not in page
    fields = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', page))
    assert fields.keys() == {"group", "id", "token"}
    assert broker.post("/replay", **{**fields, "token": "guessed"}).status == 403
    assert broker.post("/replay", **{**fields, "group": "../up"}).status == 400
    assert broker.post("/replay", headers={"Origin": "http://evil.example"}, **fields).status == 403
    assert broker.post("/replay", group="billing", id=fields["id"]).status == 400
    assert broker.get("/replay").status == 405
    assert "was replayed" in broker.post("/replay", **fields).text
    assert "was replayed before" in broker.post("/replay", **fields).text
    assert rows(broker.get("/topic?name=%25RETRY%25billing").text, "topic-%retry%billing")[0][3] == "1"
    assert broker.post("/replay", **{**fields, "id": "nothing"}).status == 503
