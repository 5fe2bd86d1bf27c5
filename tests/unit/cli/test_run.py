"""`rocketapp run` as a worker: what it says, how it ends, and whose broker it uses."""

from __future__ import annotations

import inspect
import json
import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rocketapp.cli.failure import CommandError
from rocketapp.cli.runtime import run_in_loop
from rocketapp.embedded.running import read_running
from tests.unit.cli.conftest import Send, Start
from tests.unit.cli.processes import children_of, is_running, wait_until

WriteApp = Callable[[str], None]

HANDLER = """
@app.subscribe("orders", start="first")
async def settle(message):
    note("settled", message.text())
"""
READY = """
@app.on_startup
def ready():
    note("ready")
"""


@pytest.fixture
def broker(memory_broker: str) -> str:
    """The address of a broker that belongs to no run."""
    return memory_broker


def test_it_starts_a_broker_says_so_and_ends_when_idle(start: Start, write_app: WriteApp, folder: Path) -> None:
    write_app(HANDLER + '@app.on_startup\nasync def first():\n    await app.publish("orders", "one")\n')
    run = start("run", "app:app", "--exit-when-idle", "0.5", fresh=True)
    run.ends(0)
    assert re.search(r"INFO +embedded broker serves on 127\.0\.0\.1:\d+, its messages are in \.rocketapp\n", run.err)
    assert run.out == "settled one\nhandled=1 retried=0 dead_lettered=0 unmatched=0\n"
    assert not (folder / ".rocketapp/broker.json").exists()


MOST_MODULES = 355
"""Modules of ours that a plain app imports until its first message; each costs about a millisecond of the start."""
UNUSED = (
    "consumer.pop",
    "consumer.queues.popped",
    "consumer.traced",
    *(f"consumer.modes.{way}" for way in ("keyed", "orderly", "poll", "popped")),
)


def test_a_plain_app_imports_only_what_it_uses(start: Start, write_app: WriteApp, broker: str) -> None:
    write_app(
        """
import gc, sys

note("collects after", gc.get_threshold()[0])

@app.subscribe("orders", start="first")
async def settle(message):
    note("containers", "dependency_injector" in sys.modules)
    note("modules", *[name for name in sys.modules if name.startswith("rocketapp.")])

@app.on_startup
async def first():
    await app.publish("orders", "one")
"""
    )
    run = start("run", "app", "--name-server", broker, fresh=True)
    modules = run.says(r"modules (.+)")[1].split()
    run.stops()
    assert len(modules) <= MOST_MODULES
    assert not [name for name in modules if name.startswith(tuple(f"rocketapp.{unused}" for unused in UNUSED))]
    assert "collects after 10000\n" in run.out
    assert "containers False\n" in run.out


def test_what_was_handled_does_not_come_again(start: Start, send: Send, write_app: WriteApp) -> None:
    write_app(HANDLER + READY)
    run = start("run", "app")
    run.says("ready")
    send("orders", "one")
    run.says("settled one")
    run.stops()
    again = start("run", "app", "--exit-when-idle", "0.5")
    again.ends(0)
    assert again.summary == (0, 0, 0, 0)


def test_the_last_line_counts_what_became_of_messages(start: Start, write_app: WriteApp, broker: str) -> None:
    write_app(
        """
@app.subscribe("orders", tags="good || worse || bad", start="first")
async def settle(message):
    if message.tag == "worse" and message.attempt == 1:
        raise Retry(after=1)
    if message.tag == "bad":
        raise DeadLetter("bad")

@app.on_startup
async def first():
    for tag in ("good", "good", "worse", "bad"):
        await app.publish("orders", "x", tag=tag)
"""
    )
    run = start("run", "app:app", "--name-server", broker, "--exit-when-idle", "1")
    run.ends(0)
    assert run.summary == (3, 1, 1, 0)


def test_messages_that_no_handler_wants_are_counted(start: Start, send: Send, write_app: WriteApp, broker: str) -> None:
    """`Aa` and `BB` have one hash: the broker sends both, the handler wants one."""
    for tag in ("Aa", "BB"):
        send("orders", tag, "--tag", tag, at=broker)
    write_app(HANDLER.replace('"orders"', '"orders", tags="Aa"'))
    run = start("run", "app:app", "--exit-when-idle", "0.5", "--name-server", broker)
    run.ends(0)
    assert run.summary == (1, 0, 0, 1)


