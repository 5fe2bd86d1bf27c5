"""The way into production: units, Dockerfiles, YAML and shell of the pages are read by their own tools, and agree with
the code.
"""

from __future__ import annotations

import configparser
import contextlib
import json
import re
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from rocketapp.cli.failure import USAGE
from rocketapp.cli.processes.stop import SLACK, STOP_TIMEOUT
from rocketapp.config.app import AppConfig
from rocketapp.config.broker import BrokerConfig
from rocketapp.config.consumer import ConsumerConfig
from rocketapp.model.metrics import metrics_of
from rocketapp.model.snapshot import AppSnapshot
from rocketapp.plugins.counts import DISTRIBUTIONS, Counts, messages_by
from tests.docs.pages import ROOT, Block, blocks
from tests.docs.test_snippets import parse
from tests.unit.cli.processes import Command
from tests.unit.cli.test_service_manager import Manager

NOTHING = AppSnapshot(cache_limit_bytes=1, groups=())

HOW_TO = ROOT / "docs/how-to"
SYSTEMD, CONTAINERS = HOW_TO / "deployment-systemd.md", HOW_TO / "containers.md"
APACHE, WATCHING = HOW_TO / "from-embedded-to-apache.md", HOW_TO / "telemetry-in-production.md"
ALL = (SYSTEMD, CONTAINERS, APACHE, WATCHING)
LIMIT = AppConfig().drain_timeout + 2 * SLACK + STOP_TIMEOUT
"""Seconds after which a run has ended itself, whatever its handlers do."""


DIRECTIVES = {
    *(f"Unit.{name}" for name in ("Description", "Wants", "After")),
    *(f"Service.{name}" for name in ("Type", "User", "StateDirectory", "WorkingDirectory", "Environment", "ExecStart")),
    "Service.EnvironmentFile",
    *(
        f"Service.{name}"
        for name in ("KillMode", "TimeoutStopSec", "Restart", "RestartSec", "WatchdogSec", "OOMPolicy")
    ),
    *(f"Service.{name}" for name in ("RestartPreventExitStatus", "ProtectSystem", "ProtectHome", "PrivateTmp")),
    *(f"Service.{name}" for name in ("PrivateDevices", "NoNewPrivileges", "CapabilityBoundingSet", "UMask")),
    *(f"Service.{name}" for name in ("ProtectKernelTunables", "ProtectKernelModules", "ProtectControlGroups")),
    *(f"Service.{name}" for name in ("RestrictAddressFamilies", "RestrictNamespaces", "RestrictSUIDSGID")),
    *(f"Service.{name}" for name in ("LockPersonality", "SystemCallArchitectures")),
    "Install.WantedBy",
}
"""Those of systemd 252 that the unit may use, by section: systemd passes over a misspelt one."""


def of(page: Path, language: str) -> list[Block]:
    return [block for block in blocks(page) if block.language == language]


def the(page: Path, language: str, holding: str) -> str:
    """The one block with this text in it."""
    (found,) = [block.text for block in of(page, language) if holding in block.text]
    return found


def unit() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(the(SYSTEMD, "ini", "[Service]").replace("\\\n", " "))
    return parser


def test_the_unit_fits_the_processes_of_a_run() -> None:
    service = unit()["Service"]
    assert service["KillMode"] == "mixed"
    assert service["Type"] == "notify"
    assert int(service["RestartPreventExitStatus"]) == USAGE
    assert float(service["TimeoutStopSec"]) >= LIMIT
    # What is written lies below the working directory, which is the state's.
    assert service["WorkingDirectory"] == f"%S/{service['StateDirectory']}"
    assert not Path(ConsumerConfig().crash_dir).is_absolute()


def test_the_unit_has_directives_of_systemd_alone(tmp_path: Path) -> None:
    found = {f"{section}.{name}" for section, names in unit().items() for name in names}
    assert found - DIRECTIVES == set()
    if shutil.which("systemd-analyze") is not None:
        assert complaints_of_systemd(tmp_path) == []


def complaints_of_systemd(folder: Path) -> list[str]:
    """What systemd itself says against the unit."""
    program = folder / "rocketapp"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    text = the(SYSTEMD, "ini", "[Service]").replace("/opt/shop/current/bin/rocketapp", str(program))
    file = folder / "shop@8081.service"
    file.write_text(text.replace("User=shop", "User=root"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(file)], capture_output=True, text=True, check=False
    )
    said = (done.stdout + done.stderr).splitlines()
    return [line for line in said if "shop@" in line] or [f"exit code {done.returncode}"] * (done.returncode != 0)


