"""Money is taken once: copies of a payment, and an attempt that is lost between the bank and the commit."""

from __future__ import annotations

from sqlalchemy.orm import Session

from example_app.app import app
from example_app.books import Ledger
from example_app.demo import GOOD_CARD
from example_app.model import PAYMENTS, STOCK, Order, Payment
from example_app.parts import parts
from example_app.tests.conftest import CountingBank
from rocketapp import Skip
from rocketapp.testing import TestApp, TestedApp

PAYMENT = Payment(Order("1", "Ada", "tea", 2, GOOD_CARD), 700)


def told_the_shelf(t: TestedApp) -> int:
    """How often the shelf was asked for the goods."""
    return sum(one.topic == STOCK.name for one in t.published)


def test_a_second_message_for_an_order_takes_no_money(shop: TestedApp, bank: CountingBank, session: Session) -> None:
    for _ in range(3):
        shop.publish(PAYMENTS, PAYMENT)
    shop.advance(10)
    assert bank.asked == 1
    assert parts.ledger().total(session) == 700
    assert told_the_shelf(shop) == 1
    skipped = [one for one in shop.handled if isinstance(one.outcome, Skip)]
    assert len(skipped) == 2


class LostLedger(Ledger):
    """The first attempt ends behind the bank's answer and in front of the commit."""

    attempts = 0

    def add(self, session: Session, order_id: str, cents: int, receipt: str) -> None:
        super().add(session, order_id, cents, receipt)
        self.attempts += 1
        if self.attempts == 1:
            raise ConnectionError("the database is gone")


def test_a_crash_between_payment_and_commit_leaves_nothing_and_the_next_attempt_pays_once(
    bank: CountingBank, session: Session
) -> None:
    with TestApp(app, overrides={"ledger": LostLedger()}) as t:
        t.publish(PAYMENTS, PAYMENT)
        t.advance(0.5)
        assert (bank.asked, parts.ledger().total(session), told_the_shelf(t)) == (1, 0, 0)
        session.rollback()
        t.advance(10)
        assert (bank.asked, parts.ledger().total(session), told_the_shelf(t)) == (2, 700, 1)
    assert bank.charged == {"1": 700}
