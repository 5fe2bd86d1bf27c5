"""The server on a real socket: it answers whatever the event loop does, and bounds what a connection may cost."""

from __future__ import annotations

import errno
import http.client
import socket
import threading
import time
from collections.abc import Iterator
from typing import NoReturn

import pytest

from rocketapp.cli.commands.doctor import ask
from rocketapp.operate import server
from rocketapp.operate.app_requests import answering
from rocketapp.operate.http_messages import Request, Response
from rocketapp.operate.server import OperatorServer, parse_address
from tests.cases import cases
from tests.peers.waiting import wait_until
from tests.unit.operate.test_app_requests import ORDERS, AppConsole
from tests.unit.operate.views import now_of, seen, stall


@pytest.fixture
def console() -> AppConsole:
    return AppConsole(now_of(seen(stall("paused: by hand", 40.0))))


@pytest.fixture
def address(console: AppConsole, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(server, "LONGEST", 60.0)  # a busy machine may let a test wait before it sends
    serving = OperatorServer("127.0.0.1:0", answering(console))
    yield serving.start()
    serving.stop()


def raw(address: str, sent: bytes) -> bytes:
    """Everything that comes back until the connection ends."""
    host, port = parse_address(address)
    with socket.create_connection((host, port), timeout=60) as connection:
        answered = b""
        try:
            connection.sendall(sent)
            while data := connection.recv(65536):
                answered += data
        except ConnectionError:
            pass
        return answered


def test_it_answers_and_says_nothing_of_what_it_runs_on(address: str) -> None:
    host, port = parse_address(address)
    connection = http.client.HTTPConnection(host, port, timeout=60)
    connection.request("GET", "/ready?verbose")
    response = connection.getresponse()
    assert (response.status, response.read().splitlines()[0]) == (503, b"not ready")
    assert response.headers["Server"].strip() == "rocketapp"
    assert response.headers["Cache-Control"] == "no-store"
    connection.close()


def test_doctor_understands_it(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rocketapp.cli.commands.doctor.TIMEOUT", 60.0)
    said = ask(address)
    assert (said.app, said.ready) == ("shop", False)
    assert "stands still: paused: by hand" in said.findings[0].text


def test_head_has_no_body(address: str) -> None:
    head, _, body = raw(address, b"HEAD /health HTTP/1.0\r\n\r\n").partition(b"\r\n\r\n")
    assert b"200" in head.splitlines()[0]
    assert body == b""


def test_a_form_arrives(address: str, console: AppConsole) -> None:
    head = f"POST /resume HTTP/1.1\r\nHost: {address}\r\nContent-Length: {len(ORDERS)}\r\n\r\n"
    assert b" 303 " in raw(address, head.encode() + ORDERS)
    assert console.changes == [("resume", "orders", "shop")]


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"POST /pause HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n", b"413"),
        (b"POST /pause HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", b"411"),
        (b"POST /pause HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n", b"411"),
        (b"POST /pause HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nContent-Length: 1\r\n\r\na=", b"411"),
        (b"BREW /coffee HTTP/1.1\r\n\r\n", b"501"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n", b"403"),
        (b"GET / HTTP/1.1\r\nHost: evil.example\r\nHost: localhost\r\n\r\n", b"403"),
        (b"GET /coffee HTTP/1.1\n\n", b"400"),
        (b"GET /coffee HTTP/1.1\r\nHost: localhost\n\r\n", b"400"),
        (b"GET /coffee HTTP/1.1\r\nX: a\rHost: localhost\r\n\r\n", b"400"),
        (b"GET /coffee HTTP/1.1\r\n Host: localhost\r\n\r\n", b"400"),
        (b"GET /coffee HTTP/1.1\r\nno colon\r\n\r\n", b"400"),
        (b"GET /coffee\r\n\r\n", b"400"),
        (b"GET /coffee HTTP/2.0\r\n\r\n", b"400"),
        (b"GET /%0d%0aX-Evil:1 HTTP/1.1\r\n\r\n", b"404"),
    ],
    ids=[
        "large",
        "chunked",
        "negative",
        "lengths",
        "method",
        "host-last",
        "host-first",
        "lf",
        "lf-in-head",
        "cr",
        "space",
        "colon",
        "version-0",
        "version-2",
        "injection",
    ],
)
def test_odd_requests_get_their_status_and_nothing_of_themselves(address: str, sent: bytes, status: bytes) -> None:
    answered = raw(address, sent)
    assert answered.split(b" ", 2)[1] == status
    assert b"Evil" not in answered
    assert b"coffee" not in answered


def test_a_long_line_that_is_no_request_costs_the_app_no_time(address: str) -> None:
    spent = time.process_time()
    for _ in range(10):
        assert b" 400 " in raw(address, b"GET /" + b"a" * 16_000 + b" HTTP/2.0\r\n\r\n")
    assert time.process_time() - spent < 1


