"""Policies, order per key and dead letters of a whole app on an embedded broker, in virtual time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from rocketapp import Breaker, Context, DeadLetter, Message, Pause, Policy, RocketApp, Router
from rocketapp.testing import TestApp

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_a_dead_letter_carries_handler_exception_attempts_version_and_trace() -> None:
    app, dead = RocketApp("shop", version="2.1", start="first"), list[Mapping[str, str]]()

    @app.subscribe("orders", retries=2, retry=Policy([1]))
    async def settle(message: Message) -> None:
        raise ZeroDivisionError("no money")

    @app.subscribe("%DLQ%shop", group="undertaker")
    async def give_up(message: Message) -> None:
        dead.append(dict(message.properties))

    with TestApp(app) as tested:
        tested.publish("orders", b"1", keys=["k"], properties={"traceparent": TRACE})
        tested.advance(minutes=2)
    (properties,) = dead
    assert properties["rocketapp.handler"].endswith("settle")
    assert properties["rocketapp.exception"] == "ZeroDivisionError"
    assert properties["rocketapp.reason"].startswith("no money (test_failures.py:")
    assert properties["rocketapp.attempts"] == "3"
    assert properties["rocketapp.app_version"] == "2.1"
    assert properties["traceparent"].split("-")[1] == TRACE.split("-")[1]
    assert properties["KEYS"] == "k"


def test_policies_come_from_handler_router_and_app() -> None:
    def failing() -> None:
        raise RuntimeError("down")

    def app_with(app_policy: Policy | None, router_policy: Policy | None, own: Policy | None) -> str:
        app = RocketApp("shop", **({} if app_policy is None else {"retry": app_policy}))
        router = Router(**({} if router_policy is None else {"retry": router_policy}))
        router.subscribe("orders", **({} if own is None else {"retry": own}))(failing)
        app.include(router)
        with TestApp(app) as tested:
            tested.publish("orders", b"1")
            tested.advance(10)
            (dead,) = tested.dead
            return dead.reason

    def policy(reason: str) -> Policy:
        return Policy(on={RuntimeError: DeadLetter(reason)})

    assert "the handler: down" in app_with(policy("the app"), policy("the router"), policy("the handler"))
    assert "the router: down" in app_with(policy("the app"), policy("the router"), None)
    assert "the app: down" in app_with(policy("the app"), None, None)


def test_a_paused_topic_goes_on_when_the_app_resumes_it() -> None:
    app, calls = RocketApp("shop"), list[str]()

    @app.subscribe("orders", retry=Policy(on={PermissionError: Pause}))
    def settle(body: str) -> None:
        calls.append(body)
        if len(calls) == 1:
            raise PermissionError("locked out")

    with TestApp(app) as tested:
        tested.publish("orders", "1")
        tested.advance(60)
        tested.publish("orders", "2")
        tested.advance(60)
        assert calls == ["1"]
        app.resume("orders")
        tested.advance(60)
        assert sorted(calls) == ["1", "1", "2"]
        assert tested.retried == []


def test_a_breaker_pauses_until_one_message_succeeds() -> None:
    app, down, calls = RocketApp("shop"), [True], list[str]()

    @app.subscribe("orders", retry=Policy([1], breaker=Breaker(failures=3, pause=30)), concurrency=1)
    async def settle(body: str) -> None:
        calls.append(body)
        if down[0]:
            raise ConnectionError("no database")

    with TestApp(app) as tested:
        tested.publish_many("orders", [str(number) for number in range(10)])
        tested.advance(20)
        assert len(calls) == 3
        tested.advance(30)
        assert len(calls) == 4
        down[0] = False
        tested.advance(90)
        assert len(tested.handled) == 10


def test_an_order_per_key_is_kept_over_failures() -> None:
    app, done = RocketApp("shop", retries=3), defaultdict[str, list[int]](list)

    @app.subscribe("orders", order_by="customer", retry=Policy([0.5]))
    async def settle(body: str, message: Message, context: Context) -> None:
        if int(body) % 7 == 0 and context.attempt == 1:
            raise ValueError("not yet")
        done[message.properties["customer"]].append(int(body))

    with TestApp(app) as tested:
        for number in range(40):
            customer = f"c{number % 4}"
            tested.publish("orders", str(number), order_key=customer, properties={"customer": customer})
        tested.advance(30)
        assert len(tested.retried) == 6
    assert {key: sorted(numbers) for key, numbers in done.items()} == done
    assert sum(map(len, done.values())) == 40
