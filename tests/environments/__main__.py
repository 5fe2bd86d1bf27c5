"""`python -m tests.environments`: what a release would ship, as a stranger has it.

It builds the sdist of each distribution and the wheel from that, and looks whether each holds all that it should and
nothing else. Each wheel is installed in a clean environment for each Python from 3.11 to 3.14 that is found on PATH;
there its public names are imported, and `rocketapp run` takes a message from an embedded broker and stops. Then each
recipe of docs/how-to gets an environment of its own, with the wheels and its requirements, and its tests run there.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.environments import recipes
from tests.environments.clean import CODE, FOLDERS, StepError, build, differs, environment, run, run_and_send

RECIPES = {folder.name: folder for folder in recipes.RECIPES.values()}
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
PUBLIC = {"rocketapp": ("rocketapp", "rocketapp.plugin", "rocketapp.testing")}
"""Public modules; of the others, their packages."""
IMPORTS = """
import importlib, sys
for name in sys.argv[1:]:
    module = importlib.import_module(name)
    for public in module.__all__:
        getattr(module, public)
"""
APP = """
from rocketapp import Message, RocketApp

app = RocketApp("shop")


@app.subscribe("orders")
async def settle(message: Message) -> None:
    print("settled", message.text(), flush=True)
"""


def interpreters() -> dict[str, str]:
    """Version -> a program that is this Python."""
    found = {f"{sys.version_info[0]}.{sys.version_info[1]}": sys.executable}
    for version in VERSIONS:
        program = shutil.which(f"python{version}")
        if version not in found and program is not None:
            asked = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
            if asked.returncode == 0 and asked.stdout.startswith(f"Python {version}."):  # a shim may lead nowhere
                found[version] = program
    return {version: found[version] for version in VERSIONS if version in found}


def try_distribution(name: str, wheels: Mapping[str, Path], python: str, folder: Path) -> None:
    declared = tomllib.loads((FOLDERS[name] / "pyproject.toml").read_text())["project"]["dependencies"]
    ours = {name, *(one.partition(">=")[0] for one in declared)} & wheels.keys()
    programs = environment(folder / "env", python, *(str(wheels[one]) for one in ours))
    modules = PUBLIC.get(name) or tuple(CODE[name].values())
    run(folder, str(programs / "python"), "-W", "error", "-c", IMPORTS, *modules)
    (folder / "app.py").write_text(APP)
    command = str(programs / "rocketapp")
    run_and_send(folder, [command, "run", "app:app"], [command, "send", "orders", "1"], "settled 1")


def try_recipe(name: str, wheels: Mapping[str, Path], folder: Path) -> str:
    """The closing line of its tests."""
    shutil.copytree(RECIPES[name], folder, ignore=shutil.ignore_patterns("__pycache__"))
    wanted = re.findall(r"^rocketapp[a-z-]*", (folder / "requirements.txt").read_text(), re.MULTILINE)
    ours = [str(wheels[one]) for one in sorted({"rocketapp", *wanted})]
    programs = environment(folder / ".venv", sys.executable, *ours, "-r", str(folder / "requirements.txt"))
    said = run(folder, str(programs / "python"), "-m", "pytest", "-q", "-W", "default", "--rootdir", ".")
    closing = said.strip().splitlines()[-1]
    if not re.match(r"\d+ passed", closing) or "skipped" in closing:
        raise StepError(f"{name}: {closing}")
    return closing


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.environments", description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join([*FOLDERS, *RECIPES])}; default: all")
    wanted = parser.parse_args().names or [*FOLDERS, *RECIPES]
    if strange := set(wanted) - {*FOLDERS, *RECIPES}:
        parser.error(f"no distribution and no recipe is called {', '.join(sorted(strange))}")
    found, failed = interpreters(), 0
    with TemporaryDirectory(prefix="rocketapp-environments-") as temporary:
        home = Path(temporary)
        wheels = build(home / "wheels")
        for name, wheel in wheels.items():
            wrong = differs(name, wheel)
            failed += bool(wrong)
            print(f"{wheel.name}: {wheel.stat().st_size // 1024} KiB", *wrong, sep="\n  ", flush=True)
        for name in wanted:
            for version, python in found.items() if name in FOLDERS else ((None, None),):
                began, folder = time.monotonic(), home / f"{name}-{version}"
                try:
                    if python is None:
                        said = f"recipe {name}: {try_recipe(name, wheels, folder)}"
                    else:
                        try_distribution(name, wheels, python, folder)
                        said = f"{name} on Python {version}: imported, a message was handled, stopped"
                    print(f"{said}; {time.monotonic() - began:.1f} s", flush=True)
                except StepError as error:
                    failed += 1
                    print(f"FAILED {name} {version or ''}: {error}", flush=True)
                finally:
                    shutil.rmtree(folder, ignore_errors=True)
    missing = [version for version in VERSIONS if version not in found]
    print("every Python was found" if not missing else f"not tried, because not on PATH: Python {', '.join(missing)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
