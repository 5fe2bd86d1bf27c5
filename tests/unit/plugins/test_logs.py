from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable
from typing import Any

import pytest

from rocketapp import DeadLetter, Message, Retry, RocketApp
from rocketapp.hooks.manager import Plugins
from rocketapp.model import event as events
from rocketapp.model.message_queue import MessageQueue
from rocketapp.plugins import logs
from rocketapp.plugins.log_format import make_formatter
from rocketapp.plugins.logs import EventLog
from tests.cases import cases
from tests.unit.app.given import call_of, message

QUEUE = MessageQueue("orders", "broker-a", 3)


class Later:
    """Stands in for the event loop's `call_soon`."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []

    def __call__(self, call: Callable[[], None]) -> None:
        self.calls.append(call)

    def come(self) -> None:
        while self.calls:
            self.calls.pop()()


def broken() -> None:
    raise ExceptionGroup("several", [ValueError("no money"), KeyError("account")])


def error_of(call: Callable[[], None]) -> BaseException:
    with pytest.raises(BaseException) as caught:
        call()
    return caught.value


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """The lines since the last look."""
    caplog.set_level(logging.INFO, "rocketapp")

    def look() -> list[str]:
        found = [f"{record.levelname} {record.getMessage()}" for record in caplog.records]
        caplog.clear()
        return found

    return look


def test_every_cause_of_a_last_failure_is_written_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "rocketapp")
    log = EventLog(Later())

    def die(call: Callable[[], None]) -> str:
        caplog.clear()
        error = error_of(call)
        log.observe(events.DeadLettered("shop", "app:settle", "orders", "7F", 17, "several", error=error))
        (record,) = caplog.records
        return make_formatter("text").format(record)

    text = die(broken)
    assert "in broken" in text and "ValueError: no money" in text and "KeyError: 'account'" in text
    assert "\n" not in die(broken), "the like was just written"
    assert "ZeroDivisionError" in die(lambda: print(1 / 0))
    log.tell_counts()
    assert "KeyError: 'account'" in die(broken)


def test_a_retry_and_a_dead_letter_are_a_line_each(lines: Callable[[], list[str]]) -> None:
    log = EventLog(Later())
    log.observe(events.Retried("shop", "app:settle", "orders", "7F0001", 1, 10.0, "ValueError: no\n  money"))
    log.observe(events.DeadLettered("shop", "app:settle", "orders", "7F0002", 17, "ValueError: no money"))
    assert lines() == [
        "WARNING retry in 10 s: app:settle failed at orders 7F0001, attempt 1: ValueError: no money",
        "ERROR dead letter in %DLQ%shop: app:settle at orders 7F0002, attempt 17: ValueError: no money",
    ]


def test_handled_messages_are_one_count(lines: Callable[[], list[str]]) -> None:
    log = EventLog(Later())
    log.observe(events.Handled("shop", "app:settle", "orders", 3))
    log.observe(events.Handled("shop", "app:settle", "orders", 4))
    log.observe(events.Handled("shop", "app:ship", "orders", 20))
    log.observe(events.Unmatched("shop", "orders", 2))
    assert lines() == []
    log.tell_counts()
    assert lines() == ["INFO handled 27: app:ship 20, app:settle 7", "WARNING no handler wanted 2: orders 2"]
    log.tell_counts()
    assert lines() == []


def test_a_rebalance_is_one_line_per_topic_and_broker(lines: Callable[[], list[str]]) -> None:
    later = Later()
    log = EventLog(later)
    for queue_id in (0, 1, 2, 5):
        log.observe(events.Assigned("shop", MessageQueue("orders", "broker-a", queue_id), 10, 1))
    log.observe(events.Assigned("shop", MessageQueue("stock", "broker-a", 0), 4, 1))
    log.observe(events.Assigned("shop", MessageQueue("stock", "broker-a", 1), 6, 1))
    log.observe(events.Released("shop", QUEUE, "it belongs to another member"))
    assert lines() == []
    later.come()
    assert lines() == [
        "INFO group shop takes orders@broker-a: queues 0-2, 5 from offset 10",
        "INFO group shop takes stock@broker-a: queues 0-1 from offsets 0: 4, 1: 6",
        "INFO group shop gave up orders@broker-a: queue 3: it belongs to another member",
    ]


def test_lines_keep_the_order_of_events(lines: Callable[[], list[str]]) -> None:
    log = EventLog(Later())
    log.observe(events.Assigned("shop", QUEUE, 10, 1))
    log.observe(events.QueueBlocked("shop", QUEUE, "no lock"))
    assert [line.split()[0] for line in lines()] == ["INFO", "WARNING"]


def test_a_background_failure_that_goes_on_is_told_once(lines: Callable[[], list[str]]) -> None:
    log = EventLog(Later())
    failure = events.LoopFailed("heartbeat", "h:1: connection refused")
    for _ in range(5):
        log.observe(failure)
    assert len(lines()) == 1
    log.tell_counts()
    log.observe(failure)
    assert lines() == []
    log.tell_counts()
    log.tell_counts()
    log.observe(failure)
    assert len(lines()) == 1


KINDS = [
    # Not __subclasses__: a dataclass with slots leaves the class that it replaced there for a while.
    kind
    for name, kind in vars(events).items()
    if isinstance(kind, type) and issubclass(kind, events.Event) and kind is not events.Event and name[0] != "_"
]


@cases("kind", KINDS)
def test_every_event_is_a_line_or_a_count_and_a_json_object(
    kind: type[events.Event], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "rocketapp")
    values = {"queue": QUEUE, "count": 3, "attempt": 1, "delay": 1.0, "seconds": 900.0, "offset": 1, "epoch": 1}
    if kind in (events.DeadLettered, events.Dropped):
        values["error"] = ValueError("no money")
    later = Later()
    log = EventLog(later)
    caplog.clear()
    log.observe(kind(**{name: values.get(name, name) for name in kind.__dataclass_fields__}))
    later.come()
    log.tell_counts()
    (record,) = caplog.records
    assert "\n" not in record.getMessage()
    assert json.loads(make_formatter("json").format(record))["message"] == record.getMessage()


def test_a_long_error_is_cut(lines: Callable[[], list[str]]) -> None:
    EventLog(Later()).observe(events.Retried("shop", "app:settle", "orders", "7F", 1, 10.0, "x" * 5000))
    (line,) = lines()
    assert len(line) < 520
    assert line.endswith("...")


def test_a_line_commands_no_terminal(lines: Callable[[], list[str]]) -> None:
    EventLog(Later()).observe(events.DeadLettered("shop", "app:settle", "orders", "7F", 1, "\x1b[31mröd\x00\u202e🚀"))
    (line,) = lines()
    assert line.endswith(r"attempt 1: \x1b[31mröd\x00\u202e🚀")


# Each message, at DEBUG only.


def folded(app: RocketApp) -> Callable[[Any], Any]:
    plugins = Plugins()
    plugins.register(logs)
    return call_of(app, plugins=plugins)


def test_without_debug_nothing_stands_before_the_handler(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "rocketapp")
    app = RocketApp("shop")

    @app.subscribe("orders")
    def settle(message: Message) -> None: ...

    assert folded(app) is settle


@pytest.mark.parametrize("is_async", [True, False])
async def test_at_debug_each_message_is_a_line_with_its_outcome(
    caplog: pytest.LogCaptureFixture, is_async: bool
) -> None:
    caplog.set_level(logging.DEBUG, "rocketapp")
    app = RocketApp("shop")

    def settle(message: Message) -> Any:
        match message.body:
            case b"later":
                return Retry(5)
            case b"dead":
                raise DeadLetter("spoilt")
            case _:
                return None

    async def settle_async(message: Message) -> Any:
        return settle(message)

    app.subscribe("orders")(settle_async if is_async else settle)
    call = folded(app)
    for body in (b"now", b"later", b"dead"):
        try:
            outcome = call(message(body))
            if is_async:
                await outcome
        except DeadLetter:
            assert body == b"dead"
    assert [record.getMessage().rpartition(">: ")[2] for record in caplog.records] == [
        "done",
        "Retry: 5",
        "DeadLetter: spoilt",
    ]
    assert all("settle" in record.getMessage() for record in caplog.records)


def test_at_debug_a_batch_is_a_line_per_message(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "rocketapp")
    app = RocketApp("shop")

    @app.subscribe("orders", batch=5)
    def settle(messages: list[Message]) -> None: ...

    folded(app)([message(offset=1), message(offset=2)])
    assert ["#1" in caplog.records[0].getMessage(), "#2" in caplog.records[1].getMessage()] == [True, True]


# Formats.


def record(text: str, logger: str = "rocketapp.messages", **fields: Any) -> logging.LogRecord:
    made = logging.LogRecord(logger, logging.WARNING, __file__, 1, text, (), None)
    made.created = 1_767_225_600.25
    if fields:
        made.fields = fields
    return made


def test_json_has_the_facts_as_members() -> None:
    line = make_formatter("json", process="worker 2").format(record("retry", topic="orders", queue=QUEUE, level="mine"))
    assert json.loads(line) == {
        "time": "2026-01-01T00:00:00.250+00:00",
        "level": "WARNING",
        "logger": "rocketapp.messages",
        "message": "retry",
        "process": "worker 2",
        "topic": "orders",
        "queue": ["orders", "broker-a", 3],
    }


def test_json_survives_what_has_no_form_in_it() -> None:
    line = make_formatter("json").format(record("lone \ud800", what=object(), when={1: b"\xff"}))
    assert json.loads(line)["message"] == "lone ?"


def test_json_and_text_tell_the_exception() -> None:
    try:
        raise ValueError("no money")
    except ValueError:
        failed = record("failed")
        failed.exc_info = sys.exc_info()
    assert "ValueError: no money" in json.loads(make_formatter("json").format(failed))["exception"]
    assert "ValueError: no money" in make_formatter("text").format(failed)


def test_text_names_the_process_and_the_message_of_a_user_s_own_line() -> None:
    formatter = make_formatter("text", process="worker 100%")
    assert formatter.format(record("retry", topic="orders", message_id="7F")).endswith("WARNING [worker 100%] retry")
    assert formatter.format(record("slow", "shop.db")).endswith("WARNING [worker 100%] shop.db: slow")
    own = record("low", "rocketapp.handlers.app:settle", topic="orders", message_id="7F", attempt=2)
    assert formatter.format(own).endswith("rocketapp.handlers.app:settle: low [orders 7F attempt 2]")