def test_an_app_that_subscribes_nothing_says_so(start: Start, write_app: WriteApp, broker: str) -> None:
    write_app("")
    run = start("run", "app:app", "--name-server", broker)
    run.says("nothing is subscribed, so that no message is handled")
    run.signal(signal.SIGTERM)
    run.ends(0)


@pytest.mark.filterwarnings("error")
def test_a_loop_that_is_not_installed_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)

    async def main() -> None: ...

    work = main()
    with pytest.raises(CommandError, match=r"pip install 'rocketapp\[uvloop\]'"):
        run_in_loop(work, "uvloop")
    assert inspect.getcoroutinestate(work) == inspect.CORO_CLOSED


@pytest.mark.parametrize(
    ("number", "loop"), [(signal.SIGTERM, "asyncio"), (signal.SIGINT, "uvloop"), (signal.SIGHUP, "auto")]
)
def test_the_first_signal_lets_handlers_finish(
    start: Start, send: Send, write_app: WriteApp, broker: str, *, number: signal.Signals, loop: str
) -> None:
    write_app(
        """
@app.subscribe("orders", start="first")
async def settle(message):
    note("begins")
    await asyncio.sleep(0.5)
    note("finished")
"""
        + READY
    )
    run = start("run", "app:app", "--loop", loop, "--name-server", broker)
    run.says("ready")
    send("orders", "one", at=broker)
    run.says("begins")
    run.signal(number)
    run.ends(0)
    assert "finished" in run.out
    assert run.summary == (1, 0, 0, 0)


SLEEPER = """
@app.subscribe("orders", start="first")
async def settle(message):
    note("begins")
    await asyncio.Event().wait()
"""
BLOCKER = """
@app.subscribe("orders", start="first")
async def settle(message):
    note("begins")
    threading.Event().wait()
"""
THREAD = BLOCKER.replace("async def", "def")
EXPRESSION = BLOCKER.replace("threading.Event().wait()", '__import__("re").match("(a+)+b", "a" * 64)')
"""It keeps every other thread from running, too."""
KINDS = {"async": SLEEPER, "blocks the loop": BLOCKER, "regular expression": EXPRESSION, "sync": THREAD}


@pytest.mark.parametrize("handler", KINDS.values(), ids=KINDS)
def test_a_second_signal_cuts_whatever_a_handler_does(
    start: Start, send: Send, write_app: WriteApp, broker: str, handler: str
) -> None:
    write_app(handler + READY)
    run = start("run", "app:app", "--name-server", broker)
    run.says("ready")
    send("orders", "one", at=broker)
    run.says("begins")
    run.signal(signal.SIGTERM)
    # As people do: again and again. Two signals within one moment may count as one.
    wait_until(lambda: run.signal(signal.SIGINT) or run.process.poll() is not None, "it has ended", every=0.5)
    run.ends(1)
    assert run.summary == (0, 0, 0, 0)
    again = start("run", "app:app", "--name-server", broker)
    again.says("begins")  # nothing was lost
    again.process.kill()


@pytest.mark.parametrize("handler", KINDS.values(), ids=KINDS)
def test_the_drain_is_cut_after_its_time(
    start: Start, send: Send, write_app: WriteApp, broker: str, handler: str
) -> None:
    write_app(handler + READY)
    run = start("run", "app:app", "--drain-timeout", "0.3", "--name-server", broker)
    run.says("ready")
    send("orders", "one", at=broker)
    run.says("begins")
    run.signal(signal.SIGTERM)
    run.ends(1)
    assert run.summary == (0, 0, 0, 0)
    blocked = handler in (BLOCKER, EXPRESSION)
    expected = r"the event loop is blocked at app\.py:\d+ in"
    if not blocked:
        expected = r"cut after [\d.]+ s: app:\w+ still runs \(orders "
    assert len(re.findall(expected, run.out + run.err)) == 1, run.err


