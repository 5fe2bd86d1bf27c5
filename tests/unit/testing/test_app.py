"""TestApp: an app under test, in both forms."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from dependency_injector import containers, providers
from dependency_injector.wiring import Provide

from rocketapp import Context, DeadLetter, Message, Publisher, Retry, RocketApp, SetupError, Skip
from rocketapp.errors import ConfigError
from rocketapp.testing import Done, TestApp, TestedApp


class Order(msgspec.Struct, frozen=True):
    id: str
    amount: int


def shop() -> RocketApp:
    """One app per test: what a test declares stays with it."""
    return RocketApp("shop")


def test_what_the_app_has_opened_is_closed_when_a_test_fails(caplog: pytest.LogCaptureFixture) -> None:
    app, closed = RocketApp("shop"), list[str]()

    @app.on_shutdown
    async def close() -> None:
        await asyncio.sleep(1)
        closed.append("database")

    @app.subscribe("orders", idempotent=True)
    async def settle(message: Message) -> None: ...

    with pytest.raises(ZeroDivisionError), TestApp(app) as t:
        t.publish("orders", b"1")
        t.settle()
        _ = 1 / 0
    assert closed == ["database"]
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


def test_a_message_is_handled_when_time_may_pass() -> None:
    app = shop()

    @app.subscribe("orders")
    async def settle(order: Order) -> str:
        return order.id

    with TestApp(app) as t:
        t.publish("orders", Order("1", 5), tag="paid")
        assert t.handled == []
        t.advance()
        (handled,) = t.handled
        assert (handled.attempt, handled.outcome, handled.message.tag) == (1, Done("1"), "paid")
        assert handled.handler.endswith("settle")
        assert t.now == 0 or t.now < 0.2  # nothing had to wait


async def test_the_async_form_does_the_same_within_a_running_loop() -> None:
    app, thread, outer = shop(), threading.get_ident(), asyncio.get_running_loop()
    seen: list[tuple[int, bool]] = []

    @app.subscribe("orders")
    async def settle(order: Order) -> None:
        seen.append((threading.get_ident(), asyncio.get_running_loop() is outer))

    async with TestApp(app) as t:
        await t.publish("orders", Order("1", 5))
        await t.settle()
        assert [handled.outcome for handled in t.handled] == [Done()]
    assert seen == [(thread, False)]
    assert asyncio.get_running_loop() is outer
    task = asyncio.current_task()
    assert task is not None
    assert not task.done()


async def test_the_tests_own_loop_goes_on_meanwhile() -> None:
    app, ticks = shop(), 0

    @app.subscribe("orders")
    async def settle(order: Order) -> None: ...

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    ticking = asyncio.get_running_loop().create_task(tick())
    async with TestApp(app) as t:
        before = ticks
        await t.publish("orders", Order("1", 5))
        await t.advance(minutes=10)
        assert ticks > before
    ticking.cancel()


def test_a_delay_of_any_length_is_over_within_its_second() -> None:
    app, came = RocketApp("shop"), list[float]()

    @app.subscribe("orders", start="first")
    async def settle(message: Message) -> None:
        came.append(asyncio.get_running_loop().time())

    with TestApp(app) as t:
        t.publish("orders", "late", delay=100)
        t.advance(10)
        t.publish("orders", "early", delay=45)
        t.advance(hours=1)
    assert [round(at) for at in came] == [pytest.approx(55, abs=1), pytest.approx(100, abs=1)]


def test_two_hours_bring_retries_at_their_times() -> None:
    app = shop()

    @app.subscribe("orders", retries=3)
    async def settle(order: Order) -> None:
        raise ValueError("no stock")

    with TestApp(app) as t:
        t.publish("orders", Order("1", 5))
        t.advance(hours=2)
        assert [retried.delay for retried in t.retried] == [10, 30, 60]
        assert [round(retried.at) for retried in t.retried] == [0, 10, 40]
        (dead,) = t.dead
        assert (dead.attempts, round(dead.at), type(dead.error)) == (4, 100, ValueError)
        assert "ValueError: no stock" in dead.reason
        assert t.handled == []
        assert t.now == pytest.approx(7200, abs=1)


def test_popped_messages_are_handled_and_their_retries_come_at_their_times() -> None:
    app = shop()

    @app.subscribe("orders", mode="pop", retries=2)
    async def settle(order: Order) -> None:
        if order.amount > 5:
            raise ValueError("no stock")

    with TestApp(app) as t:
        for amount in (4, 5, 6):
            t.publish("orders", Order(str(amount), amount))
        t.settle()
        assert len(t.handled) == 2
        assert [retried.delay for retried in t.retried] == [10, 30]
        assert [round(retried.at) for retried in t.retried] == [0, 10]
        (dead,) = t.dead
        assert (dead.attempts, round(dead.at)) == (3, 40)


def test_outcomes_are_told_apart() -> None:
    app = shop()

    @app.subscribe("orders")
    async def settle(order: Order, context: Context) -> Skip | None:
        if order.id == "dead":
            raise DeadLetter("stolen")
        if order.id == "retry" and context.attempt == 1:
            raise Retry(after=1)
        return Skip("a test order") if order.id == "skip" else None

    with TestApp(app) as t:
        t.publish_many("orders", [Order(id, 1) for id in ("dead", "retry", "skip", "done")])
        t.publish("orders", b"{")
        t.settle()
        done = [handled for handled in t.handled if isinstance(handled.outcome, Done)]
        assert sorted((one.message.json()["id"], one.attempt) for one in done) == [("done", 1), ("retry", 2)]
        (skipped,) = (handled.outcome for handled in t.handled if isinstance(handled.outcome, Skip))
        assert skipped.reason == "a test order"
        assert [retried.message.json()["id"] for retried in t.retried] == ["retry"]
        assert sum("stolen" in dead.reason for dead in t.dead) == 1
        assert sum("cannot be read as Order" in dead.reason for dead in t.dead) == 1


def test_what_one_handler_has_done_is_told_apart() -> None:
    app = RocketApp("shop")

    @app.subscribe("orders", tags="paid", start="first")
    async def settle(message: Message) -> None: ...

    @app.subscribe("orders", start="first")
    def log(message: Message) -> None: ...

    def stranger(message: Message) -> None: ...

    with TestApp(app) as t:
        t.publish("orders", "1", tag="paid")
        t.publish("orders", "2")
        t.publish("orders", "3", tag="paid")
        t.settle()
        assert sorted(one.message.text() for one in t.handled_by(settle)) == ["1", "3"]
        assert [one.message.text() for one in t.handled_by(log)] == ["2"]
        with pytest.raises(LookupError, match="stranger is not a handler of"):
            t.handled_by(stranger)


def test_a_message_whose_place_in_the_order_is_not_known_is_among_the_dead_letters() -> None:
    app = shop()

    @app.subscribe("orders", order_by=lambda message: message.json()["customer"])
    async def settle(message: Message) -> None: ...

    with TestApp(app) as t:
        t.publish_many("orders", [{"customer": 1}, {"id": 2}])
        t.settle()
        (dead,) = t.dead
        assert (dead.message.json(), dead.attempts, dead.error) == ({"id": 2}, 1, None)
        assert "order_by= failed" in dead.reason
        assert [handled.message.json() for handled in t.handled] == [{"customer": 1}]


def test_what_handlers_publish_is_recorded_and_what_the_test_publishes_is_not() -> None:
    app = shop()

    @app.subscribe("orders")
    async def settle(order: Order, publisher: Publisher) -> None:
        await publisher.publish("stock", order, tag="out", keys=[order.id], order_key="tea", delay=10)

    @app.subscribe("stock")
    async def move(order: Order) -> None: ...

    with TestApp(app) as t:
        t.publish("orders", Order("1", 5))
        t.settle()
        (published,) = t.published
        assert (published.topic, published.tag, published.keys) == ("stock", "out", ("1",))
        assert (published.order_key, published.delay) == ("tea", 10)
        assert published.payload(Order) == Order("1", 5)
        assert published.json() == {"id": "1", "amount": 5}
        assert [handled.message.topic for handled in t.handled] == ["orders", "stock"]
        assert t.handled[1].at == pytest.approx(10, abs=0.1)


def test_sync_handlers_run_in_order_while_time_stands_still() -> None:
    app = shop()

    @app.subscribe("orders")
    def settle(order: Order, publisher: Publisher) -> None:
        publisher.publish_sync("stock", order)

    with TestApp(app) as t:
        t.publish_many("orders", [Order(str(number), 1) for number in range(20)], order_key="one queue")
        t.settle()
        assert [handled.message.json()["id"] for handled in t.handled] == [str(number) for number in range(20)]
        assert [published.json()["id"] for published in t.published] == [str(number) for number in range(20)]
        assert t.now < 1


def test_orderly_messages_are_tried_again_in_place() -> None:
    app = shop()

    @app.subscribe("stock", orderly=True)
    async def move(message: Message) -> None:
        if message.attempt < 3:
            raise Retry

    with TestApp(app) as t:
        t.publish("stock", b"1", order_key="tea")
        t.publish("stock", b"2", order_key="tea")
        t.settle()
        assert [(handled.message.body, handled.attempt) for handled in t.handled] == [(b"1", 3), (b"2", 3)]


class Shop(containers.DeclarativeContainer):
    database = providers.Object("the real one")


def test_overrides_stand_for_providers_of_the_container() -> None:
    app, used = RocketApp("shop", container=Shop), []

    @app.subscribe("orders")
    async def settle(order: Order, database: str = Provide["database"]) -> None:
        used.append(database)

    for overrides in ({"database": "a fake"}, {"database": providers.Object("another")}, {}):
        with TestApp(app, overrides=overrides) as t:
            t.publish("orders", Order("1", 5))
            t.settle()
    assert used == ["a fake", "another", "the real one"]
    with pytest.raises(SetupError, match="no such provider: it has database"), TestApp(app, overrides={"databse": 1}):
        pass


def test_settings_come_before_those_of_the_app() -> None:
    app = RocketApp("shop", settings={"consumer": {"retries": 5}})

    @app.subscribe("orders")
    async def settle(order: Order) -> None:
        raise Retry

    with TestApp(app, settings={"consumer": {"retries": 1}}) as t:
        t.publish("orders", Order("1", 5))
        t.settle()
        assert [dead.attempts for dead in t.dead] == [2]


def test_every_run_of_a_test_is_the_same() -> None:
    def run() -> list[tuple[str, float, int]]:
        app = shop()

        @app.subscribe("orders")
        async def settle(order: Order) -> None:
            await asyncio.sleep(order.amount)
            if order.amount % 3 == 0:
                raise Retry

        with TestApp(app) as t:
            t.publish_many("orders", [Order(str(number), number) for number in range(10)])
            t.advance(minutes=10)
            return [(one.message.json()["id"], one.at, one.message.queue_id) for one in t.handled]

    assert run() == run()


def test_a_start_that_fails_says_why_and_leaves_nothing_behind() -> None:
    app = shop()

    @app.on_startup
    def open_shop() -> None:
        raise ValueError("no key")

    for _ in range(2):
        with pytest.raises(SetupError, match="no key"), TestApp(app):
            pass


def test_what_waits_for_ever_fails_the_test_instead_of_hanging_it() -> None:
    app = shop()

    @app.subscribe("orders")
    async def settle(order: Order) -> None:
        await asyncio.get_running_loop().create_future()

    with TestApp(app) as t:
        t.publish("orders", Order("1", 5))
        with pytest.raises(AssertionError, match=r"not settled within 60 s: .*1 messages are unfinished"):
            t.settle(limit=60)


async def test_a_test_may_break_off_what_it_waits_for() -> None:
    app = shop()

    @app.subscribe("orders")
    async def settle(order: Order) -> None:
        await asyncio.to_thread(threading.Event().wait, 0.2)

    async with TestApp(app) as t:
        await t.publish("orders", Order("1", 5))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await t.settle()
        await t.settle()
        assert len(t.handled) == 1


def test_time_stands_still_while_a_sync_handler_works_on_after_it_has_published() -> None:
    app, worked = RocketApp("shop"), list[str]()

    @app.subscribe("orders")
    def settle(message: Message) -> None:
        app.publish_sync("bills", "1")
        threading.Event().wait(0.2)
        worked.append(message.text())

    with TestApp(app) as t:
        t.publish("orders", "1")
        t.advance(1)
        assert worked == ["1"]


def test_time_stands_still_while_a_server_takes_its_time_to_answer() -> None:
    app = RocketApp("shop")
    here, there = socket.socketpair()
    here.setblocking(False)

    @app.subscribe("orders")
    async def take(message: Message) -> dict[str, str]:
        answer = await asyncio.get_running_loop().sock_recv(here, 10)
        return {"answer": answer.decode()}

    answering = threading.Timer(0.1, there.sendall, (b"yes",))
    with here, there, TestApp(app) as t:
        answering.start()
        assert t.request("orders", "1", timeout=3).json() == {"answer": "yes"}
    answering.join()


def test_time_stands_still_while_a_thread_works() -> None:
    app = shop()

    @app.subscribe("orders", timeout=5)
    async def settle(order: Order) -> None:
        await asyncio.to_thread(threading.Event().wait, 0.05)

    with TestApp(app) as t:
        t.publish("orders", Order("1", 5))
        t.advance(hours=1)
        assert [handled.at < 1 for handled in t.handled] == [True]


@pytest.mark.parametrize("eu", ["eu-1.example:9876;eu-2.example:9876", "https://eu.example/rocketmq/nsaddr"])
def test_clusters_of_an_app_are_embedded_too(eu: str) -> None:
    app = RocketApp("shop", clusters={"eu": eu})

    @app.subscribe("orders", cluster="eu")
    async def settle(order: Order) -> None: ...

    with TestApp(app) as t:
        t.publish("orders", Order("1", 5), cluster="eu")
        t.publish("orders", Order("2", 5))
        t.settle()
        assert [handled.message.json()["id"] for handled in t.handled] == ["1"]


def test_the_room_is_imported_without_what_it_holds() -> None:
    program = (
        "import sys, rocketapp.testing; print(sorted({'asyncio', 'msgspec', 'pluggy', 'pytest'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"


# Used wrongly.


@pytest.mark.parametrize(
    "duration",
    [{"seconds": float("nan")}, {"hours": float("inf")}, {"minutes": "1"}, {"seconds": True}, {"seconds": -1}],
)
def test_time_that_cannot_pass_is_refused(duration: dict[str, Any]) -> None:
    with TestApp(shop()) as t, pytest.raises((TypeError, ValueError), match=r"^advance\("):
        t.advance(**duration)


def test_a_limit_that_no_time_reaches_is_refused() -> None:
    with TestApp(shop()) as t, pytest.raises(ValueError, match=r"^settle\(limit=nan\): give a finite number"):
        t.settle(limit=float("nan"))


@pytest.mark.parametrize("name", ["publish", "publish_many", "request"])
def test_a_keyword_that_publishing_does_not_take_is_refused_by_name_whatever_it_is(name: str) -> None:
    with (
        TestApp(shop()) as t,
        pytest.raises(TypeError, match=rf"^{name}\(\) takes no keyword 'call': it"),
    ):
        getattr(t, name)("orders", [b"1"], call=1)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "use", [lambda t: t.publish("orders", b"1"), lambda t: t.publish_many("orders", [b"1"]), lambda t: t.settle()]
)
def test_an_app_that_has_ended_says_so(use: Callable[[TestedApp], object]) -> None:
    with TestApp(shop()) as t:
        pass
    with pytest.raises(RuntimeError, match="has ended: only its lists can be read"):
        use(t)
    assert t.handled == []


def test_an_app_that_was_not_entered_says_how() -> None:
    with pytest.raises(AttributeError, match=r"write `with TestApp.app. as t:`, and t.publish"):
        TestApp(shop()).publish("orders", b"1")  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"app": 5}, r"TestApp\(5\): give the RocketApp to test"),
        ({"settings": {"consumer.retries": 1}}, "give options by table"),
        ({"settings": {"consumer": {"retries": "x"}}}, r"^TestApp\(settings=...\): consumer.retries: 'x' is text"),
    ],
)
def test_what_cannot_be_tested_is_told_as_the_test_s_own_mistake(given: dict[str, Any], problem: str) -> None:
    with pytest.raises((TypeError, ConfigError), match=problem):
        TestApp(**{"app": shop(), **given}).__enter__()


def test_an_app_that_runs_already_is_told_at_the_test_s_line() -> None:
    app = shop()
    with TestApp(app), pytest.raises(SetupError, match="is running already") as caught:
        TestApp(app).__enter__()
    assert caught.value.place.startswith(f"{__file__}:")


def test_what_a_broadcast_group_drops_is_told_apart() -> None:
    app = shop()

    @app.subscribe("prices", broadcast=True, start="first")
    async def remember(message: Message) -> None:
        if message.text() == "bad":
            raise ValueError("no")

    with TestApp(app) as t:
        t.publish("prices", "good")
        t.publish("prices", "bad")
        t.settle()
        assert [one.message.text() for one in t.handled] == ["good"]
        (dropped,) = t.dropped
        assert (dropped.message.text(), dropped.attempts) == ("bad", 1)
        assert isinstance(dropped.error, ValueError)
        assert (t.retried, t.dead) == ([], [])


def test_a_filter_by_sql_decides_what_a_handler_gets() -> None:
    app = shop()

    @app.subscribe("orders", sql="amount BETWEEN 6 AND 100 AND TAGS = 'paid'")
    async def settle(message: Message) -> str:
        return message.text()

    with TestApp(app) as t:
        for amount in ("5", "6", "100", "101"):
            t.publish("orders", amount, tag="paid", properties={"amount": amount})
        t.publish("orders", "open", tag="open", properties={"amount": "7"})
        t.settle()
        assert sorted(one.message.text() for one in t.handled) == ["100", "6"]