def test_a_request_without_end_is_cut_without_an_answer(address: str) -> None:
    assert raw(address, b"GET /ready HTTP/1.1\r\n" + b"X: " + b"y" * 2 * server.MOST_BYTES) == b""


def test_a_slow_request_is_cut(console: AppConsole, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "LONGEST", 0.2)
    serving = OperatorServer("127.0.0.1:0", answering(console))
    try:
        assert raw(serving.start(), b"GET /ready HTT") == b""
    finally:
        serving.stop()


def test_connections_that_send_nothing_do_not_keep_others_from_an_answer(address: str) -> None:
    host, port = parse_address(address)
    idle = [socket.create_connection((host, port), timeout=60) for _ in range(server.MOST_AT_ONCE + 4)]
    for connection in idle[-4:]:
        connection.sendall(b"GET")
    assert all(b" 200 " in raw(address, b"GET /health HTTP/1.0\r\n\r\n") for _ in range(3))
    assert idle[0].recv(1) == b""
    assert sum("rocketapp-http" in one.name for one in threading.enumerate()) <= server.MOST_AT_ONCE + 1
    for connection in idle:
        connection.close()


def test_connections_that_are_accepted_together_end_one_each(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    accept, may_accept = socket.socket.accept, threading.Event()

    def late(listening: socket.socket) -> tuple[socket.socket, object]:
        may_accept.wait(60)
        return accept(listening)

    with monkeypatch.context() as slow:
        slow.setattr(socket.socket, "accept", late)
        idle = [
            socket.create_connection(parse_address(address), timeout=60) for _ in range(2 * server.MOST_AT_ONCE - 1)
        ]
        may_accept.set()
        assert all(one.recv(1) == b"" for one in idle[: -server.MOST_AT_ONCE])
    for connection in idle:
        connection.close()


def test_connections_that_have_ended_leave_no_more_threads_at_work_than_are_served_at_once() -> None:
    at_work, may_end = threading.Semaphore(0), threading.Event()

    def answer(_: Request, __: str) -> Response:
        at_work.release()
        may_end.wait(60)
        return Response(status=200, body=b"done")

    serving = OperatorServer("127.0.0.1:0", answer)
    where = parse_address(serving.start())
    asking = [socket.create_connection(where, timeout=60) for _ in range(server.MOST_AT_ONCE)]
    for one in asking:
        one.sendall(b"GET / HTTP/1.0\r\n\r\n")
    assert all(at_work.acquire(timeout=60) for _ in asking)
    with socket.create_connection(where, timeout=60) as last:
        last.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert asking[0].recv(1) == b""
        assert not at_work.acquire(timeout=0.2)
        may_end.set()
        assert b" 200 " in last.recv(65536)
    for one in asking:
        one.close()
    serving.stop()


def test_an_answer_may_take_longer_than_its_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page of a broker that is blocked waits for one card after the other."""
    monkeypatch.setattr(server, "LONGEST", 0.2)

    def answer(_: Request, __: str) -> Response:
        threading.Event().wait(0.4)
        return Response(status=200, body=b"done")

    serving = OperatorServer("127.0.0.1:0", answer)
    try:
        address, whole = serving.start(), b"GET / HTTP/1.0\r\n\r\n"
        # It is cut if this process stands still before it has sent its request.
        assert wait_until(lambda: raw(address, whole).endswith(b"done"), within=10, what="an answer")
    finally:
        serving.stop()


def test_a_process_without_room_for_a_connection_does_not_try_again_at_once(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[None] = []

    def accept(_: socket.socket) -> NoReturn:
        tried.append(None)
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as short:
        short.setattr(socket.socket, "accept", accept)
        waiting = socket.create_connection(parse_address(address), timeout=60)
        waiting.sendall(b"GET /health HTTP/1.0\r\n\r\n")
        threading.Event().wait(0.3)
    assert 1 <= len(tried) <= server.BACKLOG
    with waiting:
        assert b" 200 " in waiting.recv(65536)


def test_it_leaves_no_thread(console: AppConsole) -> None:
    serving = OperatorServer("[::1]:0", answering(console))
    try:
        assert serving.start().startswith("[::1]:")
    except OSError:
        pytest.skip("this machine has no IPv6")
    serving.stop()
    assert not [one for one in threading.enumerate() if one.name == "rocketapp-http" and one.is_alive()]


@cases(
    "text",
    [
        "",
        "8080",
        ":8080",
        "localhost:",
        "localhost:http",
        "::1:80",
        "h:70000",
        "h:-1",
        "h:٣",
        "[::1",
        "::1]:80",
        "x y:80",
        "h\t:80",
    ],
)
def test_what_is_not_an_address_is_told_how_to_write_one(text: str) -> None:
    with pytest.raises(ValueError, match=r"write host:port|is not a port"):
        parse_address(text)
