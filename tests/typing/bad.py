"""User code that must not check: each marked line has exactly the error it is marked with."""

from __future__ import annotations

from rocketapp import Message, Policy, Publisher, Pull, RocketApp, Router, Skip, Topic, TypeByTag

app = RocketApp("shop")


class Order:
    """Any class of the user's."""


@app.subscribe("orders")
async def settle(message: Message) -> int:
    return 1


async def calls(message: Message, publisher: Publisher) -> None:
    text: str = await settle(message)  # E: assignment
    await settle("a message")  # E: arg-type
    await settle()  # E: call-arg
    message.text().nothing()  # E: attr-defined
    await app.publish(5, b"")  # E: arg-type
    await app.publish("orders")  # E: call-arg
    await app.publish("orders", b"", delay="30")  # E: arg-type
    await app.publish("orders", b"", content_type=5)  # E: arg-type
    await app.publish("orders", b"", tags="paid")  # E: call-arg
    await app.publish_many("orders", [b""], timeout=1)  # E: call-arg
    app.publish_sync("orders", b"", keys=5)  # E: arg-type
    await publisher.publish("orders", b"", tags="paid")  # E: call-arg
    await publisher.publish_many("orders", [b""], timeout=1)  # E: call-arg
    print(text)


numbers = Topic("numbers", int)
app.publishes("invoices", tags="new")  # E: call-overload
app.publishes(5)  # E: call-overload
app.publishes("invoices", delay=7, rounding="down")  # E: call-overload
app.publishes("invoices")(5)  # E: type-var
Topic("numbers", 5)  # E: arg-type
Topic("numbers")  # E: call-arg


@app.subscribe(numbers)  # E: arg-type
async def texts(text: str) -> None: ...


@app.subscribe(numbers, batch=10)  # E: arg-type
async def many_texts(text: list[str]) -> None: ...


@app.publishes(numbers)  # E: arg-type
async def a_text(message: Message) -> str:
    return message.text()


@app.publishes(numbers)  # E: arg-type
def many_texts_of_it(message: Message) -> list[str]:
    return [message.text()]


async def publishes(publisher: Publisher) -> None:
    await publisher.publish(numbers, "text")  # E: misc
    await publisher.publish_many(numbers, ["text"])  # E: misc
    await app.publish(numbers, "text")  # E: misc
    app.publish_sync(numbers, "text")  # E: misc
    await app.publisher(numbers).publish("text")  # E: arg-type
    await app.publisher("numbers", int).publish("text")  # E: arg-type
    app.publisher("numbers")  # E: call-overload


app.subscribe("orders", tag="paid")  # E: call-overload
app.subscribe("orders", retries="3")  # E: call-overload
app.subscribe("orders", start="now")  # E: call-overload
app.subscribe("orders", batch=None, orderly=1)  # E: call-overload
app.subscribe("orders")(5)  # E: type-var
app.include("billing")  # E: arg-type
app.resume(5)  # E: arg-type
app.adjust("orders", batch="5")  # E: arg-type
app.adjust("orders", pop_messages=5)  # E: call-arg
app.subscribe("orders", order_by=3)  # E: call-overload
app.subscribe("orders", retry=3)  # E: call-overload
Policy(delays=5)  # E: arg-type
Policy(breaker=5)  # E: arg-type
Policy(on={ValueError: KeyError})  # E: dict-item
Policy(on={"ValueError": Skip})  # E: dict-item
Router("billing-")  # E: call-arg
Router(tags="paid")  # E: call-arg
Router(retries="2")  # E: arg-type
Router(idempotent="order_id")  # E: arg-type
RocketApp("shop", batch=5)  # E: call-arg
RocketApp("shop", start="now")  # E: arg-type
app.on_startup(None)  # E: type-var
app.upcaster(Order, version="1")  # E: arg-type
app.upcaster(Order, version=1)(len)  # E: type-var
TypeByTag(Order)  # E: arg-type
app.sink("orders")  # E: attr-defined
app.exception_handler("KeyError")  # E: arg-type
app.middleware(5)  # E: type-var
app.options("shop")  # E: arg-type
RocketApp("shop", options=5)  # E: arg-type


@app.transaction("orders")
async def placed(order: Order) -> bool:
    return True


async def transactions(order: Order) -> None:
    await placed("text")  # E: arg-type
    app.transaction("orders")(len)  # E: arg-type
    app.request_sync("orders", b"", keys=5)  # E: arg-type
    app.publish_sync("orders", b"", queue=3)  # E: arg-type
    await app.recall("orders", None)  # E: arg-type


@app.poll("orders", every=5.0)
async def polled(pull: Pull) -> None:
    await pull("many")  # E: arg-type
    pull(1).text()  # E: attr-defined
    pull.next_in("soon")  # E: arg-type


app.poll("orders")  # E: call-arg
app.poll("orders", every="5s")  # E: arg-type
app.poll("orders", every=5.0, orderly=True)  # E: call-arg
