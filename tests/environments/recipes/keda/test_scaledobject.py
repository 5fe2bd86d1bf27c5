import json
import re
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

ROCKETAPP = str(Path(sys.executable).with_name("rocketapp"))
MANIFEST = yaml.safe_load(Path(__file__).with_name("scaledobject.yaml").read_text())
SPEC = MANIFEST["spec"]
(TRIGGER,) = SPEC["triggers"]
NAME, LABELS = re.fullmatch(r"sum\((\w+)\{(.*)\}\)", TRIGGER["metadata"]["query"]).groups()
WANTED = dict(re.findall(r'(\w+)="([^"]*)"', LABELS))


def rocketapp(*words: str) -> str:
    return subprocess.run([ROCKETAPP, *words], check=True, capture_output=True, text=True).stdout


@pytest.fixture
def endpoint(rocketapp_broker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Of a running app that is behind: the address of its metrics."""
    monkeypatch.setenv("ROCKETAPP_CLIENT__NAME_SERVER", rocketapp_broker)
    rocketapp("topic", "create", "orders", "--queues", "8")
    rocketapp("send", "orders", "{}", "--count", "100")
    log = tmp_path / "log"
    command = [ROCKETAPP, "run", "app:app", "--http", "127.0.0.1:0"]
    with log.open("w") as out, subprocess.Popen(command, stdout=out, stderr=out) as process:
        while not (found := re.search(r"http://127\.0\.0\.1:\d+", log.read_text())):
            assert process.poll() is None, log.read_text()
            threading.Event().wait(0.1)
        yield found[0]
        process.terminate()


def lag_that_prometheus_would_see(endpoint: str) -> float | None:
    with urllib.request.urlopen(f"{endpoint}/metrics") as answer:
        families = {one.name: one for one in text_string_to_metric_families(answer.read().decode())}
    samples = families[NAME].samples if NAME in families else []
    values = [one.value for one in samples if WANTED.items() <= one.labels.items()]
    return sum(values) if len(values) == 8 else None


def test_the_query_finds_the_lag_and_no_more_replicas_are_asked_for_than_there_are_queues(endpoint: str) -> None:
    deadline = time.monotonic() + 60
    while not (lag := lag_that_prometheus_would_see(endpoint)):
        assert time.monotonic() < deadline, f"no lag of 8 queues as {NAME} with {WANTED}"
        threading.Event().wait(0.5)
    assert 0 < lag <= 100
    queues = json.loads(rocketapp("topic", "show", "orders", "--json"))["queues"]
    assert SPEC["maxReplicaCount"] == len(queues)
