"""Every mistake a user can make on the command line: exit code 2, one line on stderr, and the mend in it."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketapp.cli.main import run_command
from tests.cases import cases
from tests.unit.cli.brokers import serving_in_memory
from tests.unit.cli.conftest import Here, Start
from tests.unit.cli.processes import SURROUNDINGS

APP = 'from rocketapp import RocketApp, Router\napp = RocketApp("shop")\n'
FILES = {
    "app.py": APP + '@app.subscribe("orders")\nasync def settle(message): ...\n',
    "raises.py": "import json\njson.loads('{')\n",
    "no_app.py": "wares = 7\n",
    "wrong.py": "app = 7\n",
    "factory.py": "from rocketapp import RocketApp\ndef create(name):\n    return RocketApp(name)\n",
    "twice.py": APP + '@app.subscribe("orders")\nasync def one(message): ...\n\n'
    '@app.subscribe("orders")\nasync def two(message): ...\n',
    "argument.py": APP + '@app.subscribe("orders")\nasync def one(message, what): ...\n',
    "brackets.py": APP + "@app.on_startup()\nasync def one(): ...\n",
    "positional.py": APP + '@app.subscribe("orders", "paid")\nasync def one(message): ...\n',
    "unnamed.py": APP + 'Router("shop-")\n',
    "nowhere.py": APP + '@app.subscribe("orders")\nasync def one(a: "Nowhere"): ...\n',
    "mute.py": "class Mute(Exception):\n    def __str__(self): raise RuntimeError\nraise Mute\n",
    "key.toml": "[consumer]\npull_batch_sise = 32\n",
    "bounds.toml": "[consumer]\npull_batch_size = 0\n",
    "type.toml": '[app]\ndrain_timeout = "long"\n',
    "broken.toml": "[consumer\n",
    "dir.toml": '[broker]\ndir = "wrong.py"\n',
    "log.toml": '[root]\nhandlers = ["nowhere"]\n',
    "table.toml": "[consumers]\npull_batch_size = 32\n",
}

CASES = {
    "unknown module": ("run shop:app", ["shop: no such module"]),
    "module that raises": ("run raises:app", ["raises.py:2: JSONDecodeError"]),
    "missing attribute": ("run app:ap", ["app.py", "did you mean 'app'?"]),
    "no app in it": ("run no_app", ["no_app.py", "RocketApp(name)"]),
    "no RocketApp": ("run wrong", ["wrong:app is an int, not a RocketApp"]),
    "factory with arguments": ("run factory:create()", ["factory.py:2", "name", "defaults"]),
    "factory without brackets": ("run factory:create", ["factory.py:2", "write factory:create()"]),
    "a file": ("run app.py", ["app:app"]),
    "a path": ("run ./shop/app:app", ["for example shop.app:app"]),
    "a file with its attribute": ("run app.py:app", ["a module is named without .py: app"]),
    "a relative module": ("run .app:app", [".app:app: write APP as module:attribute"]),
    "text that raises": ("run mute", ["mute.py:3", "Mute: (its text raised RuntimeError)"]),
    "two handlers of everything": ("run twice", ["twice.py:6", "twice.py:3"]),
    "argument that nothing fills": ("run argument", ["argument.py:3", "annotation"]),
    "a decorator with brackets": ("run brackets", ["brackets.py:3: TypeError", "the decorator without brackets"]),
    "a tag without its name": ("run positional", ["positional.py:3: TypeError", "give options by name"]),
    "a prefix without its name": ("run unnamed", ["unnamed.py:3: TypeError", "give options by name"]),
    "annotation of nothing": ("run nowhere", ["nowhere.py:3", "Nowhere", "TYPE_CHECKING"]),
    "annotation of nothing in routes": ("routes nowhere", ["nowhere.py:3", "Nowhere"]),
    "unknown key": ("run app --settings key.toml", ["key.toml", "consumer.pull_batch_sise", "pull_batch_size"]),
    "out of bounds": ("run app --settings bounds.toml", ["bounds.toml", "consumer.pull_batch_size", "least, 1"]),
    "wrong type": ("run app --settings type.toml", ["type.toml", "app.drain_timeout"]),
    "no TOML": ("run app --settings broken.toml", ["broken.toml: is not TOML", "line 1"]),
    "unknown table": ("run app --settings table.toml", ["table.toml", "consumers", "consumer"]),
    "missing settings": ("run app --settings nowhere.toml", ["nowhere.toml"]),
    "unknown option": ("run app --worker 2", ["--worker", "--workers"]),
    "folders without reload": ("run app --reload-dir .", ["--reload-dir needs --reload"]),
    "pages at no address": ("run app --http nonsense", ["--http", "nonsense"]),
    "no app at all": ("run", ["APP", "rocketapp run --help"]),
    "an option without a value": ("offset reset shop orders --to", ["'--to' requires an argument\n"]),
    "workers out of bounds": ("run app --workers 0", ["--workers", "1<=x"]),
    "timeout out of bounds": ("run app --connect-timeout 0", ["connect_timeout", "0.1"]),
    "never idle": ("run app --exit-when-idle nan", ["--exit-when-idle", "not a number up to 1000000000"]),
    "two clusters": ("run app --embedded data --name-server 127.0.0.1:1", ["--embedded and --name-server"]),
    "no address": ("run app --name-server nonsense", ["nonsense", "host:port"]),
    "unknown command": ("rum app", ["rum", "rocketapp --help"]),
    "unknown level": ("run app --log-level LOUD", ["--log-level", "'debug'"]),
    "logging in no form": ("run app --log-config app.py", ["--log-config app.py", ".toml, .json, .ini, .conf"]),
    "logging nowhere": ("run app --log-config nowhere.ini", ["--log-config nowhere.ini", "no such file"]),
    "logging that cannot be": ("run app --log-config log.toml", ["--log-config log.toml", "'nowhere'"]),
    "logging said twice": ("run app --log-config log.toml --log-level INFO", ["--log-level", "leave one out"]),
    "send without a cluster": ("send orders x", ["--name-server", "rocketapp run"]),
    "half a bracket": ("run app --name-server [::1", ["'[::1' is not host:port or [ipv6]:port"]),
    "no address to send to": ("send orders x --name-server nonsense", ["nonsense", "host:port"]),
    "no address to tail": ("tail orders --name-server nonsense", ["nonsense", "host:port"]),
    "tail without a cluster": ("tail orders", ["--name-server", "rocketapp run"]),
    "nothing to send": ("send orders", ["BODY", "- to read"]),
    "illegal topic": ("send a.b x", ["a.b", "letters"]),
    "illegal topic to tail": ("tail a.b", ["a.b", "letters"]),
    "a delay of no time": ("send orders x --delay 0s", ["delay=0.0", "above 0"]),
    "a delay without end": ("send orders x --delay 1e400", ["delay=inf", "at most 1000000000"]),
    "a delay of ages": ("send orders x --delay 1e308s", ["delay=1e+308", "at most 1000000000"]),
    "more than a tail can count": ("tail orders --count 99999999999999999999", ["'--count'", "not in the range"]),
    "no delay": ("send orders x --delay soon", ["--delay soon", "10s"]),
    "property without value": ("send orders x --property k", ["--property k", "KEY=VALUE"]),
    "no tag": ("tail orders --tag ||", ["--tag", "names no tag"]),
    "one stroke between tags": ("tail orders --tag a|b", ["--tag a|b", "'a || b'"]),
    "a body like an option": ("send refunds -1", ["'-1'", "-- before it"]),
    "a misspelt option of send": ("send refunds x --tagg y", ["Did you mean '--tag'?: see"]),
    "a file as directory": ("run app --embedded wrong.py", ["wrong.py", "choose another directory (--embedded)"]),
    "a file as directory of the settings": (
        "run app --settings dir.toml",
        ["choose another directory (dir.toml: broker.dir)"],
    ),
    "a file as the broker's directory": ("broker --dir wrong.py --listen 127.0.0.1:0", ["directory (--dir)"]),
    "an app without a name": ("run ''", ["APP is empty"]),
    "settings without a name": ("run app --settings ''", ["--settings is empty"]),
    "settings of routes without a name": ("routes app --settings ''", ["--settings is empty"]),
    "a folder without a name": ("run app --reload --reload-dir ''", ["--reload-dir is empty"]),
    "a cluster without an address": ("run app --name-server ';'", ["--name-server is empty"]),
    "a cluster of blanks": ("topic list --name-server ' ; '", ["--name-server is empty"]),
    "a delay that is empty": ("send orders x --delay ''", ["--delay is empty"]),
    "a tag that is empty": ("send orders x --tag ''", ["--tag is empty"]),
    "an order key that is empty": ("send orders x --order-key ''", ["--order-key is empty"]),
    "a key that is empty": (
        "send orders x --key ''",
        ["send orders: key '': keys are joined by blanks, so none may be empty"],
    ),
    "a key with a blank": ("send orders x --key 'a b'", ["send orders: key 'a b': keys are joined by blanks"]),
    "a property of RocketMQ's": (
        "send orders x --property DELAY=3",
        ["send orders: property 'DELAY' belongs to RocketMQ"],
    ),
    "a system topic": (
        "send SCHEDULE_TOPIC_XXXX x",
        ["send SCHEDULE_TOPIC_XXXX: sending to this system topic is forbidden"],
    ),
    "a property that is empty": ("send orders x --property k=", ["--property k=: write KEY=VALUE"]),
    "two tags in one": ("send orders x --tag 'a||b'", ["--tag a||b: a message has one tag"]),
    "a tag of tail that is empty": ("tail orders --tag ''", ["--tag is empty"]),
    "a project without a name": ("new ''", ["rocketapp: DIR is empty: give it a value\n"]),
    "a dead letter without a name": ("dlq show shop ''", ["rocketapp: WHICH is empty: give it a value\n"]),
    "a project in a file": ("new app.py --defaults", ["app.py is a file: name a folder"]),
    "a project among files": ("new . --defaults", ["is not empty, it has "]),
    "run without an embedded folder": (
        "run app --embedded ''",
        ["--embedded is empty: leave it out, or give it a value\n"],
    ),
    "run without a cluster": ("run app --name-server ''", ["--name-server is empty"]),
    "a broker without a folder": ("broker --dir ''", ["--dir is empty"]),
    "a broker without an address": ("broker --listen ''", ["--listen is empty"]),
    "send to an address that is empty": ("send orders x --name-server ''", ["--name-server is empty"]),
    "tail from an address that is empty": ("tail orders --name-server ''", ["--name-server is empty"]),
    "an attribute without a name": ("run app:", ["write APP as module:attribute"]),
    "a factory with its arguments": ("run 'app:create(1)'", ["module:factory()"]),
    "routes of nothing": ("routes shop", ["shop: no such module"]),
    "config of nothing": ("config shop", ["shop: no such module"]),
    "config with an unknown key": ("config app --settings key.toml", ["key.toml", "pull_batch_size"]),
}


def test_an_interrupt_while_the_command_is_loaded_is_silent(start: Start, folder: Path) -> None:
    (folder / "click.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nsignal.pause()\n")
    command = start("--help", fresh=True)
    command.ends(-signal.SIGINT)
    assert command.err == ""


@pytest.mark.parametrize("closing", ["<&-", ">&-", "2>&-"])
@pytest.mark.parametrize(
    ("command", "code"), [("send orders x --name-server 127.0.0.1:1", 2), ("run app --exit-when-idle 0.1", 0)]
)
def test_closed_standard_streams_do_no_harm_here_or_in_a_child(
    folder: Path, command: str, code: int, closing: str
) -> None:
    (folder / "app.py").write_text(FILES["app.py"])
    line, surroundings = f'exec "$0" -m rocketapp {command} {closing}', {**os.environ, **SURROUNDINGS}
    shell = ["sh", "-c", line, sys.executable]
    done = subprocess.run(shell, cwd=folder, env=surroundings, capture_output=True, check=False)
    assert done.returncode == code, done.stderr


def test_a_full_disk_behind_stdout_is_one_line(folder: Path) -> None:
    (folder / "app.py").write_text(FILES["app.py"])
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "rocketapp", "routes", "app"],
            cwd=folder,
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert done.returncode == 1
    problem = "stdout cannot be written: no space left on device: see where it is redirected to"
    assert done.stderr.decode().splitlines() == [f"rocketapp: {problem}"]


@pytest.fixture
def files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The files are in the working directory of this process, which in the end forgets them and hears signals again."""
    heard = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for name, text in FILES.items():
        (folder / name).write_text(text)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    yield
    for name in FILES:
        sys.modules.pop(name.removesuffix(".py"), None)
    for number, action in heard.items():
        signal.signal(number, action)


@pytest.mark.usefixtures("files")
@cases("line, words", CASES.values(), ids=CASES)
def test_one_line_and_the_mend(capfd: pytest.CaptureFixture[str], folder: Path, line: str, words: list[str]) -> None:
    assert run_command(shlex.split(line)) == 2
    err = capfd.readouterr().err
    assert err.count("\n") == 1, err
    assert err.startswith("rocketapp: ")
    assert [word for word in words if word not in err] == [], err
    assert {path.name for path in folder.iterdir()} - {"__pycache__"} == FILES.keys()


@pytest.fixture
def silent_address() -> Iterator[str]:
    """A program listens there and never says anything."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def web_address() -> Iterator[str]:
    """A web server there answers everything with a refusal."""

    def refuse(server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = server.accept()
                with connection:
                    connection.recv(65536)
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=refuse, args=(server,), daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.fixture
def dead_address() -> str:
    """Nothing listens there."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_cluster_that_is_not_there_is_told_after_a_bounded_wait(
    start: Start, folder: Path, dead_address: str, workers: str
) -> None:
    (folder / "app.py").write_text(FILES["app.py"])
    arguments = ("--name-server", dead_address, "--connect-timeout", "0.5", "--workers", workers)
    command = start("run", "app:app", *arguments)
    command.ends(1)  # a unit starts it again: the cluster may come later
    assert command.err.count("\n") == 1, command.err
    assert dead_address in command.err
    assert "connect_timeout" in command.err
    assert command.out.startswith("handled=0 ")


