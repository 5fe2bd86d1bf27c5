"""The pages of this distribution and of the lake, and a reader who walks one of them."""

from __future__ import annotations

import asyncio
import itertools
import re
import subprocess
import sys
import types
from pathlib import Path

FOLDER = Path(__file__).parents[2]
LAKE = FOLDER.parent / "rocketapp-lake"
PAGES = sorted([*FOLDER.glob("*.md"), *LAKE.glob("*.md")])


def text_of(page: str) -> str:
    """Of a page of this distribution, or of the lake's."""
    return next(folder / page for folder in (LAKE, FOLDER) if (folder / page).exists()).read_text()


def blocks(page: str, language: str) -> dict[tuple[str, int], str]:
    """The fenced blocks of a page, by heading and number below it."""
    found = dict[tuple[str, int], str]()
    heading, number, fence, body = "", 0, None, list[str]()
    for line in text_of(page).splitlines(keepends=True):
        if fence is not None and line.startswith("```"):
            if fence == language:
                found[heading, number] = "".join(body)
                number += 1
            fence = None
        elif fence is not None:
            body.append(line)
        elif line.startswith("```"):
            fence, body = line[3:].strip(), []
        elif line.startswith("#"):
            heading, number = line.lstrip("#").strip(), 0
    return found


def commands(page: str) -> list[tuple[str, str]]:
    """Heading and text of every `$ command`."""
    shown = [(heading, block.splitlines()) for (heading, _), block in blocks(page, "console").items()]
    return [(heading, line.removeprefix("$ ")) for heading, lines in shown for line in lines if line.startswith("$ ")]


class Walk:
    """A reader of one page, in a folder, with a broker."""

    _numbers = itertools.count()

    def __init__(self, page: str, folder: Path, name_server: str) -> None:
        self._page, self._folder, self._name_server = page, folder, name_server
        self._blocks = blocks(page, "python")
        self.left = set(self._blocks)
        """Python blocks that have not run yet."""

    def runs(self, heading: str, number: int = 0) -> types.ModuleType:
        """A Python block, as a module. Its sinks write soon."""
        self.left.discard((heading, number))
        text = self._blocks[heading, number].replace("127.0.0.1:9876", self._name_server)
        if "import sink" in text:
            text = re.sub(r"flush_seconds=2", "flush_seconds=0.3", text)
            text = re.sub(r"schema=(\w+)\)", r"schema=\1, flush_seconds=0.3)", text)
        if "SparkSession" in text:
            # The session of the tests was started in another folder.
            text = text.replace('"lake/', f'"{self._folder}/lake/')
        module = types.ModuleType(f"snippet_{next(self._numbers)}")
        sys.modules[module.__name__] = module
        exec(compile(text, f"{self._page}, {heading}, {number}", "exec", dont_inherit=True), vars(module))
        return module

    async def types(self, heading: str, beginning: str) -> str:
        """The commands below a heading that begin so, all at once; what they print."""
        lines = [line for name, line in commands(self._page) if name == heading and line.startswith(beginning)]
        assert lines
        return "".join(await asyncio.gather(*(asyncio.to_thread(shell, line, self._folder) for line in lines)))


def shell(line: str, folder: Path) -> str:
    command = line.replace("rocketapp", f"{sys.executable} -m rocketapp", 1)
    done = subprocess.run(["sh", "-c", command], cwd=folder, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout
