"""The page in a real browser: it is styled, runs nothing, and its buttons work while those of other sites do not."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from rocketapp.operate.app_requests import answering
from rocketapp.operate.server import OperatorServer
from tests.unit.cli.processes import wait_until
from tests.unit.operate.browser import Browser, missing
from tests.unit.operate.test_app_requests import EVIL, AppConsole
from tests.unit.operate.views import letter, now_of, queue_at, seen, snapshot_of, stall
from tests.unit.operate.watched_broker import WatchedBroker

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"{missing()} is not installed")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as one:
        yield one


@pytest.fixture
def console() -> AppConsole:
    snapshot = snapshot_of(queue_at(10, unfinished=3, still=EVIL), handled=1234)
    return AppConsole(now_of(seen(stall(EVIL, 99.0), snapshot=snapshot, failures=[EVIL])))


@pytest.fixture
def address(console: AppConsole) -> Iterator[str]:
    serving = OperatorServer("127.0.0.1:0", answering(console))
    yield serving.start()
    serving.stop()


class OtherSite(BaseHTTPRequestHandler):
    """A page whose form goes to an address of ours."""

    target = ""

    def do_GET(self) -> None:
        page = (
            f'<form method="post" action="http://{self.target}/pause"><input name="topic" value="orders">'
            '<input name="group" value="shop"><button>A kitten</button></form>'
        )
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(page.encode())

    def log_message(self, format: str, *arguments: object) -> None: ...


@pytest.fixture
def other_site(address: str) -> Iterator[str]:
    handler = type("Site", (OtherSite,), {"target": address})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads, server.block_on_close = True, False
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def test_the_page_is_styled_and_shows_what_strangers_wrote_as_text(browser: Browser, address: str) -> None:
    browser.complaints()  # of pages before this one
    browser.open(f"http://{address}/")
    text = browser.text()
    assert "shop\nnot ready" in text
    assert f"orders@broker-a:0 stands still: {EVIL}" in text
    assert "1,234" in text
    # The content policy knows its own style sheet.
    assert browser.style("table", "border-collapse") == "collapse"
    assert [line for line in browser.complaints() if "favicon" not in line] == []


@pytest.mark.parametrize("width", [1280, 400])
def test_long_names_and_reasons_fit_wide_and_narrow_screens(browser: Browser, width: int) -> None:
    name = "a_package_with_modules.and_handlers:with-names-" * 3
    snapshot = snapshot_of(queue_at(10, unfinished=3, still=f"handler {name} runs " + "x" * 300), topic=name)
    process = seen(stall("y" * 300, 99.0), snapshot=snapshot, failures=["z" * 600], letters=[letter("w " * 300)])
    console = AppConsole(now_of(process))
    serving = OperatorServer("127.0.0.1:0", answering(console))
    browser.resize(width, 1000)
    try:
        browser.open(f"http://{serving.start()}/")
        limit = width + 100  # its windows have a least width
        assert browser.width("html") <= limit
        assert browser.width("table") <= limit
        heights = browser.value("return [...document.querySelectorAll('button')].map(one => one.offsetHeight)")
        assert len(heights) == 2
        assert max(heights) < 40, "what a button says is one line"
    finally:
        browser.resize(1280, 1400)
        serving.stop()


def test_its_button_pauses_and_then_resumes(browser: Browser, address: str, console: AppConsole) -> None:
    browser.open(f"http://{address}/")
    for count, call in enumerate(("pause", "resume"), 1):
        browser.click(f'form[action="/{call}"] button')
        wait_until(partial(lambda wanted: len(console.changes) == wanted, count), f"{call} arrives")
        wait_until(lambda: browser.url == f"http://{address}/", "it leads back to the page")
        console.shown = now_of(seen(snapshot=snapshot_of(queue_at(10), paused={"orders": "paused: by an operator"})))
        browser.open(f"http://{address}/")
    assert console.changes == [("pause", "orders", "shop"), ("resume", "orders", "shop")]


def test_its_form_tries_a_handler_and_shows_the_outcome(browser: Browser, address: str, console: AppConsole) -> None:
    browser.complaints()
    console.shown = now_of(seen(), may_try=True)
    browser.open(f"http://{address}/")
    browser.click('a[href="/try"]')
    browser.type("textarea", EVIL)
    browser.click("form button")
    wait_until(lambda: f"Done: {EVIL}" in browser.text(), "the outcome")
    assert console.changes == [("try", "app:settle orders shop", EVIL)]
    assert [line for line in browser.complaints() if "favicon" not in line] == []


def test_without_scripts_it_is_whole_and_is_loaded_anew(browser: Browser, address: str, console: AppConsole) -> None:
    browser.allow_scripts(False)
    try:
        browser.open(f"http://{address}/")
        assert "1,234" in browser.text()
        console.shown = now_of(seen(snapshot=snapshot_of(queue_at(40), handled=777)))
        wait_until(lambda: "777" in browser.text(), "the new figure")
    finally:
        browser.allow_scripts(True)


def test_it_asks_again_by_itself_and_leaves_open_what_was_opened(
    browser: Browser, address: str, console: AppConsole
) -> None:
    browser.complaints()
    console.shown = now_of(seen(snapshot=snapshot_of(queue_at(40), handled=1)))
    browser.open(f"http://{address}/")
    browser.click("summary")
    assert "broker-a:0" in browser.text("details")
    console.shown = now_of(seen(snapshot=snapshot_of(queue_at(40), handled=777)))
    wait_until(lambda: "777" in browser.text(), "the new figure")
    assert "broker-a:0" in browser.text("details")
    assert [line for line in browser.complaints() if "favicon" not in line] == []


def test_a_form_of_another_site_changes_nothing(browser: Browser, other_site: str, console: AppConsole) -> None:
    browser.open(other_site)
    browser.click("button")
    wait_until(lambda: "this form is not of this page" in browser.text(), "it is refused")
    assert console.changes == []


LONG = "a_topic-of_a-team_that-writes_whole-sentences_into_its-names_" * 2


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WatchedBroker]:
    """One topic has a long name, and a message that strangers wrote."""
    with WatchedBroker(tmp_path_factory.mktemp("store")).serving() as one:
        one.send(LONG, (EVIL * 20).encode(), KEYS=EVIL, TAGS=EVIL, UNIQ_KEY="E1", evil=EVIL)
        one.commit("billing", LONG, 0, 0)
        reason = {"rocketapp.reason": EVIL * 5}
        one.send("%DLQ%billing", b"dead", queues=1, UNIQ_KEY="L1", RETRY_TOPIC=LONG, **reason)
        yield one


def pages_of(broker: WatchedBroker) -> list[str]:
    (found,) = re.findall(r"/message\?at=\d+", broker.get(f"/messages?topic={LONG}").text)
    named = (f"/topic?name={LONG}", "/group?name=billing", f"/messages?topic={LONG}", "/dead-letters?group=billing")
    return ["/", "/topics", *named, "/waiting", found]


@pytest.mark.parametrize("width", [1280, 400])
def test_each_page_of_a_broker_fits_and_runs_nothing_of_strangers(
    browser: Browser, broker: WatchedBroker, width: int
) -> None:
    browser.complaints()
    browser.resize(width, 1000)
    try:
        for path in pages_of(broker):
            browser.open(broker.http + path)
            assert browser.text("h1") == "broker-a"
            assert browser.width("html") <= width + 100, path
    finally:
        browser.resize(1280, 1400)
    assert [line for line in browser.complaints() if "favicon" not in line] == []


def test_a_broker_is_read_without_scripts_and_is_loaded_anew(browser: Browser, broker: WatchedBroker) -> None:
    topic = f"steps-{time.monotonic_ns()}"  # another one when it runs again
    broker.send(topic, b"1", queues=1)
    browser.allow_scripts(False)
    try:
        browser.open(f"{broker.http}/topic?name={topic}")
        assert "queue 0 0 1 1" in " ".join(browser.text("tbody").split())
        broker.send(topic, b"2", queues=1)
        wait_until(lambda: "queue 0 0 2 2" in " ".join(browser.text().split()), "the new message")
    finally:
        browser.allow_scripts(True)


def test_its_button_replays_a_dead_letter(browser: Browser, broker: WatchedBroker) -> None:
    browser.open(f"{broker.http}/dead-letters?group=billing")
    assert EVIL * 5 in browser.text("tbody")
    browser.click("tbody button")
    wait_until(lambda: "was replayed" in browser.text(), "the outcome")