@pytest.mark.parametrize("refused", ["--no-embedded", "ca_file", "secret_key"])
@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_run_that_is_refused_has_no_last_line(start: Start, folder: Path, refused: str, workers: str) -> None:
    (folder / "app.py").write_text(FILES["app.py"])
    options = {"ca_file": 'tls = true\nca_file = "missing.pem"', "secret_key": 'access_key = "a"\nsecret_key = ""'}
    if refused in options:
        (folder / "settings.toml").write_text(f'[client]\nname_server = "127.0.0.1:1"\n{options[refused]}\n')
    command = start("run", "app:app", "--workers", workers, "--no-embedded")
    command.ends(2)
    assert refused in command.err
    assert command.out == ""


def test_a_server_that_says_nothing_is_no_cluster(start: Start, folder: Path, silent_address: str) -> None:
    (folder / "app.py").write_text(FILES["app.py"])
    command = start("run", "app:app", "--name-server", silent_address, "--connect-timeout", "0.5")
    command.ends(1)
    problem = "not reached within 0.5 s (app.connect_timeout): no answer: start the name server"
    assert f"{silent_address}: {problem}" in command.err.splitlines()[-1]


def test_a_peer_that_speaks_http_is_told_so(start: Start, folder: Path, web_address: str) -> None:
    (folder / "app.py").write_text(FILES["app.py"])
    run = start("run", "app:app", "--name-server", web_address, "--connect-timeout", "0.5")
    send = start("send", "orders", "x", "--name-server", web_address)
    for command, code in ((run, 1), (send, 2)):
        command.ends(code)
        assert "the peer speaks HTTP, which is not RocketMQ's protocol" in command.err.splitlines()[-1]


