import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
django.setup()

import msgspec

from rocketapp import DeadLetter, Message, RocketApp

from .messaging import DjangoTransactions, database, outbox
from .models import Account, Bill


class Order(msgspec.Struct):
    id: str
    account: str
    amount: int


app = RocketApp("shop", plugins=[database, outbox, DjangoTransactions()])


@app.subscribe("orders", start="first")
@app.publishes("bills")
def settle(order: Order, message: Message) -> Order:
    account = Account.objects.select_for_update().get(name=order.account)
    account.balance -= order.amount
    account.save()
    if account.balance < 0:
        raise DeadLetter("not enough money")  # neither the balance nor the bill
    if message.attempt == 1 and message.tag == "flaky":
        raise ConnectionError("lost, after the effect")
    return order


@app.subscribe("bills", start="first")
def bill(order: Order) -> None:
    Bill.objects.create(order=order.id)
