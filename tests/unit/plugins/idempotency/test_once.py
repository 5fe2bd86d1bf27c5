"""One handler with idempotent=, message by message."""

from __future__ import annotations

import asyncio

import pytest

from rocketapp import DeadLetter, Message, Retry, RocketApp, SetupError, Skip
from rocketapp.plugin import Park
from rocketapp.plugins.idempotency.decisions import MemoryStore
from rocketapp.plugins.idempotency.plugin import Idempotency
from tests.unit.app.given import bound
from tests.unit.plugins.idempotency.stage import FailingStore, in_thread, message, opened, settled
from tests.unit.scripted import in_virtual_time


class Taken(list[bytes]):
    """The bodies that the handler of an app was given."""

    def __init__(self, **options: object) -> None:
        super().__init__()
        self.app = RocketApp("shop")
        self.answer: object = None

        @self.app.subscribe("orders", **{"idempotent": True, **options})  # type: ignore[arg-type]
        async def take(message: Message) -> object:
            self.append(message.body)
            if isinstance(self.answer, BaseException):
                raise self.answer
            return self.answer


@in_virtual_time
async def test_a_second_copy_is_skipped_when_the_first_is_done() -> None:
    taken = Taken()
    async with opened(taken.app) as call:
        assert await call(message()) is None
        assert isinstance(await call(message(offset=1)), Skip)
        assert isinstance(await call(message(attempt=2)), Skip)
    assert taken == [b"1"]


@in_virtual_time
async def test_two_bodies_under_one_id_are_two_messages() -> None:
    """Brokers up to 5.3.3 give the messages of a batch one id."""
    taken = Taken()
    async with opened(taken.app) as call:
        await call(message("A", b"1"))
        await call(message("A", b"2", offset=1))
        await call(message("A", b"2", offset=2))
    assert taken == [b"1", b"2"]


@in_virtual_time
async def test_two_tags_under_one_id_are_two_messages() -> None:
    """The messages of such a batch may have one body as well: the tag says what it is about."""
    taken = Taken()
    async with opened(taken.app) as call:
        for tag in ("opened", "closed", None, "closed"):
            await call(message(tag=tag))
    assert len(taken) == 3


@in_virtual_time
async def test_a_key_function_says_what_is_the_same() -> None:
    taken = Taken(idempotent=lambda message: message.body[:1].decode())
    async with opened(taken.app) as call:
        await call(message("A", b"1 first"))
        await call(message("B", b"1 again"))
        await call(message("C", b"2"))
    assert taken == [b"1 first", b"2"]


@in_virtual_time
async def test_a_version_that_takes_other_tags_finds_what_the_one_before_has_handled() -> None:
    store, before, after = MemoryStore(100), Taken(tags="paid"), Taken(tags=["paid", "shipped"])
    async with opened(before.app, store) as call:
        await call(message(tag="paid"))
    async with opened(after.app, store) as call:
        assert isinstance(await call(message(offset=1, tag="paid")), Skip)
    assert (before, after) == ([b"1"], [])


@pytest.mark.parametrize(
    ("key", "error", "problem"), [(5, TypeError, "5, not a str"), ("", ValueError, "an empty key")]
)
def test_what_cannot_be_a_key_fails_the_attempt(key: object, error: type[Exception], problem: str) -> None:
    @in_virtual_time
    async def run() -> None:
        taken = Taken(idempotent=lambda message: key)
        async with opened(taken.app) as call:
            with pytest.raises(error, match=f"the idempotent= function of .*take returned {problem}"):
                await call(message())
        assert taken == []

    run()


@in_virtual_time
async def test_a_mark_is_forgotten_when_it_expires() -> None:
    taken = Taken()
    async with opened(taken.app, expiry=60.0) as call:
        await call(message())
        await asyncio.sleep(61)
        await call(message(offset=1))
    assert taken == [b"1", b"1"]


