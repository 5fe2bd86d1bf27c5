"""User code that must check."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict, assert_type

import msgspec

from rocketapp import (
    Breaker,
    Client,
    Context,
    DeadLetter,
    Message,
    MessageQueue,
    Outcomes,
    Pause,
    Policy,
    Publisher,
    Pull,
    Retry,
    RocketApp,
    Router,
    SendRefused,
    SendResult,
    SendUnknown,
    Skip,
    SyncClient,
    SyncPull,
    Topic,
    TopicPublisher,
    TypeByProperty,
    TypeByTag,
)
from rocketapp.plugin import Wrapper, hookimpl, option


class Order(msgspec.Struct):
    id: str
    amount: int


@dataclass
class Move:
    item: str


class Row(TypedDict):
    name: str


app = RocketApp("shop", clusters={"eu": "h:1"}, version="1.2")
billing = Router(prefix="billing-", group="billing", cluster="eu", retries=2, timeout=5)
quick = RocketApp("quick", retries=0, concurrency=4, start="first")
stopping = Router(retry=Policy(breaker=Breaker(failures=5, pause=2.5)))
careful = Router(
    retry=Policy([1, 5.5, 30], on={TimeoutError: Retry(after=60), ValueError: DeadLetter, KeyError: Pause})
)


@app.subscribe("orders", tags="paid || refunded", concurrency=8, timeout=3)
async def settle(order: Order, message: Message, context: Context) -> int:
    if message.tag == "refunded":
        raise Retry(after=30)
    context.logger.info("attempt %d", context.attempt)
    return order.amount


@app.subscribe("orders", tags="shipped")
def ship(message: Message) -> Skip | None:
    return Skip("seen") if message.attempt > 1 else None


@app.subscribe("accounts", order_by="customer", rate=2.5)
async def settle_account(message: Message) -> None: ...


@app.subscribe("accounts", group="other", order_by=lambda message: (message.tag, message.queue_id))
async def settle_by_tag(message: Message) -> None: ...


@app.subscribe("carts")
async def remind(order: Order, context: Context, publisher: Publisher) -> None:
    assert_type(await context.publish("reminders", order, delay=1800), SendResult)
    assert_type(await publisher.publish("reminders", order, tag="cart"), SendResult)
    assert_type(await publisher.publish_many("reminders", [order], cluster="eu"), list[SendResult])
    await publisher.publish_one_way("reminders", order)
    assert_type(await context.request("prices", order, timeout=2), Message)
    assert_type(await publisher.request("prices", order), Message)


@app.subscribe("carts", group="sync")
def remind_sync(order: Order, context: Context, publisher: Publisher) -> None:
    assert_type(context.publish_sync("reminders", order), SendResult)
    assert_type(publisher.publish_sync("reminders", order), SendResult)
    assert_type(publisher.publish_many_sync("reminders", [order]), list[SendResult])
    assert_type(context.recall_sync("reminders", "handle"), None)
    assert_type(context.request_sync("prices", order), Message)
    assert_type(publisher.request_sync("prices", order), Message)


@app.subscribe("payments", idempotent=lambda message: message.properties["payment_id"])
async def pay(order: Order) -> None: ...


@app.subscribe("refunds", idempotent=True)
def pay_back(order: Order) -> None: ...


def anything_that_publishes(publisher: Publisher) -> None: ...


anything_that_publishes(app)
anything_that_publishes(Context.make())
anything_that_publishes(Client("h:1"))
orders = Topic("orders", Order)
names = Topic("names", str)
to_orders = app.publisher(orders)
assert_type(to_orders, TopicPublisher[Order])
assert_type(app.publisher("moves", Move), TopicPublisher[Move])


@app.subscribe(orders, group="typed")
async def settle_typed(order: Order, context: Context, publisher: Publisher) -> int:
    assert_type(await publisher.publish(orders, order, tag="paid"), SendResult)
    assert_type(await context.publish(names, order.id), SendResult)
    assert_type(await to_orders.publish(order, delay=1800), SendResult)
    assert_type(await app.publish_many(orders, [order]), list[SendResult])
    return 1


@app.subscribe(orders, group="returned")
@app.publishes(names, tag="new", keys=["k"])
async def name_of(order: Order) -> str | None:
    return order.id


@app.subscribe(orders, group="returned plainly")
@app.publishes(names)
async def several_names(message: Message) -> list[str]:
    return [message.text()]


@app.publishes(names)
def several_names_in_a_thread(message: Message) -> list[str]:
    return [message.text()]


@app.publishes(orders)
def order_of(order: Order) -> Order | Skip:
    return order


@app.subscribe(orders, group="returned always")
@app.publishes(names)
async def id_of(order: Order) -> str:
    return order.id


@app.subscribe(orders, group="typed batches", batch=10)
async def settle_many(batch: list[Order]) -> None: ...


@app.subscribe(orders, group="raw")
def settle_raw(message: Message) -> None: ...


async def a_handler_of_a_topic_keeps_its_type(order: Order, context: Context, publisher: Publisher) -> None:
    assert_type(await settle_typed(order, context, publisher), int)
    assert_type(await name_of(order), str | None)
    assert_type(await id_of(order), str)


@billing.subscribe("stock", orderly=True, retries=-1, start="first")
async def move(payload: Move) -> None:
    raise DeadLetter(payload.item)


@app.subscribe("clicks", batch=500, batch_wait=0.2)
async def count(messages: list[Message]) -> Outcomes:
    return Outcomes({messages[0]: Retry()})


class Handlers:
    @app.subscribe("rows")
    @staticmethod
    def row(row: Row) -> str:
        return row["name"]


@app.subscribe("payments")
async def book(event: Annotated[Order | Move, TypeByTag({"paid": Order, "moved": Move})]) -> str:
    return event.id if isinstance(event, Order) else event.item


@app.subscribe("refunds")
async def refund(event: Annotated[Order | None, TypeByProperty("kind", {"order": Order})]) -> str | None:
    return None if event is None else event.id


@app.upcaster(Order, version=1)
def from_euros(old: dict[str, Any]) -> dict[str, Any]:
    return {**old, "amount": old["euros"] * 100}


assert_type(from_euros({}), dict[str, Any])
app.include(billing)


@app.on_startup
async def warm_up(app: RocketApp) -> None:
    result = await app.publish("orders", Order("1", 5), tag="paid", keys=["1"], order_key="1", delay=30)
    assert_type(result, SendResult)
    assert_type(await app.publish_many("orders", [b"a", b"b"]), list[SendResult])
    assert_type(await app.publish_one_way("orders", {"a": 1}), None)


@app.on_startup
def hold() -> None:
    assert_type(app.pause("orders", "migration"), None)
    app.pause(group="billing")
    app.pause("stock", group="billing")
    assert_type(app.resume("orders", "migration"), None)
    app.resume(group="billing")
    assert_type(app.adjust("orders", batch=5, rate=None, pop_invisible_time=30, pop_batch_size=8), None)


@app.on_shutdown
def close() -> None:
    try:
        assert_type(app.publish_sync("orders", "text"), SendResult)
    except (SendRefused, SendUnknown) as error:
        assert_type(error.topic, str)


@app.lifespan
async def database() -> AsyncIterator[None]:
    yield


class Plugin:
    @hookimpl
    def handler_wrapper(self, subscription: object) -> Wrapper | None:
        return Wrapper(for_sync=lambda call: call, for_async=lambda call: call)


async def script() -> None:
    async with app as entered:
        assert_type(entered, RocketApp)
        await app.publish("orders", b"1")


async def a_decorated_function_keeps_its_type(order: Order, message: Message, context: Context) -> None:
    assert_type(await settle(order, message, context), int)
    assert_type(ship(message), Skip | None)
    assert_type(await count([message]), Outcomes)
    assert_type(message.keys, list[str])
    assert_type(message.body, bytes)


@app.middleware
async def timed(message: Message, call_next: Callable[[Message], Awaitable[object]]) -> object:
    return await call_next(message)


@app.exception_handler(KeyError)
def unknown(message: Message, error: KeyError) -> Skip:
    return Skip(error)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShopOptions:
    limit: float = option(100.0, "Most of one order.", least=0.0)
    topics: tuple[str, ...] = option((), "Where orders come from.")


money = RocketApp("money", options=ShopOptions)
named = RocketApp("money", options=("cash", ShopOptions))


@money.on_startup
def limits() -> None:
    assert_type(money.options(ShopOptions), ShopOptions)
    assert_type(money.options(ShopOptions).limit, float)


@app.transaction(orders)
async def place(order: Order) -> bool:
    return order.amount > 0


@place.check
async def is_placed(order: Order) -> bool | None:
    return None


@app.transaction("names")
async def name_it(name: str) -> bool:
    return bool(name)


@name_it.check
async def is_named(message: Message) -> bool:
    return True


async def a_transaction_takes_what_is_published(order: Order) -> None:
    assert_type(await place(order, tag="new", timeout=5), SendResult | None)
    assert_type(await name_it(order.id), SendResult | None)
    assert_type(await app.request(orders, order, timeout=2), Message)


def by_amount(queues: Sequence[MessageQueue]) -> MessageQueue:
    return queues[0]


async def what_is_delayed_can_be_taken_back(order: Order) -> None:
    result = await app.publish(orders, order, delay=45.5, recallable=True, queue=by_amount)
    await app.publish(orders, order, queue=result.queue)
    await app.publish(orders, order, queue=lambda queues: queues[-1])
    if result.recall_handle is not None:
        await app.recall(orders, result.recall_handle, timeout=2)
        app.recall_sync("orders", result.recall_handle)


@app.poll(orders, every=5.0, tags="new", concurrency=2)
async def export(pull: Pull) -> None:
    messages = await pull(32)
    assert_type(messages, list[Message])
    assert_type(pull.queue, MessageQueue)
    pull.next_in(0.5)


@billing.poll("orders", every=60, group="other")
def export_in_thread(pull: SyncPull) -> None:
    assert_type(pull(), list[Message])


async def scripts(order: Order) -> None:
    async with Client("127.0.0.1:9876") as client:
        assert_type(await client.publish(orders, order), SendResult)
        async for message in client.messages("orders", tags="new", start="first", idle=1):
            assert_type(message, Message)
    with SyncClient("127.0.0.1:9876") as plain:
        assert_type(plain.request(orders, order), Message)
        assert_type([one.text() for one in plain.messages("orders", idle=1.5)], list[str])
