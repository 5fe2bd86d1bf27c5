"""`rocketapp routes` and `rocketapp config`: what they tell."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from rocketapp import Breaker, DeadLetter, Message, Pause, Policy, Retry, RocketApp, Skip
from rocketapp.app.settings import Settings, checked, fields_of
from rocketapp.cli.commands.app import HIDDEN, describe_failures, describe_routes, route_of
from rocketapp.cli.main import cli
from rocketapp.cli.settings import subscriptions_of
from rocketapp.config.client import ClientConfig
from rocketapp.model.subscription import Subscription
from tests.cases import cases

SOURCE = """
from rocketapp import Message, RocketApp

app = RocketApp("shop", version="1.2", settings={"consumer": {"commit_interval": 1.0}})

@app.subscribe("orders", tags="paid||refunded")
async def settle(message: Message) -> None: ...

@app.subscribe("stock", orderly=True, retries=-1, group="stores", start="first")
def move(message: Message) -> None: ...
"""


def subscriptions(app: RocketApp) -> list[Subscription]:
    return subscriptions_of(app, Settings())


def shop() -> RocketApp:
    app = RocketApp("shop", clusters={"eu": "127.0.0.1:1"})

    @app.subscribe("orders", tags="paid||refunded")
    async def settle(message: Message) -> None: ...

    @app.subscribe("orders")
    def rest(message: Message) -> None: ...

    @app.subscribe("clicks", batch=500, batch_wait=0.2, timeout=5, retries=0, start=datetime(2026, 1, 1, tzinfo=UTC))
    async def count(messages: list[Message]) -> None: ...

    @app.subscribe("stock", cluster="eu", group="stores", orderly=True)
    async def move(message: Message) -> None: ...

    return app


def test_routes_tell_everything_that_was_declared() -> None:
    lines = [line.strip() for line in describe_routes(subscriptions(shop()), suspend=1.0)]
    assert [line for line in lines if not line.startswith("handler")] == [
        "group shop",
        "orders  paid || refunded",
        "runs      concurrently, 64 at once; async",
        "start     last",
        "failures  again after 10 s, 30 s, 1 min, 2 min ... 2 h: 16 times, then to %DLQ%shop",
        "orders  * (what no other handler's tag takes)",
        "runs      concurrently, 20 at once; sync, in threads",
        "start     last",
        "failures  again after 10 s, 30 s, 1 min, 2 min ... 2 h: 16 times, then to %DLQ%shop",
        "clicks  * (what no other handler's tag takes)",
        "runs      concurrently, 64 at once; async; batches of 500 or what came within 0.2 s; timeout 5 s",
        "start     2026-01-01T00:00:00+00:00",
        "failures  no retry: to %DLQ%shop",
        "group stores on cluster eu",
        "stock  * (what no other handler's tag takes)",
        "runs      orderly, one by one per queue; async",
        "start     last",
        "failures  in place, 1 s apart, 16 times; the queue waits, then to %DLQ%stores",
    ]
    handlers = [line for line in lines if line.startswith("handler")]
    assert all(f"{Path(__file__).name}:" in line for line in handlers)
    assert "settle" in handlers[0]


def retrying(retries: int, *, orderly: bool = False) -> Subscription:
    app = RocketApp("shop")

    @app.subscribe("orders", retries=retries, orderly=orderly)
    async def settle(message: Message) -> None: ...

    return subscriptions(app)[0]


@cases(
    "one, text",
    [
        (retrying(0), "no retry: to %DLQ%shop"),
        (retrying(1), "again after 10 s: once, then to %DLQ%shop"),
        (retrying(4), "again after 10 s, 30 s, 1 min, 2 min: 4 times, then to %DLQ%shop"),
        (retrying(5), "again after 10 s, 30 s, 1 min, 2 min ... 3 min: 5 times, then to %DLQ%shop"),
        (retrying(30), "again after 10 s, 30 s, 1 min, 2 min ... 2 h: 30 times, then to %DLQ%shop"),
        (retrying(-1, orderly=True), "in place, 0.5 s apart, for ever; the queue waits"),
        (retrying(1, orderly=True), "in place, 0.5 s apart, once; the queue waits, then to %DLQ%shop"),
    ],
)
def test_failures_are_told_to_their_end(one: Subscription, text: str) -> None:
    assert describe_failures(one, suspend=0.5) == text


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"retry": Policy([1, 7, 30])}, "again after 1 s, 10 s, 30 s: 16 times, then to %DLQ%shop"),
        ({"retry": Policy([1, 7, 30]), "retries": 2}, "again after 1 s, 10 s: 2 times, then to %DLQ%shop"),
        (
            {"retry": Policy(on={OSError: Skip})},
            "again after 10 s, 30 s, 1 min, 2 min ... 2 h: 16 times, then to %DLQ%shop",
        ),
        (
            {"retry": Policy([0.1, 7, 120]), "orderly": True},
            "in place after 0.1 s, 7 s, 2 min: 16 times; the queue waits, then to %DLQ%shop",
        ),
    ],
)
def test_the_delays_of_a_policy_are_told_as_they_will_be(options: dict[str, Any], text: str) -> None:
    app = RocketApp("shop")

    @app.subscribe("orders", **options)
    async def settle(message: Message) -> None: ...

    assert describe_failures(subscriptions(app)[0], suspend=0.5) == text


def test_routes_tell_what_exceptions_mean_and_when_the_breaker_opens() -> None:
    app = RocketApp(
        "shop",
        retry=Policy(
            on={OSError: Retry(after=60), KeyError: Skip("x"), ValueError: DeadLetter, EOFError: Pause},
            breaker=Breaker(),
        ),
    )

    @app.subscribe("orders")
    async def settle(message: Message) -> None: ...

    lines = list(describe_routes(subscriptions(app), suspend=1.0))
    assert (
        lines[-3]
        == "    on        OSError: retry after 1 min, KeyError: skip, ValueError: dead letter, EOFError: pause"
    )
    text = "after 20 failures within 60 s, 50% of the calls: paused for 30 s, then one message is tried"
    assert lines[-2] == f"    breaker   {text}"
    assert lines[-1].startswith("    said by   policy: RocketApp at ")


def copy_key(message: Message) -> str:
    return message.keys[0]


def test_routes_tell_what_is_handled_once_limited_and_published_and_who_said_retries() -> None:
    app = RocketApp("shop", retries=3)

    @app.subscribe("orders", idempotent=copy_key, rate=5, retry=Policy([1]))
    @app.publishes("paid")
    async def settle(message: Message) -> None: ...

    @app.subscribe("stock", idempotent=True, retries=2)
    async def move(message: Message) -> None: ...

    lines = [line.strip() for line in describe_routes(subscriptions(app), suspend=1.0)]
    assert "once      by copy_key" in lines
    assert "once      by message id, tag and body" in lines
    assert "runs      concurrently, 64 at once; async; at most 5 messages a second in each process" in lines
    assert "publishes what it returns to paid" in lines
    (said,) = [line for line in lines if line.startswith("said by")]
    assert said.startswith("said by   retries: RocketApp at ")
    assert Path(__file__).name in said


def test_routes_as_json_have_every_column() -> None:
    app = RocketApp("shop")

    @app.subscribe("orders", order_by="customer", rate=5, retry=Policy([1], on={KeyError: Skip}, breaker=Breaker()))
    @app.publishes("paid")
    async def settle(message: Message) -> None: ...

    (one,) = subscriptions(app)
    assert route_of(one, suspend=1.0) == {
        "cluster": "",
        "group": "shop",
        "topic": "orders",
        "tags": [],
        "sql": None,
        "filter": None,
        "broadcast": False,
        "handler": one.handler_name,
        "place": one.place,
        "async": True,
        "orderly": False,
        "order_by": "property customer",
        "every": None,
        "batch": None,
        "batch_wait": None,
        "concurrency": 64,
        "rate": 5,
        "timeout": None,
        "start": "last",
        "idempotent": None,
        "publishes": "paid",
        "retries": 16,
        "retries_from": "consumer.retries",
        "delays": [1.0],
        "on": {"KeyError": "skip"},
        "breaker": {"failures": 20, "within": 60.0, "pause": 30.0, "share": 0.5},
        "policy_from": "handler",
        "failures": "in place after 1 s: 16 times; its key waits, then to %DLQ%shop",
    }


@pytest.mark.parametrize(("order_by", "shown"), [("customer", "property customer"), (len, "len")])
def test_routes_tell_the_key_of_an_order(order_by: Any, shown: str) -> None:
    app = RocketApp("shop")

    @app.subscribe("orders", order_by=order_by, concurrency=8)
    async def settle(message: Message) -> None: ...

    lines = list(describe_routes(subscriptions(app), suspend=1.0))
    assert f"    runs      one by one per key ({shown}), 8 keys at once; async" in lines
    assert lines[-1] == "    failures  in place, 1 s apart, 16 times; its key waits, then to %DLQ%shop"


def test_an_app_without_subscriptions_says_so() -> None:
    assert list(describe_routes([], suspend=1.0)) == ["nothing is subscribed"]


@pytest.fixture
def in_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current directory is the test's folder, with the app in it under a name that no other test uses."""
    import sys

    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", sys.path[:])
    (folder / "routed_shop.py").write_text(SOURCE)
    yield folder
    sys.modules.pop("routed_shop", None)


