import threading
import time

import pytest
from app import Order, app, server, settle, settled
from fastapi.testclient import TestClient

from rocketapp.testing import Done, TestApp, call_sync


def test_an_order_is_settled() -> None:
    assert call_sync(settle, Order(id="1", amount=5), app=app) == Done()
    assert settled["1"] == 5


def test_a_copy_changes_nothing() -> None:
    with TestApp(app) as t:  # in virtual time, without the server
        t.publish("orders", Order(id="2", amount=5))
        t.settle()
        t.faults.duplicate(t.handled[0].message)
        t.settle()
        assert len(t.handled) == 2
    assert settled["2"] == 5


def test_a_posted_order_comes_back_as_a_message(rocketapp_broker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCKETAPP_CLIENT__NAME_SERVER", rocketapp_broker)
    with TestClient(server) as client:  # runs the lifespan, and the app in it
        answer = client.post("/orders", json={"id": "3", "amount": 7})
        assert (answer.status_code, len(answer.json()["message_id"])) == (202, 32)
        assert client.post("/orders", json={"id": "4"}).status_code == 422
        deadline = time.monotonic() + 30
        while "3" not in settled and time.monotonic() < deadline:
            threading.Event().wait(0.05)
    assert settled["3"] == 7