def test_what_the_unit_starts_consumes_and_drains(tmp_path: Path) -> None:
    """With the page's settings, for an embedded broker in place of the cluster."""
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop/app.py").write_text(
        "from rocketapp import RocketApp\n\napp = RocketApp('shop')\n\n\n"
        "@app.subscribe('shop-orders')\nasync def settle(order: bytes) -> None: ...\n"
    )
    manager = Manager()
    broker = Command(tmp_path, "broker", "--memory")
    run: Command | None = None
    try:
        address = broker.says(r"serving on (\S+)")[1]
        (tmp_path / "settings.toml").write_text(
            the(SYSTEMD, "toml", "[production.client]").replace("192.0.2.10:9876;192.0.2.11:9876", address)
        )
        words = shlex.split(unit()["Service"]["ExecStart"])[1:]
        words[words.index("--settings") + 1] = str(tmp_path / "settings.toml")
        words = [word.replace("127.0.0.1:%i", "127.0.0.1:0") for word in words]
        environment = dict(pair.split("=") for pair in unit()["Service"]["Environment"].split())
        run = Command(tmp_path, *words, environment={**environment, **manager.environment})
        status = manager.hears("READY")["STATUS"]
        assert f'Status: "{status}"' in SYSTEMD.read_text()
        run.stops()
        assert json.loads(run.err.splitlines()[0])["message"]
    finally:
        manager.close()
        for command in (run, broker):
            if command is not None:
                command.discard()


def test_shown_shell_is_shell_and_its_commands_are_ours() -> None:
    for block in (block for page in ALL for block in of(page, "sh")):
        read = subprocess.run(["bash", "-n"], input=block.text, text=True, check=False, capture_output=True)
        assert read.returncode == 0, f"{block.place}: {read.stderr}"
        for line in block.text.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            for at, word in enumerate(words):
                if word.rpartition("/")[2] == "rocketapp":
                    parse(words[at + 1 :], block.place)


def documents() -> Iterator[tuple[str, Any]]:
    for page in ALL:
        for block in of(page, "yaml"):
            yield block.place, yaml.safe_load(block.text)


def test_every_yaml_can_be_read() -> None:
    assert all(isinstance(document, dict) for _, document in documents())


def the_document(key: str) -> Any:
    (found,) = [document for _, document in documents() if key in document]
    return found


def dockerfile() -> list[tuple[str, str]]:
    """Instruction and arguments of each line."""
    text = the(CONTAINERS, "dockerfile", "FROM").replace("\\\n", " ")
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in text.splitlines() if line)]


def test_the_image_starts_the_app_as_its_first_process() -> None:
    last = dict(dockerfile())  # of each instruction the last one
    entry, arguments = json.loads(last["ENTRYPOINT"]), json.loads(last["CMD"])
    parse([*entry[1:], *arguments], "ENTRYPOINT and CMD")
    assert entry[0] == "rocketapp"
    assert last["STOPSIGNAL"] == "SIGTERM"
    assert last["USER"] != "root"