def call(*arguments: str, **environment: str) -> Result:
    result = CliRunner().invoke(cli, arguments, env=environment, standalone_mode=False)
    assert result.exception is None, result.output
    return result


def test_routes_follow_the_settings(in_folder: Path) -> None:
    (in_folder / "other.toml").write_text('[app]\ngroup = "night"\n[consumer]\nretries = 2\n')
    text = call("routes", "routed_shop:app", "--settings", "other.toml").output
    assert "group night\n  orders  paid || refunded\n    handler   routed_shop:settle at routed_shop.py:6\n" in text
    assert "again after 10 s, 30 s: 2 times, then to %DLQ%night" in text


def test_config_tells_each_value_with_its_source(in_folder: Path) -> None:
    (in_folder / "settings.toml").write_text("[consumer]\npull_batch_size = 64\ncommit_interval = 2.0\n")
    output = call("config", "routed_shop", ROCKETAPP_CONSUMER__THREADS="7").output
    told = dict(map(str.strip, line.split("  # ")) for line in output.splitlines())
    assert told["consumer.pull_batch_size = 64"] == "settings.toml"
    assert told["consumer.commit_interval = 2.0"] == "settings.toml"
    assert told["consumer.threads = 7"] == "ROCKETAPP_CONSUMER__THREADS"
    assert told['app.version = "1.2"'] == "code"
    assert told["broker.auto_create_topics = true"] == "default"
    assert told['client.name_server = ""'] == "default"


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_config_shows_the_access_key_and_no_secret(in_folder: Path, more: tuple[str, ...]) -> None:
    secrets = {
        "ROCKETAPP_CLIENT__SECRET_KEY": "first-secret",
        "ROCKETAPP_CLIENT__SECURITY_TOKEN": "second-secret",
        "ROCKETAPP_CLIENT__KEY_PASSWORD": "third-secret",
    }
    output = call("config", "routed_shop", *more, ROCKETAPP_CLIENT__ACCESS_KEY="orders-app", **secrets).output
    assert "orders-app" in output and HIDDEN in output
    assert "-secret" not in output


def test_a_secret_of_the_wrong_type_is_refused_without_being_told() -> None:
    _, problem = checked(fields_of(ClientConfig)["secret_key"], 12345678)
    assert problem == "the value is a whole number, not text"
