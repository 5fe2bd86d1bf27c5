"""Without what only POSIX systems have: clients work, and apps and commands say that they do not."""

from __future__ import annotations

import subprocess
import sys

import pytest

# The standard library is loaded first: on Windows it has ways of its own.
LIKE_WINDOWS = """
import asyncio, concurrent.futures, http.server, logging.handlers, multiprocessing, os, signal, sqlite3, ssl, subprocess
import sys, tempfile

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name in {"fcntl", "grp", "pwd", "resource", "termios", "uvloop"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
sys.platform = "win32"
for module, names in {
    os: "fdatasync fork getuid killpg posix_fallocate pread preadv pwrite pwritev register_at_fork setsid sysconf",
    signal: "ITIMER_VIRTUAL SIGALRM SIGHUP SIGKILL SIGVTALRM pthread_kill pthread_sigmask setitimer siginterrupt",
}.items():
    for name in names.split():
        delattr(module, name)
"""


def run(program: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", LIKE_WINDOWS + program, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


CLIENTS = """
from rocketapp import Client, SyncClient

async def main():
    async with Client(sys.argv[1]) as client:
        return await client.publish("orders", "1")

with SyncClient(sys.argv[1]) as client:
    print(client.publish("orders", "2").status, asyncio.run(main()).status)
"""


def test_both_clients_publish(rocketapp_broker: str) -> None:
    done = run(CLIENTS, rocketapp_broker)
    assert (done.stdout.split(), done.returncode) == (["SendStatus.OK"] * 2, 0), done.stderr


APP = """
from rocketapp import RocketApp, SetupError

app = RocketApp("shop", settings={"client": {"name_server": "127.0.0.1:9876"}})

@app.subscribe("orders")
async def settle(order: bytes) -> None: ...

async def main():
    async with app: ...

try:
    asyncio.run(main())
except SetupError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("program", "code"),
    [(APP, 0), ("sys.argv[1:] = ['run', 'app:app']; from rocketapp.__main__ import main; main()", 2)],
    ids=["app", "command"],
)
def test_an_app_and_a_command_name_what_to_use(program: str, code: int) -> None:
    done = run(program)
    assert "run on Linux and macOS: on Windows use WSL 2 or a container" in done.stdout + done.stderr
    assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stderr
