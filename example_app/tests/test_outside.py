"""The clients of bank and carrier, with a server on loopback that answers as theirs would."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from example_app.demo import BUSY_CARD, GOOD_CARD, STOLEN_CARD
from example_app.outside import BankBusyError, CardRefusedError, HttpBank, HttpCarrier


class World(BaseHTTPRequestHandler):
    """Bank and carrier in one."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answers = {
            GOOD_CARD: (200, {"receipt": f"{self.headers['Idempotency-Key']} by {self.headers['Authorization']}"}),
            BUSY_CARD: (429, {}),
            STOLEN_CARD: (402, {}),
        }
        status, answer = answers.get(body.get("card"), (200, {"tracking": f"{self.path} to {body.get('to')}"}))
        self.send_response(status)
        self.send_header("Retry-After", "7")
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def log_message(self, format: str, *args: object) -> None:
        """A test has no use for these lines."""


@pytest.fixture
def url() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), World) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_the_bank_gets_the_order_as_the_key_of_the_call(url: str) -> None:
    bank = HttpBank(url, "secret", timeout=5)
    assert bank.charge("1", GOOD_CARD, 700) == "1 by Bearer secret"
    with pytest.raises(CardRefusedError, match="order 1"):
        bank.charge("1", STOLEN_CARD, 700)
    with pytest.raises(BankBusyError) as caught:
        bank.charge("1", BUSY_CARD, 700)
    assert caught.value.seconds == 7


def test_the_carrier_gets_the_address(url: str) -> None:
    assert HttpCarrier(url, timeout=5).fetch("1", "Ada") == "/parcels/1 to Ada"