@contextlib.contextmanager
def answering(status: int) -> Iterator[int]:
    """A server on loopback that answers everything with this status; its port."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(("status", "code"), [(200, 0), (503, 1)])
def test_the_check_of_the_image_follows_health(status: int, code: int) -> None:
    _, _, check = dict(dockerfile())["HEALTHCHECK"].partition("CMD ")
    program, option, script = json.loads(check)
    found = re.search(r"127\.0\.0\.1:(\d+)/health", script)
    assert found is not None
    assert f'"0.0.0.0:{found[1]}"' in dict(dockerfile())["CMD"]
    with answering(status) as port:
        words = [sys.executable, option, script.replace(f":{found[1]}/", f":{port}/")]
        done = subprocess.run(words, capture_output=True, check=False)
    assert (program, done.returncode) == ("python", code)


def deployment() -> dict[str, Any]:
    (found,) = [document for _, document in documents() if document.get("kind") == "Deployment"]
    assert isinstance(found, dict)
    return found


def test_the_pods_have_time_to_drain_and_are_probed() -> None:
    pod = deployment()["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["terminationGracePeriodSeconds"] >= LIMIT
    assert f"stop_grace_period: {pod['terminationGracePeriodSeconds']}s" in CONTAINERS.read_text()
    paths = [container[f"{which}Probe"]["httpGet"]["path"] for which in ("startup", "liveness", "readiness")]
    assert paths == ["/health", "/health", "/ready"]
    assert deployment()["spec"]["selector"]["matchLabels"] == deployment()["spec"]["template"]["metadata"]["labels"]
    (port,) = container["ports"]
    assert f"0.0.0.0:{port['containerPort']}" in container["args"]
    parse(["run", "shop.app:app", *container["args"]], "args of the Deployment")
    written = Path("/app") / Path(ConsumerConfig().crash_dir).parent
    assert [mount["mountPath"] for mount in container["volumeMounts"]] == [str(written)]


@pytest.mark.parametrize("page", [CONTAINERS, SYSTEMD, APACHE], ids=lambda page: page.stem)
def test_every_variable_names_an_option(page: Path) -> None:
    from rocketapp.app.sources import load_settings

    names = set(re.findall(r"\bROCKETAPP_[A-Z_]+__[A-Z_]+\b", page.read_text()))
    values = {name: "300" if name.endswith("TIMEOUT") else "192.0.2.10:9876" for name in names}
    settings = load_settings(None, {}, values, {})
    for name in names:
        table, _, key = name.removeprefix("ROCKETAPP_").lower().partition("__")
        assert settings.source_of(table, key) == name


def test_the_services_of_compose_find_each_other() -> None:
    services = the_document("services")["services"]
    name_server = services["shop"]["environment"]["ROCKETAPP_CLIENT__NAME_SERVER"]
    assert name_server.partition(":")[0] in services
    assert name_server in services["broker"]["command"]
    assert all(set(one["depends_on"]) <= set(services) for one in services.values() if "depends_on" in one)


def test_what_is_said_of_the_embedded_broker_is_what_it_does() -> None:
    config, broker = BrokerConfig(), configparser.ConfigParser()
    broker.optionxform = str  # type: ignore[assignment,method-assign]
    broker.read_string("[broker]\n" + the(APACHE, "ini", "brokerName"))
    said = broker["broker"]
    assert (said["brokerName"], said["brokerClusterName"]) == (config.name, config.cluster)
    assert int(said["mappedFileSizeCommitLog"]) == config.segment_bytes
    assert config.max_message_bytes == 4 << 20
    assert config.flush == "async"
    assert config.flush_interval == 0.5


def samples() -> set[str]:
    """Every name that `/metrics` may have."""
    units = {"By": "_bytes", "s": "_seconds"}
    names = set()
    for figure in (*metrics_of(NOTHING), *messages_by(Counts())):
        total = "_total" if figure.kind == "counter" else ""
        names.add(figure.name.replace(".", "_") + units.get(figure.unit, "") + total)
    for distribution in DISTRIBUTIONS:
        name = distribution.name.replace(".", "_") + "_seconds"
        names |= {f"{name}_bucket", f"{name}_count", f"{name}_sum"}
    return names | {"rocketapp_ready", "rocketapp_processes", "rocketapp_loops_blocked"}


def queries() -> list[str]:
    rules = the_document("groups")["groups"][0]["rules"]
    graphs = WATCHING.read_text().partition("## A page of graphs")[2]
    rows = re.findall(r"^\| [^|]+ \| `(.+)` \|$", graphs, re.MULTILINE)
    return [rule["expr"] for rule in rules] + rows


def test_the_page_names_metrics_that_there_are_in_queries_and_beside_them() -> None:
    asked = set(re.findall(r"\b(?:rocketapp|messaging)_\w+", WATCHING.read_text()))
    labels = {name for name in asked if any(f"by ({name}" in one or f", {name})" in one for one in queries())}
    assert len(asked - labels) > 10
    assert asked - labels <= samples()


def test_every_alarm_has_a_summary_and_those_of_the_table_exist() -> None:
    rules = the_document("groups")["groups"][0]["rules"]
    names = [rule["alert"] for rule in rules]
    assert all(rule["annotations"]["summary"] for rule in rules)
    table = WATCHING.read_text().partition("| Alarm |")[2].partition("\n\n")[0]
    assert set(re.findall(r"`([A-Z]\w+)`", table)) <= {*names, "GROUP"}