def test_a_signal_during_the_start_ends_it_cleanly(start: Start, write_app: WriteApp, broker: str) -> None:
    write_app(HANDLER + '@app.on_startup\nasync def first():\n    note("starting")\n    await asyncio.Event().wait()\n')
    run = start("run", "app:app", "--name-server", broker)
    run.says("starting")
    run.signal(signal.SIGTERM)
    run.ends(0)
    assert run.summary == (0, 0, 0, 0)


def test_a_thread_that_the_app_leaves_behind_does_not_hold_the_process(
    start: Start, write_app: WriteApp, broker: str
) -> None:
    write_app(
        HANDLER + "def stay():\n    threading.Event().wait()\n\n"
        "@app.on_startup\ndef first():\n    threading.Thread(target=stay).start()\n"
    )
    run = start("run", "app:app", "--name-server", broker, "--exit-when-idle", "0.3")
    run.ends(0)
    assert re.search(r"rocketapp: app\.py:\d+ in stay still runs in a thread: ended without it\n", run.err), run.err
    assert run.summary == (0, 0, 0, 0)


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize(
    ("call", "told"),
    [
        ("asyncio.get_running_loop().stop()", r"loop\.stop\(\) ended the app"),
        (
            "[one.cancel() for one in asyncio.all_tasks()]",
            "cancelling all tasks ended the app: cancel those that you made",
        ),
    ],
    ids=["stop", "cancel"],
)
def test_a_handler_that_ends_the_loop_is_told_by_its_line(
    start: Start, send: Send, write_app: WriteApp, broker: str, loop: str, call: str, told: str
) -> None:
    write_app(f'@app.subscribe("orders", start="first")\nasync def settle(message):\n    {call}\n{READY}')
    run = start("run", "app:app", "--name-server", broker, "--loop", loop)
    run.says("ready")
    send("orders", "one", at=broker)
    run.ends(1)
    assert re.search(rf"^rocketapp: app\.py:\d+: {told}[:;] to end an app, send it SIGTERM$", run.err, re.MULTILINE)
    assert "Traceback" not in run.err
    assert run.summary
    again = start("run", "app:app", "--name-server", broker, "--loop", loop)
    again.says("a process died with messages in flight")
    again.ends(1)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_an_app_that_closes_stdout_and_stderr_takes_them_from_nobody(
    start: Start, send: Send, write_app: WriteApp, broker: str, workers: str
) -> None:
    write_app(
        '@app.subscribe("orders", start="first")\ndef settle(message):\n'
        "    import sys\n    sys.stderr.close()\n    with sys.stdout:\n        note('settled')\n"
    )
    run = start("run", "app:app", "--name-server", broker, "--workers", workers)
    send("orders", "one", at=broker)
    run.says("settled")
    run.stops(0)
    assert "handled 1: app:settle 1" in run.err
    assert run.summary == (1, 0, 0, 0)


def test_a_shut_down_function_that_fails_is_one_line(start: Start, write_app: WriteApp, broker: str) -> None:
    write_app(
        HANDLER
        + '@app.on_startup\nasync def first():\n    await app.publish("orders", "one")\n'
        + '@app.on_shutdown\ndef last():\n    raise OSError("no database")\n'
    )
    run = start("run", "app:app", "--name-server", broker)
    run.says("settled one")  # what stops while it starts shuts nothing down
    run.stops(1)
    assert re.search(r" ERROR +\S*app\.py:\d+: on_shutdown function app:last raised OSError: no database\n", run.err)
    assert "Traceback" not in run.err


def test_a_start_up_function_in_a_thread_that_outlasts_the_drain_is_named(
    start: Start, write_app: WriteApp, broker: str
) -> None:
    write_app(HANDLER + '@app.on_startup\ndef first():\n    note("starting")\n    threading.Event().wait()\n')
    run = start("run", "app:app", "--name-server", broker, "--drain-timeout", "0.3")
    run.says("starting")
    run.signal(signal.SIGTERM)
    run.ends(1)
    assert re.search(r" ERROR +app\.py:\d+ in first still runs in a thread: ended without it\n", run.err), run.err
    assert run.summary == (0, 0, 0, 0)


