"""What goes wrong around an app under test: each fault does what it says."""

from __future__ import annotations

import asyncio

import pytest

from rocketapp import Message, Retry, RocketApp, SendRefused, SendUnknown
from rocketapp.testing import TestApp


def shop(**options: object) -> RocketApp:
    app = RocketApp("shop")

    @app.subscribe("orders", **options)  # type: ignore[arg-type]
    async def settle(message: Message) -> None:
        if message.body == b"fails" and message.attempt == 1:
            raise Retry

    return app


def test_a_broker_that_is_away_answers_nothing_until_it_is_back() -> None:
    with TestApp(shop()) as t:
        t.publish("orders", b"1")
        t.settle()
        t.faults.broker_away(seconds=60)
        with pytest.raises((SendUnknown, SendRefused)):
            t.publish("orders", b"2")
        t.advance(120)
        t.publish("orders", b"3")
        t.settle()
        assert {b"1", b"3"} <= {handled.message.body for handled in t.handled}
        assert t.handled[1].at >= 60


def test_a_failed_message_waits_for_a_broker_that_refuses_connections() -> None:
    with TestApp(shop()) as t:
        t.publish("orders", b"fails")
        t.advance()
        t.faults.broker_refusing(seconds=60)
        t.advance(30)
        assert t.handled == []
        t.settle()
        assert [(handled.attempt, handled.at >= 60) for handled in t.handled] == [(2, True)]


def test_a_slow_broker_delays_what_is_sent() -> None:
    with TestApp(shop()) as t:
        t.faults.broker_slow(latency=0.5, seconds=60)
        t.publish("orders", b"1")
        assert t.now >= 1  # there and back
        t.settle()
        assert t.handled[0].at >= 1
        t.advance(60)
        before = t.now
        t.publish("orders", b"2")
        assert t.now == before


def test_after_a_lost_connection_messages_flow_again() -> None:
    with TestApp(shop()) as t:
        for number in range(3):
            t.faults.connection_lost()
            t.advance(10)
            t.publish("orders", b"%d" % number)
            t.settle()
        assert {handled.message.body for handled in t.handled} == {b"0", b"1", b"2"}


def test_a_message_whose_lease_is_lost_while_it_is_handled_is_handled_again() -> None:
    app, begun = RocketApp("shop"), list[float]()

    @app.subscribe("stock", orderly=True)
    async def move(message: Message) -> None:
        begun.append(asyncio.get_running_loop().time())
        await asyncio.sleep(45 if len(begun) == 1 else 1)

    with TestApp(app) as t:
        t.publish("stock", b"1", order_key="tea")
        t.advance(1)
        t.faults.lease_lost("stock", seconds=30)
        t.settle()
        # The first call has returned after the lease was lost: it counts for nothing.
        assert [handled.message.body for handled in t.handled] == [b"1", b"1"]
        assert begun[0] < 1 < 45 <= begun[1]


def test_a_duplicate_is_delivered_with_the_id_of_the_first() -> None:
    with TestApp(shop()) as t:
        t.publish("orders", b"1", tag="paid")
        t.settle()
        t.faults.duplicate(t.handled[0].message)
        t.settle()
        first, second = (handled.message for handled in t.handled)
        assert first.message_id == second.message_id
        assert (second.body, second.tag) == (b"1", "paid")


def test_a_duplicate_of_a_message_that_was_retried_is_as_it_was_published() -> None:
    app = RocketApp("shop")
    seen: list[Message] = []

    @app.subscribe("orders")
    async def settle(message: Message) -> None:
        seen.append(message)
        if len(seen) == 1:
            raise ConnectionError

    with TestApp(app) as t:
        t.publish("orders", b"1", tag="paid")
        t.settle()
        t.faults.duplicate(t.handled[0].message)
        t.advance(1)
        assert [one.attempt for one in seen] == [1, 2, 1]
        assert seen[2].properties == seen[0].properties


def test_the_clock_jumps_and_a_delay_is_not_lost() -> None:
    with TestApp(shop()) as t:
        t.publish("orders", b"1", delay=60)
        t.faults.clock_jump(-86_400)
        t.advance(300)
        assert [handled.message.body for handled in t.handled] == [b"1"]
        t.faults.clock_jump(86_400)
        t.publish("orders", b"2")
        t.settle()
        assert (t.handled[1].message.born_at - t.handled[0].message.born_at).total_seconds() < 600


def test_sixteen_retries_then_a_dead_letter() -> None:
    app = RocketApp("shop")

    @app.subscribe("orders")
    async def settle(message: Message) -> None:
        raise ValueError("no stock")

    with TestApp(app) as t:
        t.publish("orders", b"1")
        t.settle()
        assert len(t.retried) == 16
        assert [dead.attempts for dead in t.dead] == [17]
        assert t.now > 4.7 * 3600


def test_a_fault_of_an_unknown_cluster_is_an_error() -> None:
    with TestApp(shop()) as t, pytest.raises(LookupError, match="names none"):
        t.faults.connection_lost(cluster="eu")


def test_a_lease_of_a_topic_that_the_app_does_not_consume_cannot_be_lost() -> None:
    with TestApp(shop()) as t, pytest.raises(LookupError, match=r"lease_lost\('order'\): the app consumes orders"):
        t.faults.lease_lost("order")


@pytest.mark.parametrize(
    ("fault", "arguments"),
    [
        ("broker_away", (-1,)),
        ("broker_refusing", (float("nan"),)),
        ("broker_slow", ("x", 1)),
        ("broker_slow", (1, float("inf"))),
        ("lease_lost", ("orders",)),
        ("duplicate", ("x",)),
        ("clock_jump", ("x",)),
    ],
)
def test_a_fault_that_cannot_be_is_refused_where_the_test_asks_for_it(
    fault: str, arguments: tuple[object, ...]
) -> None:
    options = {"seconds": -1} if fault == "lease_lost" else {}
    with TestApp(shop()) as t, pytest.raises((TypeError, ValueError), match=rf"^{fault}\(.*: give a "):
        getattr(t.faults, fault)(*arguments, **options)
