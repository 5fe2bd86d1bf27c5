"""A command of a test, which is a fork, finds the same surroundings as one that has started an interpreter."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.peers import forks
from tests.unit.cli.conftest import Start
from tests.unit.cli.processes import inherited

LOOKS = """
import gc, json, os, signal, sys, threading

from rocketapp import RocketApp

app = RocketApp("shop")
main = sys.modules["__main__"]
with open(os.environ["SEEN"], "w") as file:
    json.dump({
        "argv": sys.argv, "path": sys.path, "flags": list(sys.flags), "cwd": os.getcwd(), "umask": os.umask(0o022),
        "main": [main.__name__, main.__spec__.name, main.__file__], "session": os.getsid(0) == os.getpid(),
        "signals": [str(signal.getsignal(number)) for number in sorted(signal.valid_signals())],
        "streams": [[one.line_buffering, one.write_through, one.encoding] for one in (sys.stdout, sys.stderr)],
        "open": sorted(int(name) for name in os.listdir("/proc/self/fd"))[:-1],
        "environment": dict(os.environ), "threads": threading.active_count(), "collects": gc.get_threshold(),
    }, file)
"""


def seen(start: Start, folder: Path, *, fresh: bool) -> dict[str, Any]:
    path = folder / f"{fresh}.json"
    start("routes", "app", environment={"SEEN": str(path)}, fresh=fresh).ends(0)
    found: dict[str, Any] = json.loads(path.read_text())
    found["path"] = [one for one in found["path"] if not one.endswith("/tests/peers/forking")]
    for name in ("SEEN", "PYTHONPATH"):
        found["environment"].pop(name, None)
    return found


@pytest.mark.parametrize("action", [signal.default_int_handler, signal.SIG_IGN])
def test_it_is_as_after_any_start(start: Start, folder: Path, action: Any) -> None:
    (folder / "app.py").write_text(LOOKS)
    with inherited(signal.SIGINT, action):
        assert seen(start, folder, fresh=False) == seen(start, folder, fresh=True)


def test_how_it_ended_is_known(start: Start, folder: Path) -> None:
    (folder / "app.py").write_text("import signal\nprint('waits', flush=True)\nsignal.pause()\n")
    run = start("routes", "app")
    assert isinstance(run.process, forks.Fork)
    run.says("waits")
    assert run.process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        run.process.wait(0.01)
    run.signal(signal.SIGKILL)
    run.ends(-signal.SIGKILL)
    run.signal(signal.SIGKILL)
    start("routes", "nothing").ends(2)