@pytest.mark.parametrize("line", ["send orders x", "tail orders"])
def test_send_and_tail_need_a_cluster_that_answers(here: Here, dead_address: str, line: str) -> None:
    command = here(*line.split(), "--name-server", dead_address)
    command.ends(2)
    assert command.err.count("\n") == 1, command.err
    assert dead_address in command.err


@pytest.mark.parametrize(
    "line",
    ["send orders x", "tail orders", "topic list", "dlq list", "dlq replay shop", "check app:app", "doctor app:app"],
)
def test_keys_that_the_cluster_refuses_end_every_command(here: Here, folder: Path, line: str) -> None:
    (folder / "app.py").write_text(FILES["app.py"])
    keys = {"ROCKETAPP_CLIENT__ACCESS_KEY": "admin", "ROCKETAPP_CLIENT__SECRET_KEY": "of another cluster"}
    admin = '{"username": "admin", "password": "secret-key"}'
    with serving_in_memory(authentication=True, admin_user=admin) as address:
        command = here(*line.split(), "--name-server", address, environment=keys)
    command.ends(2)
    assert command.err.startswith("rocketapp: client.access_key: the cluster refuses the keys: ")
    assert command.err.count(address) == 1


def test_traceback_shows_the_rest(start: Start, folder: Path) -> None:
    (folder / "raises.py").write_text(FILES["raises.py"])
    for arguments in (
        ("run", "raises"),
        ("routes", "raises"),
        ("config", "raises"),
        ("run", "raises", "--workers", "2"),
    ):
        command = start(*arguments, "--traceback")
        command.ends(2)
        assert "Traceback (most recent call last)" in command.err
        assert command.err.splitlines()[-1].startswith("rocketapp: raises.py:2: JSONDecodeError")


