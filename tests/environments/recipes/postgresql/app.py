import os

import msgspec
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from rocketapp import DeadLetter, RocketApp
from rocketapp_sqlalchemy import Database, Outbox


class Base(DeclarativeBase): ...


class Account(Base):
    __tablename__ = "accounts"
    name: Mapped[str] = mapped_column(primary_key=True)
    balance: Mapped[int]


class Bill(Base):
    __tablename__ = "bills"
    number: Mapped[int] = mapped_column(primary_key=True)
    order: Mapped[str]


class Order(msgspec.Struct):
    id: str
    account: str
    amount: int


# postgresql+psycopg://shop@db.example/shop, with a connection for each call that may run.
engine = create_async_engine(os.environ["DATABASE_URL"], pool_size=32, max_overflow=4)
database = Database(engine)
outbox = Outbox(database)
app = RocketApp("shop", plugins=[database, outbox], concurrency=16)


@app.subscribe("orders", start="first", idempotent=database.once_by(lambda message: message.keys[0]))
async def settle(order: Order, session: AsyncSession) -> None:
    account = await session.get_one(Account, order.account, with_for_update=True)
    account.balance -= order.amount
    outbox.publish(session, "bills", order, keys=[order.id], order_key=order.account)
    if account.balance < 0:
        raise DeadLetter("not enough money")  # neither the balance nor the bill


@app.subscribe("bills", start="first", idempotent=database.once_by(lambda message: message.properties["outbox_id"]))
async def bill(order: Order, session: AsyncSession) -> None:
    session.add(Bill(order=order.id))