@pytest.mark.parametrize("answer", [ValueError("no"), Retry(), DeadLetter("no")], ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("is_raised", [True, False], ids=["raised", "returned"])
def test_what_was_not_done_is_handled_again(answer: Exception, is_raised: bool) -> None:
    if not is_raised and isinstance(answer, ValueError):
        return

    @in_virtual_time
    async def run() -> None:
        taken = Taken()
        taken.answer = answer
        app = taken.app if is_raised else _returning(taken)
        async with opened(app) as call:
            if is_raised:
                with pytest.raises(type(answer)):
                    await call(message())
            else:
                assert await call(message()) is answer
            taken.answer = None
            await call(message(attempt=2))
        assert taken == [b"1", b"1"]

    run()


def _returning(taken: Taken) -> RocketApp:
    app = RocketApp("shop")

    @app.subscribe("orders", idempotent=True)
    async def take(message: Message) -> object:
        taken.append(message.body)
        return taken.answer

    return app


@in_virtual_time
async def test_a_raised_skip_is_done() -> None:
    taken = Taken()
    taken.answer = Skip("not ours")
    async with opened(taken.app) as call:
        with pytest.raises(Skip, match="not ours"):
            await call(message())
        assert isinstance(await call(message(offset=1)), Skip)
    assert taken == [b"1"]


def slow(taken: list[bytes], seconds: float, **options: object) -> RocketApp:
    app = RocketApp("shop")

    @app.subscribe("orders", **{"idempotent": True, **options})  # type: ignore[arg-type]
    async def take(message: Message) -> None:
        taken.append(message.body)
        await asyncio.sleep(seconds)

    return app


@in_virtual_time
async def test_a_second_copy_waits_for_the_first_and_is_skipped_then() -> None:
    taken, now = list[bytes](), asyncio.get_running_loop().time
    async with opened(slow(taken, 5.0)) as call:
        began = now()
        first, second = await asyncio.gather(call(message()), settled(call, message(offset=1)))
        assert first is None and isinstance(second, Skip)
        assert now() - began < 6.5
    assert taken == [b"1"]


@in_virtual_time
async def test_a_handler_that_outlives_its_lease_keeps_it() -> None:
    taken = list[bytes]()
    async with opened(slow(taken, 500.0), lease=30.0) as call:
        first = asyncio.gather(call(message()))
        for _ in range(40):
            await asyncio.sleep(12.0)
            assert isinstance(await call(message(offset=1)), Park)
        await first
    assert taken == [b"1"]


@in_virtual_time
async def test_a_lease_that_ended_while_the_store_was_away_is_taken_again() -> None:
    taken, store = list[bytes](), FailingStore()
    async with opened(slow(taken, 500.0), store, lease=30.0, patience=0.0) as call:
        first = asyncio.gather(call(message()))
        await asyncio.sleep(1.0)
        store.down = {"claim"}
        await asyncio.sleep(60.0)
        store.down = set()
        store.forget()
        await asyncio.sleep(10.0)
        assert isinstance(await call(message(offset=1)), Park)
        await first
    assert taken == [b"1"]


@in_virtual_time
async def test_a_lease_that_another_copy_has_taken_is_told_and_left_to_it(caplog: pytest.LogCaptureFixture) -> None:
    taken, store = list[bytes](), FailingStore()
    async with opened(slow(taken, 100.0), store, lease=30.0) as call:
        first = asyncio.gather(call(message()))
        await asyncio.sleep(1.0)
        store.forget()
        second = asyncio.gather(call(message(offset=1)))
        await asyncio.gather(first, second)
    assert taken == [b"1", b"1"]
    assert "1 leases are lost: copies of messages in flight are or were handled elsewhere" in caplog.text
    assert caplog.text.count("are lost") == 1


@in_virtual_time
async def test_the_claim_of_a_process_that_died_ends_with_its_lease() -> None:
    store, taken = FailingStore(), Taken()
    async with opened(taken.app, store, lease=30.0) as call:
        store.down = {"release"}
        taken.answer = ValueError("as if the process ended here")
        with pytest.raises(ValueError):
            await call(message())
        taken.answer = None
        began = asyncio.get_running_loop().time()
        assert await settled(call, message()) is None
        assert 29.0 < asyncio.get_running_loop().time() - began < 32.0
    assert taken == [b"1", b"1"]


@in_virtual_time
async def test_a_cancelled_handler_gives_its_claim_back() -> None:
    taken, now = list[bytes](), asyncio.get_running_loop().time
    async with opened(slow(taken, 5.0)) as call:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.0):
                await call(message())
        began = now()
        await call(message())
        assert now() - began == pytest.approx(5.0)


@in_virtual_time
async def test_a_short_outage_of_the_store_costs_no_attempt() -> None:
    store, taken = FailingStore(), Taken()
    async with opened(taken.app, store) as call:
        store.down = {"claim", "done"}
        asyncio.get_running_loop().call_later(3.0, store.down.clear)
        assert await call(message()) is None
        assert isinstance(await call(message(offset=1)), Skip)
    assert taken == [b"1"]


@in_virtual_time
async def test_when_the_store_is_down_the_message_is_retried_with_the_reason_and_not_handled() -> None:
    store, taken = FailingStore(), Taken()
    async with opened(taken.app, store, patience=10.0) as call:
        store.down = {"claim"}
        outcome = await call(message())
        assert isinstance(outcome, Retry)
        assert "fails: ConnectionError: refused" in str(outcome.__cause__)
    assert taken == []


@in_virtual_time
async def test_a_message_that_was_handled_is_done_although_its_mark_is_lost(caplog: pytest.LogCaptureFixture) -> None:
    store, taken = FailingStore(), Taken()
    async with opened(taken.app, store) as call:
        store.down = {"done"}
        assert await call(message()) is None
    assert "1 handled messages have no mark" in caplog.text


async def test_a_sync_handler_is_handled_once_too() -> None:
    app, taken = RocketApp("shop"), list[bytes]()

    @app.subscribe("orders", idempotent=True)
    def take(message: Message) -> None:
        taken.append(message.body)
        if len(taken) == 1:
            raise ValueError("the first time")
        if len(taken) == 3:
            raise Skip

    async with opened(app) as call:
        with pytest.raises(ValueError):
            await in_thread(lambda: call(message()))
        assert await in_thread(lambda: call(message(attempt=2))) is None
        assert isinstance(await in_thread(lambda: call(message(offset=1))), Skip)
        with pytest.raises(Skip):
            await in_thread(lambda: call(message("B")))
        assert isinstance(await in_thread(lambda: call(message("B"))), Skip)
    assert len(taken) == 3


def test_a_handler_without_it_has_nothing_in_front_of_it() -> None:
    assert Idempotency().handler_wrapper(bound(Taken(idempotent=False).app).subscription) is None


async def _key(message: Message) -> str:
    return ""


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("order_id", "give True, False, or a function that takes the Message and returns its key"),
        (str, "give True, False, or a function"),
        (_key, "a plain `def`"),
    ],
)
def test_what_is_no_key_function_is_refused_with_its_place(value: object, problem: str) -> None:
    with pytest.raises(SetupError, match=rf"test_once\.py:\d+: idempotent=.*{problem}"):
        Taken(idempotent=value)
