from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from rocketapp import Breaker, ConfigError, DeadLetter, Message, Pause, Policy, Retry, RocketApp, Skip
from rocketapp.app.declare.phases import complete
from rocketapp.app.sources import load_settings
from rocketapp.cli.settings import subscriptions_of
from rocketapp.errors import RocketAppError
from rocketapp.model.subscription import Subscription
from rocketapp.plugins.failures import FailuresConfig
from rocketapp.testing import Done, TestApp, call_sync, make_message
from tests.cases import cases

OWN = "tests.unit.plugins.test_failures"


class LateError(Exception):
    """One of the user's own."""


def app_with(**options: Any) -> RocketApp:
    app = RocketApp("shop")

    @app.subscribe("orders", **options)
    async def handle(message: Message) -> None:
        raise LateError

    return app


def one_of(*rules: dict[str, Any], **options: Any) -> Subscription:
    """The only subscription of an app with these rules in its settings."""
    app = app_with(**options)
    settings = load_settings(None, {"failures": {"rules": rules}}, {}, {}, tables={"failures": FailuresConfig})
    (one,) = subscriptions_of(app, complete(app, settings))
    return one


def test_a_rule_replaces_what_it_says_and_leaves_the_rest_of_the_code() -> None:
    breaker = Breaker()
    own = Policy([9], on={KeyError: Retry, OSError: Skip}, breaker=breaker)
    one = one_of({"topic": "orders", "retries": 2, "dead_letter": ["KeyError"]}, retry=own, retries=7)
    assert one.retries == 2
    assert one.retry == Policy([9], on={KeyError: DeadLetter, OSError: Skip}, breaker=breaker)
    assert one.retry_from == "failures.rules[0] (plugin failures)"


def test_each_exception_is_found_by_its_name() -> None:
    rule = {
        "retry": ["ConnectionError"],
        "skip": ["decimal.InvalidOperation"],
        "dead_letter": [f"{OWN}:LateError"],
        "pause": ["PermissionError"],
        "delays": [1, 2.5],
    }
    one = one_of(rule)
    assert one.retry is not None
    assert one.retry.delays == (1.0, 2.5)
    assert {kind.__name__: answer for kind, answer in one.retry.on.items()} == {
        "ConnectionError": Retry,
        "InvalidOperation": Skip,
        "LateError": DeadLetter,
        "PermissionError": Pause,
    }


@pytest.mark.parametrize(
    ("rules", "retries"),
    [
        ([{"topic": "stock", "retries": 1}, {"group": "shop", "retries": 2}, {"retries": 3}], 2),
        ([{"handler": "elsewhere:handle", "retries": 1}, {"retries": 3}], 3),
        ([{"topic": "Orders", "retries": 1}], 16),
        ([{"topic": "orders", "group": "other", "retries": 1}], 16),
        ([], 16),
    ],
)
def test_the_first_rule_that_fits_is_used(rules: list[dict[str, Any]], retries: int) -> None:
    assert one_of(*rules).retries == retries


def test_a_rule_that_says_nothing_of_a_policy_leaves_none() -> None:
    one = one_of({"retries": 3})
    assert (one.retry, one.retry_from) == (None, "")


WRONG_RULES = [
    ({"skip": ["KeyErr"]}, "failures.rules[0].skip: KeyErr cannot be found"),
    ({"skip": ["shop.nowhere.LateError"]}, "cannot be found (No module named 'shop')"),
    ({"pause": ["int"]}, "failures.rules[0].pause: int is not an exception"),
    ({"pause": ["OSError"], "skip": ["IOError"]}, "failures.rules[0].pause: OSError stands in skip as well"),
    ({"delays": [9000]}, "9000 s is longer than RocketMQ's longest delay"),
    ({"delays": [-1]}, "failures.rules[0]: Policy(delays=...): -1.0: give seconds, 0 or more"),
    ({"skip": ["rocketapp.Retry"]}, "Retry says itself what follows"),
    ({"retries": -1}, "retries=-1 (unlimited) needs orderly=True"),
]


@cases(
    "rule, problem",
    WRONG_RULES,
)
def test_a_rule_that_cannot_be_is_refused_with_its_place(rule: dict[str, Any], problem: str) -> None:
    with pytest.raises(RocketAppError) as caught:
        one_of(rule)
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("rules", "problem"),
    [
        ([{"retrys": 1}], r"\[0\]: unknown key retrys; did you mean retry"),
        ([{"retries": 1}, {"retries": "x"}], r"\[1\].retries: 'x' is text, not a whole number"),
        ([{"delays": ["1s"]}], r"\[0\].delays: \['1s'\] is not a list of numbers"),
        ([{"retries": -2}], r"\[0\].retries: -2 is below the least, -1"),
        (["orders"], r"\['orders'\] is not a list of tables"),
        ({"topic": "orders"}, "is not a list of tables"),
    ],
)
def test_a_misspelt_rule_is_refused_when_settings_are_read(rules: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=f"failures.rules: .*{problem}"):
        load_settings(None, {"failures": {"rules": rules}}, {}, {}, tables={"failures": FailuresConfig})


def test_rules_come_from_a_file_and_from_a_variable(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('[[failures.rules]]\ntopic = "Orders"\nretries = 5\n[[failures.rules]]\ndelays = [1, 2]\n')
    tables = {"failures": FailuresConfig}
    read = load_settings(str(file), {}, {}, {}, tables=tables).options(FailuresConfig)
    assert [(rule.topic, rule.retries, rule.delays) for rule in read.rules] == [
        ("Orders", 5, ()),
        ("", None, (1.0, 2.0)),
    ]
    variable = {"ROCKETAPP_FAILURES__RULES": '[{topic="orders", retries=2}]'}
    (rule,) = load_settings(str(file), {}, variable, {}, tables=tables).options(FailuresConfig).rules
    assert (rule.topic, rule.retries) == ("orders", 2)


def test_a_running_app_does_what_its_rules_say(caplog: pytest.LogCaptureFixture) -> None:
    rules = [{"topic": "orders", "retries": 1, "delays": [5]}, {"topic": "misspelt"}]
    with (
        caplog.at_level(logging.WARNING, "rocketapp.failures"),
        TestApp(app_with(), settings={"failures": {"rules": rules}}) as t,
    ):
        t.publish("orders", b"1")
        t.advance(minutes=1)
    assert (len(t.retried), len(t.dead)) == (1, 1)
    assert "failures.rules[1] fits no handler: topic 'misspelt'" in caplog.text


def test_a_message_that_the_settings_skip_is_done_without_a_call() -> None:
    app, seen = RocketApp("shop", settings={"failures": {"skip_messages": ["7F01", "7F02"]}}), []

    @app.subscribe("orders", orderly=True)
    async def handle(message: Message) -> None:
        seen.append(message.message_id)

    for message_id in ("7F01", "7F03", "7F02"):
        outcome = call_sync(handle, make_message(b"x", topic="orders", message_id=message_id), app=app)
        assert str(outcome) == (str(Done()) if message_id == "7F03" else "filtered")
    assert seen == ["7F03"]
