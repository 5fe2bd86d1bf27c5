"""`python -m tests.templates`: from an empty folder and a wheel to projects whose tests pass and that run, with times.

It builds wheels of rocketapp, rocketapp-lake and rocketapp-pyspark, and fetches what they need, as a new user's pip
would. Then the plugin is installed into the app.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.environments.clean import StepError, build, run, run_and_send
from tests.templates.projects import TEMPLATES

LIMIT = 120.0
"""Seconds from the empty folder to the end of `make run`."""
NAMES = {"app": "shop", "plugin": "rocketapp-audit", "pipeline": "day"}
SAYS = {"app": r"bill of order 1: 7\.00", "plugin": "settle is done with message"}
"""What `make run` tells once the message of the README has come."""


class Walk:
    """A new user with an empty folder, and a watch."""

    def __init__(self, folder: Path, wheel: Path, template: str) -> None:
        self._folder, self._wheel, self.template = folder, wheel, template
        self.project = folder / NAMES[template]
        self.times: dict[str, float] = {}

    def all(self) -> None:
        self._timed("install", self._install)
        self._timed("new", self._new)
        self._timed("test", self.make_test)
        self._timed("run", self._make_pipeline if self.template == "pipeline" else self._make_run)

    def _timed(self, name: str, step: Callable[[], object]) -> None:
        began = time.monotonic()
        step()
        self.times[name] = time.monotonic() - began

    @property
    def total(self) -> float:
        return sum(self.times.values())

    def _install(self) -> None:
        self._folder.mkdir()
        run(self._folder, sys.executable, "-m", "venv", ".venv")
        run(self._folder, ".venv/bin/pip", "install", "--quiet", f"{self._wheel}[new]")

    def _new(self) -> None:
        run(self._folder, ".venv/bin/rocketapp", "new", self.project.name, "--defaults", "--template", self.template)

    def make_test(self) -> str:
        said = run(self.project, "make", "test", f"PYTHON={sys.executable}")
        if not re.search(r"^=+ \d+ passed", said, re.MULTILINE):
            raise StepError(f"make test in {self.project} has run no test:\n{said[-3000:]}")
        return said

    def _make_pipeline(self) -> None:
        said = run(self.project, "make", "run")
        if "table and stream agree in each" not in said:
            raise StepError(f"make run in {self.project}:\n{said[-3000:]}")

    def _make_run(self) -> None:
        """As the README has it."""
        run_and_send(self.project, ["make", "run"], self._send_of_the_readme(), SAYS[self.template])

    def _send_of_the_readme(self) -> Sequence[str]:
        lines = (self.project / "README.md").read_text().splitlines()
        return shlex.split(next(line for line in lines if line.startswith("$ .venv/bin/rocketapp send"))[2:])


def join(app: Walk, plugin: Walk) -> str:
    """Install the plugin into the app: it is found behind rocketapp's own, and both still pass their tests."""
    run(app.project, ".venv/bin/pip", "install", "--quiet", str(plugin.project))
    shown = json.loads(run(app.project, ".venv/bin/rocketapp", "plugins", "shop.app:app", "--json"))["plugins"]
    (found,) = [one for one in shown if one["name"] == "audit"]
    ours = [one["order"] for one in shown if one["distribution"] == "rocketapp" and one["order"] is not None]
    if found["order"] is None or found["order"] <= max(ours):
        raise StepError(f"the plugin is out of order: {found}")
    for walk in (app, plugin):
        walk.make_test()
    return f"{found['distribution']} {found['version']} is plugin {found['order']}, behind {len(ours)} of rocketapp"


def seconds_of_cpu() -> float:
    """Of everything that was started here and has ended: it does not grow with what else the machine does."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.templates", description=__doc__.partition("\n")[0])
    parser.add_argument("templates", nargs="*", metavar="TEMPLATE", help=f"of {', '.join(TEMPLATES)}; default: all")
    wanted = parser.parse_args().templates or TEMPLATES
    if strange := set(wanted) - set(TEMPLATES):
        parser.error(f"no template is called {', '.join(sorted(strange))}")
    with TemporaryDirectory(prefix="rocketapp-templates-") as temporary:
        folder = Path(temporary)
        wheel = build(folder / "wheels", ["rocketapp", "rocketapp-lake", "rocketapp-pyspark"])["rocketapp"]
        print(f"{wheel.name}: {wheel.stat().st_size // 1024} KiB")
        walks = {template: Walk(folder / template, wheel, template) for template in wanted}
        try:
            for walk in walks.values():
                before = seconds_of_cpu()
                walk.all()
                steps = ", ".join(f"{name} {seconds:.1f}" for name, seconds in walk.times.items())
                print(
                    f"{walk.template}: {walk.total:.1f} s ({steps}), {seconds_of_cpu() - before:.1f} s of CPU; "
                    f"the limit is {LIMIT:g} s",
                    flush=True,
                )
            if {"app", "plugin"} <= walks.keys():
                print(join(walks["app"], walks["plugin"]))
        except StepError as error:
            print(error, file=sys.stderr)
            return 1
    return 0 if all(walk.total <= LIMIT for walk in walks.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