def test_a_start_up_function_that_fails_is_a_failure_with_its_place(
    start: Start, write_app: WriteApp, broker: str
) -> None:
    write_app(HANDLER + '@app.on_startup\nasync def first():\n    raise OSError("no database")\n')
    run = start("run", "app:app", "--name-server", broker)
    run.ends(1)
    assert re.search(r"^rocketapp: \S*app\.py:\d+: .*first.*OSError: no database$", run.err.splitlines()[-1])
    assert run.summary == (0, 0, 0, 0)


def test_the_broker_lives_in_a_session_of_its_own_and_ends_last(start: Start, write_app: WriteApp) -> None:
    write_app(HANDLER + READY)
    run = start("run", "app:app")
    run.says("started, process")
    (child,) = children_of(run.process.pid)
    assert os.getsid(child) == child
    run.signal(signal.SIGINT)
    run.ends(0)
    assert not is_running(child)
    assert run.err.index("draining: SIGINT") < run.err.index("[broker] draining: SIGTERM")


def test_a_broker_whose_run_was_killed_ends_by_itself(start: Start, write_app: WriteApp, folder: Path) -> None:
    write_app(HANDLER + READY)
    run = start("run", "app:app")
    run.says("ready")
    (child,) = children_of(run.process.pid)
    run.process.kill()
    wait_until(lambda: not is_running(child), "the broker has ended")
    assert read_running(folder / ".rocketapp") is None
    assert "[broker] draining: the parent process is gone" in run.err


def test_a_stop_does_not_wait_for_a_broker_that_opens_its_store(start: Start, folder: Path) -> None:
    (folder / "app.py").write_text(
        """
import asyncio
from rocketapp import RocketApp
from rocketapp.cli.processes import broker
from rocketapp.cli.processes.reports import Report

class Opening:
    pid = 0

    def __init__(self, name, spec, tell, descriptors):
        tell(Report("starting", worked=1.0))
        self.over = asyncio.Event()

    async def ended(self):
        await self.over.wait()

    async def stop(self, timeout):
        self.over.set()

broker.Child = Opening
app = RocketApp("shop")

@app.subscribe("orders")
async def settle(message): ...
"""
    )
    run = start("run", "app:app", "--connect-timeout", "60", "--drain-timeout", "60")
    run.says("the embedded broker opens its store in .rocketapp, and reads its log")
    run.signal(signal.SIGTERM)
    run.ends(0, within=20)
    assert run.out == "handled=0 retried=0 dead_lettered=0 unmatched=0\n"


def test_a_broker_that_died_is_started_again_at_the_same_address(start: Start, send: Send, write_app: WriteApp) -> None:
    write_app(HANDLER + READY)
    run = start("run", "app:app")
    run.says("ready")
    address = run.says(r"serves on (\S+),")[1]
    (child,) = children_of(run.process.pid)
    os.kill(child, signal.SIGKILL)
    run.says(r"the embedded broker died \(killed by SIGKILL\); starting it again")
    wait_until(lambda: run.err.count(f"serves on {address},") == 2, "it serves again")
    send("orders", "after the crash")
    run.says("settled after the crash")
    run.stops()


def test_a_broker_that_dies_again_and_again_is_not_started_without_a_pause(start: Start, write_app: WriteApp) -> None:
    write_app(HANDLER + READY)
    run = start("run", "app:app")
    run.says("ready")
    for count in (1, 2):
        wait_until(lambda wanted=count: run.err.count("serves on") == wanted, "it serves")
        (child,) = children_of(run.process.pid)
        os.kill(child, signal.SIGKILL)
    run.says(r"embedded broker: it served for \d\.\d s; starting it in 0\.2 s")
    wait_until(lambda: run.err.count("serves on") == 3, "it serves again")


def test_a_second_run_joins_the_broker_and_takes_it_over(
    start: Start, send: Send, write_app: WriteApp, folder: Path
) -> None:
    write_app(HANDLER + READY)
    first = start("run", "app:app")
    first.says("ready")
    (child,) = children_of(first.process.pid)
    second = start("run", "app:app")
    second.says("ready")
    second.says(rf"joined the embedded broker at \S+, process {child}")
    assert children_of(second.process.pid) == []
    address = first.says(r"serves on (\S+),")[1]
    first.stops()
    second.says(rf"embedded broker serves on {address}")
    send("orders", "to the second run")
    second.says("settled to the second run")
    second.stops()
    assert not (folder / ".rocketapp/broker.json").exists()


