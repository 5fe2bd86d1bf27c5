"""What a desk asks of the processes of an app, and what stays of one that has ended."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from rocketapp.errors import SetupError
from rocketapp.operate.desk import Desk
from rocketapp.operate.history import HandlerKey
from rocketapp.operate.view import View
from tests.unit.operate.views import snapshot_of

ORDERS = ("orders", "shop")
Asked = list[tuple[int, Mapping[str, Any]]]


def desk_of(workers: int, now: Callable[[], float] = time.monotonic) -> tuple[Desk, Asked]:
    asked: Asked = []
    names = {number: f"worker {number}" for number in range(1, workers + 1)}
    ask = lambda number, fields: asked.append((number, fields))  # noqa: E731
    desk = Desk("app:app", names, patience=30.0, draining=asyncio.Event(), ask=ask, now=now)
    return desk, asked


def view(handled: int = 0) -> View:
    return View(app="shop", snapshot=snapshot_of(handled=handled))


def test_a_pause_reaches_every_process_that_is_there_and_each_that_starts_later() -> None:
    desk, asked = desk_of(2)
    assert desk.greet(1) == []
    desk.viewed(1, view())
    desk.change("pause", *ORDERS)
    assert asked == [(1, {"call": "pause", "topic": "orders", "group": "shop"})]
    assert desk.greet(2) == [ORDERS]
    desk.lost(1)
    desk.viewed(2, view())
    desk.change("resume", *ORDERS)
    assert [number for number, _ in asked] == [1, 2]
    assert desk.greet(1) == []


def test_what_the_app_does_not_have_is_refused() -> None:
    desk, asked = desk_of(1)
    desk.greet(1)
    with pytest.raises(SetupError, match="does not consume yet"):
        desk.change("pause", *ORDERS)
    desk.viewed(1, view())
    with pytest.raises(SetupError, match="no handler of the app takes this topic"):
        desk.change("pause", "odrers", "shop")
    assert asked == []


def test_a_process_that_has_ended_is_named_and_what_it_counted_stays() -> None:
    desk, _ = desk_of(1)
    assert not desk.now().processes[0].has_started
    desk.viewed(1, view(handled=7))
    desk.lost(1)
    (process,) = desk.now().processes
    assert (desk.now().app, process.name, process.view, process.has_started) == ("shop", "worker 1", None, True)
    gone = desk.now().gone
    assert gone is not None
    assert gone.groups[0].handlers[0].stats.handled == 7


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may let the thread that answers wait."""
    monkeypatch.setattr("rocketapp.operate.desk.ANSWERED_WITHIN", 60.0)


def answering(*answers: tuple[str, str]) -> tuple[Desk, list[str]]:
    """A desk with two workers that answer later, in a thread; and which of them was asked what."""
    left, asked = list(answers), list[str]()

    def ask(number: int, fields: Mapping[str, Any]) -> None:
        asked.append(f"{fields['call']} {fields.get('id', number)}")
        threading.Timer(0.02, desk.answered, [fields["number"], *left.pop(0)]).start()

    desk = Desk("shop", {1: "", 2: ""}, patience=30.0, draining=asyncio.Event(), ask=ask)
    desk.greet(1)
    desk.greet(2)
    desk.viewed(1, view())
    return desk, asked


@pytest.mark.usefixtures("patient")
def test_one_process_is_asked_for_the_description_and_again_after_one_was_started_anew() -> None:
    desk, asked = answering(('{"asyncapi": "3.0.0"}', ""), ("", "two handlers contradict each other"))
    assert [desk.describe(), desk.describe()] == [b'{"asyncapi": "3.0.0"}'] * 2
    desk.lost(1)
    with pytest.raises(SetupError, match="contradict"):
        desk.describe()
    assert asked == ["describe 1", "describe 2"]


def test_nobody_to_ask_is_said_at_once() -> None:
    desk, _ = desk_of(1)
    with pytest.raises(SetupError, match="no worker is there to ask yet"):
        desk.describe()


def test_an_answer_that_does_not_come_is_waited_for_within_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rocketapp.operate.desk.ANSWERED_WITHIN", 0.05)
    desk, _ = desk_of(1)
    desk.greet(1)
    with pytest.raises(SetupError, match=r"no answer within 0\.05 s"):
        desk.describe()
    desk.answered(1, "late", "")  # nobody waits for it


@pytest.mark.usefixtures("patient")
def test_a_dead_letter_of_a_group_of_the_app_is_replayed_and_of_no_other() -> None:
    desk, asked = answering(("was replayed", ""))
    assert desk.replay("shop", "7F01") == "was replayed"
    with pytest.raises(SetupError, match="no handler of the app is in this group"):
        desk.replay("shpo", "7F01")
    assert asked == ["replay 7F01"]


def test_the_history_is_of_all_processes_and_of_those_that_have_ended() -> None:
    at = 0.0
    desk, _ = desk_of(2, now=lambda: at)
    for second in range(61):
        at = float(second)
        if second == 35:
            desk.lost(1)  # and it begins to count anew
        since = second if second < 35 else second - 35
        desk.viewed(1, view(handled=10 * since))
        desk.viewed(2, view(handled=second))
    steps = desk.now().history.steps(HandlerKey("", "shop", "orders", "app:settle"))
    assert len(steps) == 6
    assert sum(one.done for one in steps) == pytest.approx(10 * 59 + 60, abs=15)
    assert min(one.done for one in steps) > 80
