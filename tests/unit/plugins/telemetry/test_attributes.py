"""What spans say of a message, and that they say it in the words of the semantic conventions."""

from __future__ import annotations

import re

import pytest
from opentelemetry.semconv import schemas
from opentelemetry.semconv._incubating.attributes import messaging_attributes
from opentelemetry.semconv._incubating.metrics import messaging_metrics
from opentelemetry.semconv.attributes import error_attributes, server_attributes

from rocketapp import Message
from rocketapp.model import conventions
from rocketapp.plugin import Outgoing, Sending, Subscription
from rocketapp.plugins.telemetry.attributes import of_message, of_sending, of_subscription
from tests.cases import cases
from tests.docs.pages import ROOT

TYPE, LEVEL, AT = (f"messaging.rocketmq.message.{name}" for name in ("type", "delay_time_level", "delivery_timestamp"))


def subscription(*, broadcast: bool = False, orderly: bool = False) -> Subscription:
    return Subscription(
        topic="orders",
        group="shop",
        tags=frozenset(),
        expression="*",
        concurrency=1,
        retries=16,
        is_async=True,
        handler_name="app:settle",
        place="app.py:1",
        broadcast=broadcast,
        orderly=orderly,
    )


def test_every_name_is_one_of_the_conventions() -> None:
    modules = (messaging_attributes, messaging_metrics, error_attributes, server_attributes)
    known = {value for module in modules for value in vars(module).values() if isinstance(value, str)}
    ours = {value for name, value in vars(conventions).items() if name.isupper() and isinstance(value, str)}
    left = {name for name in ours - known if not name.startswith("rocketapp.")}  # those are not of the conventions
    assert left == {"messaging.rocketmq", "https://opentelemetry.io/schemas/1.44.0", "rocketmq"}
    assert conventions.SCHEMA in {one.value for one in schemas.Schemas}


def test_their_names_stand_in_one_file() -> None:
    named = re.compile(r'"(messaging|server|error)\.\w+[\w.]*"')
    files = {path.name for path in (ROOT / "rocketapp").rglob("*.py") if named.search(path.read_text())}
    assert files == {"conventions.py"}


@pytest.mark.parametrize(("broadcast", "model"), [(False, "clustering"), (True, "broadcasting")])
def test_a_consumer_says_its_model_and_its_namespace_also_when_it_has_none(broadcast: bool, model: str) -> None:
    found = of_subscription(subscription(broadcast=broadcast), "client", "")
    assert found["messaging.rocketmq.consumption_model"] == model
    assert found["messaging.rocketmq.namespace"] == ""


@cases(
    "properties, attempt, said",
    [
        ({}, 1, {TYPE: "normal"}),
        ({"TRAN_MSG": "true"}, 1, {TYPE: "transaction"}),
        ({"DELAY": "3"}, 1, {TYPE: "delay", LEVEL: 3}),
        # A broker holds every message back that is sent back, by the level of its attempt.
        ({"DELAY": "3"}, 2, {TYPE: "normal"}),
        ({"TIMER_DELIVER_MS": "1795000002500", "TIMER_OUT_MS": "1795000002000"}, 1, {TYPE: "delay", AT: 1795000002500}),
        ({"TIMER_DELAY_MS": "2500", "TIMER_OUT_MS": "1795000002000"}, 2, {TYPE: "delay", AT: 1795000002000}),
        ({"DELAY": "-1", "TIMER_OUT_MS": "soon"}, 1, {TYPE: "normal"}),
    ],
)
def test_a_received_message_says_its_type_and_what_delayed_it(
    properties: dict[str, str], attempt: int, said: dict[str, object]
) -> None:
    found = of_message(Message.make(b"{}", properties=properties, attempt=attempt), subscription())
    assert {name: found[name] for name in (TYPE, LEVEL, AT) if name in found} == said


def test_a_received_message_says_which_broker_stored_it() -> None:
    found = of_message(Message.make(b"{}"), subscription(orderly=True))
    assert (found["server.address"], found["server.port"], found[TYPE]) == ("127.0.0.1", 10_911, "fifo")


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (Outgoing(topic="orders", body=b"", delay=2.5), {TYPE: "delay", AT: 1_795_000_002_500}),
        (Outgoing(topic="orders", body=b"", delay_level=3), {TYPE: "delay", LEVEL: 3}),
        (Outgoing(topic="orders", body=b"", half=True, order_key="1"), {TYPE: "transaction"}),
    ],
)
def test_a_message_that_is_sent_says_its_type_and_when_it_is_due(message: Outgoing, said: dict[str, object]) -> None:
    found = of_sending(Sending((message,), "send", "", None), "client", "eu", now_ms=1_795_000_000_000)
    assert {name: found[name] for name in (TYPE, LEVEL, AT) if name in found} == said
    assert found["messaging.rocketmq.namespace"] == "eu"
