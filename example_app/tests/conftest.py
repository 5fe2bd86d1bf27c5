"""Each test has a database of its own, a bank and a carrier that it can look into."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy.orm import Session

from example_app import storage
from example_app.app import app
from example_app.demo import DemoBank, DemoCarrier
from example_app.parts import parts
from rocketapp.testing import StartTestApp, TestedApp


class CountingBank(DemoBank):
    """Counts how often it is asked, beside how much it took."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def charge(self, order_id: str, card: str, cents: int) -> str:
        self.asked += 1
        return super().charge(order_id, card, cents)


@pytest.fixture(autouse=True)
def database(tmp_path: Path) -> Iterator[None]:
    with parts.database_file.override(str(tmp_path / "shop.db")):
        storage.open_books(parts.shelf())
        yield


@pytest.fixture(autouse=True)
def bank() -> Iterator[CountingBank]:
    bank = CountingBank()
    with parts.bank.override(bank):
        yield bank


@pytest.fixture(autouse=True)
def carrier() -> Iterator[DemoCarrier]:
    carrier = DemoCarrier(down_for=0)
    with parts.carrier.override(carrier):
        yield carrier


@pytest.fixture
def shop(test_app: StartTestApp) -> TestedApp:
    """The whole app, running."""
    return test_app(app)


@pytest.fixture
def session() -> Iterator[Session]:
    """What is committed."""
    with Session(storage.engine) as session:
        yield session
