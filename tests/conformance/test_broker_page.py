"""The numbers on the embedded broker's page are those that Apache's admin tool prints of the same broker."""

from __future__ import annotations

import re
from pathlib import Path

from tests.peers.java_client import JavaClient, Peer
from tests.unit.operate.test_broker_page import rows
from tests.unit.operate.watched_broker import WatchedBroker


def printed(text: str, begin: str) -> list[list[str]]:
    """The words of lines that begin so, sorted by the number of their queue."""
    lines = [line.split() for line in text.splitlines() if line.startswith(begin)]
    return sorted(lines, key=lambda words: int(words[words.index("broker-a") + 1]))


def test_offsets_of_topics_and_progress_of_groups_are_those_of_the_admin_tool(tmp_path: Path, peer: Peer) -> None:
    with WatchedBroker(tmp_path).serving() as broker:
        java = JavaClient(peer, broker.address)
        java.create_topic("orders", 4)
        java.send("orders", *({"text": f"m{n}", "queue": n % 3} for n in range(40)))
        for queue, offset in ((0, 14), (1, 5)):
            broker.commit("billing", "orders", queue, offset)
        # The tool looks for the retry topic, which a group has from its first member on.
        broker.joined("billing", "orders", "*", "it", lambda: None)

        status = printed(java.admin("topicStatus", "-t", "orders"), "broker-a")
        shown = rows(broker.get("/topic?name=orders").text, "topic-orders")
        assert [[row[0], *row[1:3]] for row in shown] == [[f"queue {qid}", low, end] for _, qid, low, end, *_ in status]
        assert len(shown) == 4

        told = java.admin("consumerProgress", "-g", "billing")
        progress = {f"orders queue {row[2]}": row for row in printed(told, "orders")}
        shown = rows(broker.get("/group?name=billing").text, "queues")
        assert {row[0]: row[2:] for row in shown} == {name: [row[3], row[5]] for name, row in progress.items()}
        assert {row[0]: row[1] for row in shown if row[1] != "none"} == {
            name: progress[name][4] for name in ("orders queue 0", "orders queue 1")
        }
        (total,) = re.findall(r"Diff Total: (\d+)", told)
        assert rows(broker.get("/").text, "groups") == [["billing", "0", "1", total, "0"]]
