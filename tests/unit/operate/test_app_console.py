"""What a console asks of the processes of an app, and what stays of one that has ended."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from rocketapp.errors import SetupError
from rocketapp.operate.app_console import AppConsole
from rocketapp.operate.app_state import ProcessView
from rocketapp.operate.history import HandlerKey
from tests.unit.operate.views import snapshot_of

ORDERS = ("orders", "shop")
Asked = list[tuple[int, Mapping[str, Any]]]


def console_of(workers: int, now: Callable[[], float] = time.monotonic) -> tuple[AppConsole, Asked]:
    asked: Asked = []
    names = {number: f"worker {number}" for number in range(1, workers + 1)}
    ask = lambda number, fields: asked.append((number, fields))  # noqa: E731
    console = AppConsole("app:app", names, patience=30.0, draining=asyncio.Event(), ask=ask, now=now)
    return console, asked


def view(handled: int = 0) -> ProcessView:
    return ProcessView(app="shop", snapshot=snapshot_of(handled=handled))


def test_a_pause_reaches_every_process_that_is_there_and_each_that_starts_later() -> None:
    console, asked = console_of(2)
    assert console.greet(1) == []
    console.viewed(1, view())
    console.change("pause", *ORDERS)
    assert asked == [(1, {"call": "pause", "topic": "orders", "group": "shop"})]
    assert console.greet(2) == [ORDERS]
    console.lost(1)
    console.viewed(2, view())
    console.change("resume", *ORDERS)
    assert [number for number, _ in asked] == [1, 2]
    assert console.greet(1) == []


def test_what_the_app_does_not_have_is_refused() -> None:
    console, asked = console_of(1)
    console.greet(1)
    with pytest.raises(SetupError, match="does not consume yet"):
        console.change("pause", *ORDERS)
    console.viewed(1, view())
    with pytest.raises(SetupError, match="no handler of the app takes this topic"):
        console.change("pause", "odrers", "shop")
    assert asked == []


def test_a_process_that_has_ended_is_named_and_what_it_counted_stays() -> None:
    console, _ = console_of(1)
    assert not console.state().processes[0].has_started
    console.viewed(1, view(handled=7))
    console.lost(1)
    (process,) = console.state().processes
    assert (console.state().app, process.name, process.view, process.has_started) == ("shop", "worker 1", None, True)
    gone = console.state().gone
    assert gone is not None
    assert gone.groups[0].handlers[0].stats.handled == 7


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may let the thread that answers wait."""
    monkeypatch.setattr("rocketapp.operate.app_console.ANSWERED_WITHIN", 60.0)


def answering(*answers: tuple[str, str]) -> tuple[AppConsole, list[str]]:
    """A console with two workers that answer later, in a thread; and which of them was asked what."""
    left, asked = list(answers), list[str]()

    def ask(number: int, fields: Mapping[str, Any]) -> None:
        asked.append(f"{fields['call']} {fields.get('id', number)}")
        threading.Timer(0.02, console.answered, [fields["number"], *left.pop(0)]).start()

    console = AppConsole("shop", {1: "", 2: ""}, patience=30.0, draining=asyncio.Event(), ask=ask)
    console.greet(1)
    console.greet(2)
    console.viewed(1, view())
    return console, asked


@pytest.mark.usefixtures("patient")
def test_one_process_is_asked_for_the_description_and_again_after_one_was_started_anew() -> None:
    console, asked = answering(('{"asyncapi": "3.0.0"}', ""), ("", "two handlers contradict each other"))
    assert [console.describe(), console.describe()] == [b'{"asyncapi": "3.0.0"}'] * 2
    console.lost(1)
    with pytest.raises(SetupError, match="contradict"):
        console.describe()
    assert asked == ["describe 1", "describe 2"]


def test_nobody_to_ask_is_said_at_once() -> None:
    console, _ = console_of(1)
    with pytest.raises(SetupError, match="no worker is there to ask yet"):
        console.describe()


def test_an_answer_that_does_not_come_is_waited_for_within_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rocketapp.operate.app_console.ANSWERED_WITHIN", 0.05)
    console, _ = console_of(1)
    console.greet(1)
    with pytest.raises(SetupError, match=r"no answer within 0\.05 s"):
        console.describe()
    console.answered(1, "late", "")  # nobody waits for it


@pytest.mark.usefixtures("patient")
def test_a_dead_letter_of_a_group_of_the_app_is_replayed_and_of_no_other() -> None:
    console, asked = answering(("was replayed", ""))
    assert console.replay("shop", "7F01") == "was replayed"
    with pytest.raises(SetupError, match="no handler of the app is in this group"):
        console.replay("shpo", "7F01")
    assert asked == ["replay 7F01"]


def test_the_history_is_of_all_processes_and_of_those_that_have_ended() -> None:
    at = 0.0
    console, _ = console_of(2, now=lambda: at)
    for second in range(61):
        at = float(second)
        if second == 35:
            console.lost(1)  # and it begins to count anew
        since = second if second < 35 else second - 35
        console.viewed(1, view(handled=10 * since))
        console.viewed(2, view(handled=second))
    steps = console.state().history.steps(HandlerKey("", "shop", "orders", "app:settle"))
    assert len(steps) == 6
    assert sum(one.done for one in steps) == pytest.approx(10 * 59 + 60, abs=15)
    assert min(one.done for one in steps) > 80