def test_runs_that_start_at_once_share_one_broker(start: Start, write_app: WriteApp) -> None:
    write_app(HANDLER + READY)
    runs = [start("run", "app:app") for _ in range(3)]
    for run in runs:
        run.says("ready")
    assert sum(len(children_of(run.process.pid)) for run in runs) == 1
    for run in reversed(runs):
        run.discard()


def test_a_file_left_by_a_killed_broker_is_not_believed(start: Start, write_app: WriteApp, folder: Path) -> None:
    write_app(HANDLER)
    (folder / ".rocketapp").mkdir()
    (folder / ".rocketapp/broker.json").write_text('{"address": "127.0.0.1:1", "pid": 1}')
    run = start("run", "app:app", "--exit-when-idle", "0.3")
    run.ends(0)
    assert "embedded broker serves on" in run.err


def test_embedded_names_the_directory_and_beats_the_settings(start: Start, write_app: WriteApp, folder: Path) -> None:
    write_app(HANDLER)
    (folder / "settings.toml").write_text('[client]\nname_server = "127.0.0.1:1"\n')
    run = start("run", "app:app", "--embedded", "data", "--exit-when-idle", "0.3")
    run.ends(0)
    assert "its messages are in data" in run.err
    assert (folder / "data").is_dir()
    assert not (folder / ".rocketapp").exists()


def test_the_name_server_of_the_command_line_beats_the_settings(start: Start, write_app: WriteApp, broker: str) -> None:
    write_app(HANDLER + READY)
    run = start("run", "app:app", "--name-server", broker, environment={"ROCKETAPP_CLIENT__NAME_SERVER": "127.0.0.1:1"})
    run.says("ready")
    assert children_of(run.process.pid) == []
    run.stops()


def test_an_outage_after_the_start_is_waited_out(start: Start, send: Send, write_app: WriteApp) -> None:
    write_app(HANDLER + READY)
    broker = start("broker", "--dir", "data")
    address = broker.says(r"serving on (\S+)")[1]
    run = start("run", "app:app", "--name-server", address, "--connect-timeout", "1")
    run.says("ready")
    broker.process.kill()
    run.says(f"lost {address}")
    start("broker", "--dir", "data", "--listen", address).says("serving on")
    send("orders", "after the outage", at=address)
    run.says("settled after the outage")
    run.stops()


def test_log_lines_may_be_json(start: Start, write_app: WriteApp) -> None:
    write_app(HANDLER)
    run = start("run", "app:app", "--exit-when-idle", "0.3", "--log-format", "json")
    run.ends(0)
    lines = [json.loads(line) for line in run.err.splitlines()]
    assert all({"time", "level", "message"} <= line.keys() for line in lines)
    assert {"broker"} == {line["process"] for line in lines if "process" in line}


def test_the_log_level_decides_what_is_told(start: Start, write_app: WriteApp) -> None:
    write_app(HANDLER + '@app.on_startup\nasync def first():\n    await app.publish("orders", "one")\n')
    quiet = start("run", "app:app", "--exit-when-idle", "0.3", "--log-level", "error")
    quiet.ends(0)
    assert quiet.err == ""
    usual = start("run", "app:app", "--exit-when-idle", "0.3")
    usual.ends(0)
    assert "took <Message" not in usual.err
    loud = start("run", "app:app", "--exit-when-idle", "0.3", "--log-level", "DEBUG")
    loud.ends(0)
    assert "group shop" in loud.err
    assert "app:settle took <Message orders@" in loud.err


def test_a_retry_that_is_due_later_keeps_the_run_going(start: Start, write_app: WriteApp, broker: str) -> None:
    write_app(
        """
@app.subscribe("orders", start="first")
async def settle(message):
    note("attempt", message.attempt)
    if message.attempt == 1:
        raise Retry(after=1)

@app.on_startup
async def first():
    await app.publish("orders", "one")
"""
    )
    run = start("run", "app:app", "--name-server", broker, "--exit-when-idle", "0.3")
    run.ends(0)
    assert "attempt 2" in run.out
    assert run.summary == (1, 1, 0, 0)


