"""A small shop, put together. Run it with `make run`, or

    rocketapp run example_app.app:app --settings example_app/settings.toml

orders → priced → payments → charged once → stock → in order of each item → parcels → behind a breaker → carrier
What no retry can mend becomes a dead letter, and the desk tells a person.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

from dependency_injector import providers
from sqlalchemy.orm import Session

from example_app import demo, failures, storage
from example_app.audit import Audit
from example_app.handlers import desk, orders, parcels, payments, stock
from example_app.model import ORDERS
from example_app.options import ShopOptions
from example_app.outside import BankBusyError
from example_app.parts import parts
from example_app.spans import ConsoleSpans
from rocketapp import DeadLetter, Message, Retry, RocketApp

log = logging.getLogger("shop")

app = RocketApp(
    "shop",
    version="1.0",
    container=parts,
    options=ShopOptions,
    # The outbox needs its database in front of it; the audit stands around both.
    plugins=[storage.database, storage.outbox, Audit(), ConsoleSpans()],
    retries=failures.RETRIES,
    retry=failures.POLICY,
)
parts.options.override(providers.Callable(app.options, ShopOptions))
for subject in (orders, payments, stock, parcels, desk):
    app.include(subject.router)


@app.exception_handler(BankBusyError)
def ask_again_later(message: Message, error: BankBusyError) -> Retry:
    """A Policy knows classes alone; here the exception itself says when."""
    return Retry(after=error.seconds)


@app.exception_handler(failures.RefusedError)
def ask_a_person(message: Message, error: failures.RefusedError) -> DeadLetter:
    """A no is an answer and not a defect: the dead letter has it in plain words, and the log has no traceback."""
    return DeadLetter(str(error))


@app.lifespan
async def opening_hours() -> AsyncIterator[None]:
    """Before the first message, and behind the last one. SQLite blocks, so it works in a thread."""
    await asyncio.to_thread(storage.open_books, parts.shelf())
    log.info("the shop is open")
    yield
    log.info("the shop is closed: %s", await asyncio.to_thread(balance))


def balance() -> str:
    """What is in the till and on the shelf."""
    with Session(storage.engine) as session:
        pieces = ", ".join(f"{count} {item}" for item, count in sorted(parts.shelf().pieces(session).items()))
        return f"{parts.ledger().total(session) / 100:.2f} in the till, {pieces} on the shelf"


@app.on_startup
async def place_demo_orders() -> None:
    """The handlers receive them, because start positions are fixed before startup functions run."""
    for order in demo.orders(app.options(ShopOptions).demo_orders):
        await app.publish(ORDERS, order, keys=[order.id])