def test_a_data_directory_that_a_mute_broker_holds_is_told(start: Start, folder: Path) -> None:
    """It is in use, yet its broker cannot be joined: its broker.json is gone."""
    (folder / "app.py").write_text(FILES["app.py"])
    start("broker").says("serving on")
    (folder / ".rocketapp/broker.json").unlink()
    command = start("run", "app:app")
    command.ends(2)
    assert command.err.count("\n") == 1, command.err
    assert ".rocketapp: data directory is in use by another broker" in command.err


def test_an_address_of_the_settings_is_blamed_on_them(start: Start, folder: Path) -> None:
    (folder / "app.py").write_text(FILES["app.py"])
    command = start("run", "app:app", environment={"ROCKETAPP_BROKER__LISTEN": "0.0.0.0:9876"})
    command.ends(2)
    assert command.err.startswith("rocketapp: ROCKETAPP_BROKER__LISTEN: broker.listen 0.0.0.0:9876: only loopback")


def test_an_embedded_address_that_was_chosen_and_is_taken_is_told(start: Start, folder: Path) -> None:
    (folder / "app.py").write_text(FILES["app.py"])
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        command = start("run", "app:app", environment={"ROCKETAPP_BROKER__LISTEN": address})
        command.ends(2)
    assert f"{address}: address already in use" in command.err
    assert command.err.count("\n") == 1, command.err


@pytest.mark.parametrize("arguments", [["run", "app:app"], ["--help"]])
def test_a_deleted_current_directory_is_one_line(folder: Path, arguments: list[str]) -> None:
    gone = folder / "gone"
    gone.mkdir()
    script = 'rmdir "$PWD" && exec "$0" -m rocketapp "$@"'
    command = ["sh", "-c", script, sys.executable, *arguments]
    run = subprocess.run(command, cwd=gone, check=False, capture_output=True, text=True)
    assert run.returncode == 2
    assert run.stderr == (
        "rocketapp: the current directory cannot be read (No such file or directory): change to one that exists\n"
    )
