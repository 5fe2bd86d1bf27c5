"""What is said of an app, and when it is ready."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rocketapp.model.event import LoopBlocked, LoopFailed, RollOut
from rocketapp.operate.app_state import AppState, ProcessState
from rocketapp.operate.health import check_health, mend_of
from rocketapp.plugins.log_lines import line_of
from tests.cases import cases
from tests.unit.operate.views import now_of, queue_at, seen, snapshot_of, stall, unassigned

BLOCKED = LoopBlocked(6.0, "app.py:12", "app:settle", is_over=False, stack="settle app.py:12")


def test_an_app_whose_queues_move_is_alive_and_ready() -> None:
    health = check_health(now_of(seen()))
    assert (health.is_alive, health.is_ready, health.findings) == (True, True, ())


def test_a_queue_that_stands_still_needs_a_person_when_patience_is_over() -> None:
    early, late = (check_health(now_of(seen(stall("paused: by the app", seconds)))) for seconds in (29.9, 30.0))
    assert early.is_ready
    assert not late.is_ready
    assert [one.text for one in early.findings] == [one.text for one in late.findings]
    assert late.findings[0].text == "group shop: orders@broker-a:0 stands still: paused: by the app"


def test_queues_with_one_reason_are_one_finding() -> None:
    some = [stall("pull failed: refused", 5.0 + number, queue_id=number) for number in range(4)]
    (finding,) = check_health(now_of(seen(*some))).findings
    assert finding.text.endswith("orders@broker-a:0 stands still: pull failed: refused (and 3 more of its queues)")
    assert finding.seconds == 8.0


def test_a_blocked_loop_is_neither_alive_nor_ready_and_named_in_the_words_of_the_log() -> None:
    health = check_health(now_of(seen(blocked=BLOCKED)))
    assert (health.is_alive, health.is_ready) == (False, False)
    assert health.findings[0].text == (
        "app:settle has blocked the event loop for 6 s at app.py:12: nothing else runs; a handler that blocks must be "
        "a sync function; it stands in settle app.py:12"
    )


def test_a_start_that_blocks_the_loop_is_named_and_is_no_reason_to_end_the_process() -> None:
    health = check_health(now_of(ProcessState(name="", view=None, age=6.0, blocked=BLOCKED, has_started=False)))
    assert (health.is_alive, health.is_ready) == (True, False)
    assert [one.text.startswith("app:settle has blocked") for one in health.findings] == [True]


@pytest.mark.parametrize(
    ("now", "text", "is_alive"),
    [
        (now_of(ProcessState(name="", view=None, age=2.0, has_started=False)), "the app is starting", True),
        (
            now_of(seen(name="worker 1"), ProcessState(name="worker 2", view=None, age=2.0, has_started=False)),
            "worker 2 is starting",
            True,
        ),
        (
            now_of(seen(name="worker 1"), ProcessState(name="worker 2", view=None, age=31.0)),
            "worker 2 has died and is started again",
            True,
        ),
        (
            now_of(seen(age=7.0)),
            "the event loop has not reported for 7 s: it is blocked, or the process is frozen",
            False,
        ),
        (
            now_of(seen(), is_draining=True),
            "draining: handlers that run may finish, and nothing new is started",
            True,
        ),
    ],
    ids=["starting", "a worker starts", "a worker is dead", "frozen", "draining"],
)
def test_an_app_that_does_not_consume_is_not_ready_and_says_why(now: AppState, text: str, is_alive: bool) -> None:
    health = check_health(now)
    assert [one.text for one in health.findings] == [text]
    assert (health.is_alive, health.is_ready) == (is_alive, False)


@pytest.mark.parametrize(("age", "needs_person"), [(2.0, False), (31.0, True)])
def test_a_start_that_does_not_come_to_its_end_needs_a_person(age: float, needs_person: bool) -> None:
    (found,) = check_health(
        now_of(seen(), ProcessState(name="worker 2", view=None, age=age, has_started=False))
    ).findings
    assert (found.seconds, found.needs_person) == (age, needs_person)


def test_a_worker_that_was_just_started_again_does_not_make_the_app_unready() -> None:
    assert check_health(now_of(seen(name="worker 1"), ProcessState(name="worker 2", view=None, age=2.0))).is_ready


def test_a_group_that_does_not_know_its_queues_yet_is_not_ready() -> None:
    health = check_health(now_of(seen(groups=[unassigned("", 0.5, has_assigned=False)])))
    assert [one.text for one in health.findings] == ["group shop does not know its queues yet"]
    assert (health.is_alive, health.is_ready) == (True, False)


@pytest.mark.parametrize(
    ("problem", "mend"),
    [
        ("192.0.2.7:10911: code 1: no consumer for this group, shop", "create the group on the brokers"),
        ("192.0.2.7:10911: connection refused", "at the addresses that they tell"),
    ],
)
def test_a_group_whose_rebalance_fails_is_not_ready_in_the_words_of_the_log(problem: str, mend: str) -> None:
    first = check_health(now_of(seen(groups=[unassigned(problem, 1.0, has_assigned=False)])))
    early, late = (check_health(now_of(seen(groups=[unassigned(problem, seconds)]))) for seconds in (29.9, 30.0))
    assert [one.is_ready for one in (first, early, late)] == [False, True, False]
    workers = check_health(
        now_of(*(seen(name=f"worker {number}", groups=[unassigned(problem, 31.0)]) for number in (1, 2)))
    )
    (finding,) = workers.findings
    assert finding.text == f"group shop: {line_of(LoopFailed('rebalance', problem)).text}"
    assert mend in finding.mend


@cases(
    "reason, mend",
    [
        ("paused: by the app", "app.resume('orders')"),
        ("no lock: another member holds its lock", "stop the member that holds it"),
        ("no lock: its lock cannot be asked for: refused", "its broker runs"),
        ("pull failed: connection refused", "its broker runs"),
        ("its offset cannot be read: no answer", "its broker runs"),
        ("3 failed messages wait to be sent back: refused", "takes messages"),
        ("flow control: 1000 unfinished messages, limit queue_max_messages 1000", "slower than what comes"),
        (
            "flow control: 1000 unfinished messages; handler app:settle has been running for 99 s on orders 7F",
            "what the handler waits for",
        ),
        ("waits for a free call of handler app:settle (concurrency 1)", "raise concurrency="),
        ("#17 has failed: what is behind it waits for its attempt 38", "mend the handler, or pass the message over"),
        ("waits for the rate of handler app:settle (0.02/s)", "raise rate="),
        ("#17 is parked: another copy of this message is being handled", "it goes on by itself"),
        ("#5 may have ended a process: app:settle handles one such message at a time", "it goes on by itself"),
        ("what a plugin says", "the log says"),
    ],
)
def test_each_reason_has_its_mend(reason: str, mend: str) -> None:
    assert mend in mend_of(reason, "orders")


def test_a_roll_out_is_told_once_and_leaves_the_app_ready() -> None:
    (group,) = snapshot_of().groups
    text = "member m subscribes orders with a, this app with b"
    rolled = replace(snapshot_of(), groups=(replace(group, roll_out=text),))
    health = check_health(now_of(seen(snapshot=rolled), seen(snapshot=rolled)))
    (finding,) = health.findings
    assert finding.text == line_of(RollOut("shop", text)).text
    assert health.is_ready
    assert not finding.needs_person


def test_an_offset_that_was_corrected_is_told_with_its_mend_and_leaves_the_app_ready() -> None:
    why = (
        "offset 50 is 40 beyond the broker's end 10, and its records are others: 10 are read, from its first offset on"
    )
    queues = [queue_at(10, queue_id=number, corrected=why) for number in (0, 1)]
    one = seen(snapshot=snapshot_of(*queues))
    health = check_health(now_of(one, one))
    (finding,) = health.findings
    assert health.is_ready
    assert finding.text == f"group shop: orders@broker-a:0: {why} (and 1 more of its queues)"
    assert "rocketapp offset reset shop orders --to first" in finding.mend
