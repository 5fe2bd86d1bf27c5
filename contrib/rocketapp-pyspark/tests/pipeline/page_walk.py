"""The pages of this distribution, and a reader who walks one of them."""

from __future__ import annotations

import asyncio
import itertools
import re
import subprocess
import sys
import types
from pathlib import Path

from sink_shop import by_arrow

from rocketapp_pyspark.formats import TableOptions, register_format
from rocketapp_pyspark.parquet import ParquetStore
from rocketapp_pyspark.session import Spark

FOLDER = Path(__file__).parents[2]
PAGES = sorted(FOLDER.glob("*.md"))


def plain(about: TableOptions, spark: Spark) -> ParquetStore:
    """The Parquet directory without Spark, which starts slowly."""
    return ParquetStore(Path(about.folder, about.table), about.sink, write=by_arrow)


register_format("plain", plain)


def blocks(page: str, language: str) -> dict[tuple[str, int], str]:
    """The fenced blocks of a page, by heading and number below it."""
    found = dict[tuple[str, int], str]()
    heading, number, fence, body = "", 0, None, list[str]()
    for line in (FOLDER / page).read_text().splitlines(keepends=True):
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
        """A Python block, as a module. Its sinks write soon, and without Spark."""
        self.left.discard((heading, number))
        text = self._blocks[heading, number].replace("127.0.0.1:9876", self._name_server)
        if "import sink" in text:
            text = re.sub(r"flush_seconds=2", "flush_seconds=0.3", text)
            text = re.sub(r"schema=(\w+)\)", r"schema=\1, flush_seconds=0.3)", text)
            text = text.replace("schema=", "format='plain', schema=")
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
