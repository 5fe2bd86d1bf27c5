"""What is answered over HTTP, and what is refused."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import re
from collections.abc import Mapping
from typing import Literal
from urllib.parse import urlencode

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rocketapp import RocketApp
from rocketapp.app.settings import Settings
from rocketapp.asyncapi.document import document_of, encoded
from rocketapp.errors import SetupError
from rocketapp.operate import app_console
from rocketapp.operate.app_requests import answer
from rocketapp.operate.app_state import AppState
from rocketapp.operate.http_messages import Request, Response
from tests.cases import cases
from tests.unit.operate.views import letter, now_of, queue_at, seen, snapshot_of, stall

OPEN = {"host": "127.0.0.1:8080"}
ORDERS = urlencode({"topic": "orders", "group": "shop"}).encode()
LETTER = urlencode({"group": "shop", "id": "7F01"}).encode()
TRIED = urlencode({"handler": "app:settle orders shop", "tag": "", "body": '{"cents": 5} <b>'}).encode()
EVIL = "<script>alert('x')</script>"


class AppConsole(app_console.AppConsole):
    """Says what it is given, and keeps what was asked of it."""

    def __init__(self, now: AppState) -> None:
        super().__init__("shop", {}, patience=30.0, draining=asyncio.Event(), ask=lambda number, fields: None)
        self.shown = now
        self.changes: list[tuple[str, str, str]] = []

    def state(self) -> AppState:
        return self.shown

    def change(self, call: Literal["pause", "resume"], topic: str, group: str) -> None:
        if topic != "orders":
            raise SetupError("", "no handler of the app takes this topic in this group")
        self.changes.append((call, topic, group))

    def replay(self, group: str, identity: str) -> str:
        self.changes.append(("replay", identity, group))
        return f"dead letter {identity} was replayed"

    def try_handler(self, handler: str, body: str, tag: str) -> str:
        self.changes.append(("try", handler, body))
        return f"Done: {body}"

    def describe(self) -> bytes:
        if not self.shown.processes:
            raise SetupError("", "no worker has described the app yet: ask again")
        return encoded(document_of(RocketApp("shop"), Settings())).encode()


def get(path: str, now: AppState | None = None, headers: Mapping[str, str] = OPEN) -> Response:
    return answer(Request(method="GET", path=path, headers=headers), AppConsole(now or now_of(seen())), "shop.internal")


def post(
    console: AppConsole,
    path: str = "/pause",
    *,
    headers: Mapping[str, str] = OPEN,
    peer: str = "127.0.0.1",
    body: bytes = ORDERS,
) -> Response:
    request = Request(method="POST", path=path, headers=headers, body=body, peer=peer)
    return answer(request, console, "shop.internal")


@pytest.mark.parametrize(("seconds", "status", "word"), [(29.0, 200, "ready"), (31.0, 503, "not ready")])
def test_ready_names_the_reasons_also_while_they_need_no_person(seconds: float, status: int, word: str) -> None:
    found = get("/ready", now_of(seen(stall("pull failed: refused", seconds))))
    reason = "group shop: orders@broker-a:0 stands still: pull failed: refused"
    assert (found.status, found.body.decode().splitlines()) == (status, [word, reason])


def test_metrics_are_prometheus_text_summed_over_processes_and_those_that_are_gone() -> None:
    processes = [seen(snapshot=snapshot_of(queue_at(10, queue_id=number), handled=2)) for number in range(3)]
    found = get("/metrics", now_of(*processes, gone=snapshot_of(handled=10)))
    samples = {
        sample.name: sample.value
        for family in text_string_to_metric_families(found.body.decode())
        for sample in family.samples
    }
    assert found.content_type.startswith("text/plain; version=0.0.4")
    assert samples["rocketapp_handler_done_total"] == 16
    assert samples["rocketapp_group_queues"] == 3
    assert (samples["rocketapp_ready"], samples["rocketapp_processes"]) == (1, 3)


def test_the_page_shows_handlers_queues_reasons_and_failures_and_runs_nothing_that_a_stranger_wrote() -> None:
    snapshot = snapshot_of(queue_at(10, unfinished=3, still=EVIL), handled=1234, dropped=5678, topic=EVIL)
    found = get("/", now_of(seen(stall(EVIL, 99.0), snapshot=snapshot, failures=[EVIL, "dead letter"])))
    text = found.body.decode()
    assert text.count("<script") == 1  # ours, which the content policy knows
    assert text.count("&lt;script&gt;") >= 5
    for shown in ("app:settle", "1,234", "5,678", "orders@broker-a:0", "dead letter", "2023-11-14 22:13:21"):
        assert shown in text
    assert "not ready" in text
    policy = found.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    for kind in ("script", "style"):
        (own,) = re.findall(rf"<{kind}>(.*?)</{kind}>", text, re.DOTALL)
        assert f"{kind}-src 'sha256-{base64.b64encode(hashlib.sha256(own.encode()).digest()).decode()}';" in policy
    assert not re.search(r'(src|href)=(?!"/(docs|metrics|try)"|"#[a-z-]+")|https?://', text)


@pytest.mark.parametrize("is_paused", [True, False])
def test_the_page_says_which_topics_are_paused_and_has_the_button_that_fits(is_paused: bool) -> None:
    paused = {"orders": "paused: by an operator"} if is_paused else {}
    text = get("/", now_of(seen(snapshot=snapshot_of(queue_at(10), paused=paused)))).body.decode()
    topics = text.partition('id="topics"')[2].partition("<h2")[0]
    assert ("paused: by an operator" in topics) is is_paused
    assert ('aria-label="Resume orders of shop"' in topics) is is_paused
    assert ('aria-label="Pause orders of shop"' in topics) is not is_paused


def test_the_page_of_thousands_of_queues_shows_those_that_stand_still_first() -> None:
    queues = [queue_at(10, queue_id=number, still="paused" if number == 4999 else "") for number in range(5000)]
    text = get("/", now_of(seen(snapshot=snapshot_of(*queues)))).body.decode()
    assert "orders@broker-a:4999" in text
    assert "and 4800 more queues" in text


def test_doctor_says_the_findings_as_json() -> None:
    said = json.loads(get("/doctor", now_of(seen(stall("paused: by hand", 40.0)))).body)
    assert (said["app"], said["ready"]) == ("shop", False)
    assert said["findings"][0]["mend"].endswith("app.resume('orders')")
    assert said["findings"][0]["needs_person"] is True


def test_an_unknown_path_and_another_method_are_refused() -> None:
    assert get("/etc/passwd").status == 404
    deleted = answer(Request(method="DELETE", path="/ready"), AppConsole(now_of(seen())), "h")
    assert (deleted.status, deleted.headers["Allow"]) == (405, "GET, HEAD")
    assert get("/pause").status == 405


@pytest.mark.parametrize("host", ["127.0.0.1:8080", "[::1]:8080", "localhost", "shop.internal:80", "10.0.0.7:8080"])
def test_the_page_opens_under_addresses_and_its_own_name(host: str) -> None:
    assert get("/", headers={"host": host}).status == 200


@pytest.mark.parametrize("host", ["evil.example:8080", "127.0.0.1.evil.example", "localhost.evil.example", "a:b:c"])
def test_the_page_does_not_open_under_a_name_that_a_stranger_may_have_made(host: str) -> None:
    for path in ("/", "/doctor"):
        assert get(path, headers={"host": host}).status == 403
    assert get("/ready", headers={"host": host}).status == 200


def test_a_form_of_the_page_pauses_and_leads_back() -> None:
    console = AppConsole(now_of(seen()))
    found = post(console, headers={**OPEN, "origin": "http://127.0.0.1:8080", "sec-fetch-site": "same-origin"})
    assert (found.status, found.headers["Location"]) == (303, "/")
    assert console.changes == [("pause", "orders", "shop")]


def test_a_command_line_pauses_as_well() -> None:
    console = AppConsole(now_of(seen()))
    assert post(console, headers=OPEN, peer="::ffff:127.0.0.1").status == 303
    assert console.changes


@cases(
    "headers, peer",
    [
        ({**OPEN, "origin": "http://evil.example"}, "127.0.0.1"),
        ({**OPEN, "origin": "null"}, "127.0.0.1"),
        ({**OPEN, "origin": "http://127.0.0.1:9090"}, "127.0.0.1"),
        ({**OPEN, "sec-fetch-site": "cross-site"}, "127.0.0.1"),
        ({**OPEN, "sec-fetch-site": "same-site"}, "127.0.0.1"),
        ({"host": "evil.example", "origin": "http://evil.example"}, "127.0.0.1"),
        ({}, "127.0.0.1"),
        (OPEN, "192.0.2.7"),
        (OPEN, "::ffff:192.0.2.7"),
        ({**OPEN, "x-forwarded-for": "192.0.2.7"}, "127.0.0.1"),
    ],
    ids=["site", "sandbox", "port", "fetched", "sibling", "rebound", "nameless", "far", "far in 6", "by a proxy"],
)
def test_what_may_come_from_elsewhere_changes_nothing(headers: dict[str, str], peer: str) -> None:
    console = AppConsole(now_of(seen(), may_try=True))
    for path, body in (("/pause", ORDERS), ("/replay", LETTER), ("/try", TRIED)):
        assert post(console, path, headers=headers, peer=peer, body=body).status == 403
    assert console.changes == []


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"topic=orders", 400),
        (b"\xff=1", 400),
        (b"topic=a&topic=b&group=c", 400),
        (b"topic=o&group=g", 404),
    ],
)
def test_a_form_that_names_no_topic_of_the_app_is_refused(body: bytes, status: int) -> None:
    assert post(AppConsole(now_of(seen())), headers=OPEN, body=body).status == status


def test_a_dead_letter_has_its_reason_and_a_button_that_replays_it() -> None:
    process = seen(letters=[letter(f"KeyError: {EVIL}")])
    text = get("/", now_of(process)).body.decode()
    letters = text.partition('id="last-dead-letters"')[2].partition("<h2")[0]
    assert "KeyError: &lt;script&gt;" in letters
    assert "app:settle at orders, message 7F01, attempt 16" in letters
    assert '<form method="post" action="/replay"><input type="hidden" name="group" value="shop">' in letters
    console = AppConsole(now_of(process))
    found = post(console, "/replay", body=LETTER)
    assert (found.status, console.changes) == (200, [("replay", "7F01", "shop")])
    assert "dead letter 7F01 was replayed" in found.body.decode()


def test_a_handler_is_tried_and_the_form_keeps_what_was_given() -> None:
    console = AppConsole(now_of(seen(), may_try=True))
    assert "<option>app:settle orders shop</option>" in get("/try", console.shown).body.decode()
    assert "/try" in get("/", console.shown).body.decode()
    found = post(console, "/try", body=TRIED)
    assert (found.status, console.changes) == (200, [("try", "app:settle orders shop", '{"cents": 5} <b>')])
    text = found.body.decode()
    assert "Done: {&quot;cents&quot;: 5} &lt;b&gt;" in text
    assert "<option selected>app:settle orders shop</option>" in text
    assert "<b>" not in text


def test_outside_of_development_nothing_is_tried() -> None:
    console = AppConsole(now_of(seen()))
    assert (post(console, "/try", body=TRIED).status, get("/try").status) == (403, 403)
    assert "/try" not in get("/").body.decode()
    assert console.changes == []


def test_the_document_and_its_page_are_for_those_who_may_see_the_page() -> None:
    document, page = get("/asyncapi.json"), get("/docs")
    assert (document.status, json.loads(document.body)["info"]["title"]) == (200, "shop")
    assert (page.status, page.content_type) == (200, "text/html; charset=utf-8")
    assert "default-src 'none'" in page.headers["Content-Security-Policy"]
    for path in ("/asyncapi.json", "/docs"):
        assert get(path, headers={"host": "evil.example"}).status == 403


def test_a_document_that_no_worker_tells_yet_is_asked_for_again() -> None:
    found = get("/docs", now_of())
    assert (found.status, found.body) == (503, b"no worker has described the app yet: ask again\n")