def test_an_app_of_named_clusters_alone_needs_no_broker(start: Start, folder: Path, broker: str) -> None:
    (folder / "app.py").write_text(
        f"from rocketapp import RocketApp\n"
        f'app = RocketApp("shop", clusters={{"eu": "{broker}"}})\n'
        f'@app.subscribe("orders", cluster="eu")\n'
        f"async def settle(message): ...\n"
    )
    run = start("run", "app:app", "--exit-when-idle", "0.3")
    run.ends(0)
    assert "embedded" not in run.err
    assert not (folder / ".rocketapp").exists()


PRODUCTION = '[production.client]\nname_server = "10.0.0.1:9876"\n'


@pytest.mark.parametrize("workers", ["1", "2"])
def test_an_app_in_the_wrong_environment_is_refused_an_embedded_broker(
    start: Start, write_app: WriteApp, folder: Path, workers: str
) -> None:
    write_app(HANDLER)
    (folder / "settings.toml").write_text(PRODUCTION)
    run = start("run", "app:app", "--workers", workers)
    run.ends(2)
    assert run.err.splitlines()[-1] == (
        "rocketapp: no cluster is named for environment development, but there is one in settings.toml "
        "[production.client]: give --name-server H:P, set client.name_server, or choose another environment with "
        "ENV_FOR_DYNACONF; or ask for an embedded broker with --embedded DIR"
    )
    assert not (folder / ".rocketapp").exists()


def test_a_variable_that_is_empty_does_not_ask_for_an_embedded_broker(
    start: Start, write_app: WriteApp, folder: Path
) -> None:
    write_app(HANDLER)
    (folder / "settings.toml").write_text(PRODUCTION)
    variables = {"ENV_FOR_DYNACONF": "production", "ROCKETAPP_CLIENT__NAME_SERVER": ""}
    run = start("run", "app:app", environment=variables)
    run.ends(2)
    assert "there is one in settings.toml [production.client]" in run.err


@pytest.mark.parametrize("workers", ["1", "2"])
def test_an_embedded_broker_can_be_forbidden(start: Start, write_app: WriteApp, folder: Path, workers: str) -> None:
    write_app(HANDLER)
    run = start("run", "app:app", "--no-embedded", "--workers", workers)
    run.ends(2)
    assert re.search(r"^rocketapp: --no-embedded: nothing names a cluster .* --name-server H:P", run.err, re.MULTILINE)
    assert not (folder / ".rocketapp").exists()


@pytest.mark.parametrize("workers", ["1", "2"])
def test_outside_of_development_an_embedded_broker_has_to_be_asked_for(
    start: Start, write_app: WriteApp, folder: Path, workers: str
) -> None:
    write_app(HANDLER + READY)
    production = {"ENV_FOR_DYNACONF": "production"}
    # Without a settings file, as it is when the working directory is another.
    run = start("run", "app:app", "--workers", workers, environment=production)
    run.ends(2)
    assert run.err.splitlines()[-1] == (
        "rocketapp: no cluster is named for environment production: give --name-server H:P, set client.name_server, or "
        "choose another environment with ENV_FOR_DYNACONF; or ask for an embedded broker with --embedded DIR"
    )
    assert not (folder / ".rocketapp").exists()
    run = start("run", "app:app", "--workers", workers, "--embedded", "here", environment=production)
    run.says(" INFO .*embedded broker serves on .*, its messages are in here")
    run.stops()


def test_a_file_that_hides_a_module_which_is_loaded_later_ends_the_start_with_its_name(
    start: Start, write_app: WriteApp, folder: Path
) -> None:
    write_app(HANDLER)
    (folder / "email.py").write_text("sender = 'shop'\n")
    run = start("run", "app:app", "--no-embedded", fresh=True)
    run.ends(2)
    (line,) = run.err.splitlines()
    assert line.endswith("'email' is not a package: email.py hides Python's own module email: rename it"), line
