"""`rocketapp check`, and a start that compares: against one embedded broker."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketapp.admin.groups import CheckedGroup
from rocketapp.cli.commands.check import headline
from tests.peers.commands import Commands
from tests.unit.cli.brokers import serving_in_memory
from tests.unit.cli.conftest import PRELUDE, Start

_APP = """
@app.subscribe("orders", tags={tags!r})
async def settle(message: Message) -> None: ...
"""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with serving_in_memory() as address:
        yield address


@pytest.fixture
def rocketapp(address: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    """Commands in a folder with `old.py` and `new.py`, which subscribe one topic differently."""
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    for name in ("old", "new"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    (folder / "old.py").write_text(PRELUDE + _APP.format(tags="paid || refunded"))
    (folder / "new.py").write_text(PRELUDE + _APP.format(tags="paid || shipped"))
    return Commands(address)


def test_check_says_what_is_missing_and_who_subscribes_otherwise(
    rocketapp: Commands, address: str, start: Start
) -> None:
    said = rocketapp.run("check", "old", code=1)
    assert said.out == ("group shop: 0 members\ntopic orders does not exist: it is consumed as soon as it is created\n")
    rocketapp.run("topic", "create", "orders")
    running = start("run", "old:app", "--name-server", address)
    running.says("shop started")
    assert rocketapp.run("check", "old").out == "group shop: 1 member, all subscribe alike\n"
    header, row = rocketapp.run("check", "new", code=1).out.splitlines()[1:]
    assert header.split() == ["MEMBER", "TOPIC", "SUBSCRIBES", "THIS", "APP"]
    assert row.split(maxsplit=1)[1].split("  ") == ["orders", "paid || refunded", "paid || shipped"]
    (document,) = json.loads(rocketapp.run("check", "new", "--json", code=1).out)
    (member,) = document["members"]
    different = {"member": member, "topic": "orders", "theirs": "paid || refunded", "ours": "paid || shipped"}
    assert document == {
        "cluster": None,
        "group": "shop",
        "alike": False,
        "members": [member],
        "not_asked": [],
        "differences": [different],
        "missing_topics": [],
    }
    refused = start(
        "run", "new:app", "--name-server", address, environment={"ROCKETAPP_CONSUMER__SUBSCRIPTION_CHECK": "refuse"}
    )
    refused.ends(2)
    assert (
        f"rocketapp: consumer.subscription_check: group shop: member {member} subscribes orders with paid || refunded, "
        "this app with paid || shipped: stop that member before, or roll out"
    ) in refused.err


def test_an_sql_filter_is_compared_as_members_tell_it(
    rocketapp: Commands, folder: Path, address: str, start: Start
) -> None:
    app = '@app.subscribe("invoices", sql="amount > 5", group="sql")\nasync def settle(message: Message) -> None: ...\n'
    (folder / "filtered.py").write_text(PRELUDE + app)
    rocketapp.run("topic", "create", "invoices")
    start("run", "filtered:app", "--name-server", address).says("shop started")
    assert rocketapp.run("check", "filtered").out == "group sql: 1 member, all subscribe alike\n"


@pytest.mark.parametrize(
    ("not_asked", "says"),
    [
        ((), "group shop: 2 members, all subscribe alike"),
        (("b",), "group shop: 2 members, 1 of them known to subscribe alike"),
        (("a", "b"), "group shop: 2 members"),
    ],
    ids=["all say", "one says", "none says"],
)
def test_members_that_do_not_say_what_they_subscribe_are_not_called_alike(
    not_asked: tuple[str, ...], says: str
) -> None:
    group = CheckedGroup(group="shop", members=("a", "b"), differences=(), not_asked=not_asked, missing=())
    assert headline("", group) == says


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["missing"], "missing: no such module"),
        (["old", "--name-server", ""], "--name-server is empty"),
        (["old", "--name-server", "127.0.0.1:1"], "is it running, and is --name-server right?"),
    ],
    ids=lambda value: value[-1] if isinstance(value, list) else None,
)
def test_what_cannot_be_checked_ends_with_2(
    rocketapp: Commands, arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from rocketapp.cli.main import run_command

    assert run_command(["check", *arguments]) == 2
    assert says in capsys.readouterr().err
