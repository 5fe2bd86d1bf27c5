"""`python -m pyspark_rocketmq.archive FILE.zip`: the data source as one file, for `spark-submit --py-files`.

It holds this package, rocketapp-lake and rocketapp, which are pure Python. What they import beside Spark (pyarrow,
numpy, msgspec) is compiled, so it has to be installed where executors run.
"""

from __future__ import annotations

import argparse
import sys
import zipfile
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

PACKAGES = ("pyspark_rocketmq", "rocketapp_lake", "rocketapp")
_WHEN = (1980, 1, 1, 0, 0, 0)
"""The time of every entry: equal sources make equal archives."""


def write_archive(file: Path) -> int:
    """Write the archive; return how many modules it holds."""
    count = 0
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in PACKAGES:
            for place, source in _sources(files(package), package):
                archive.writestr(zipfile.ZipInfo(place, _WHEN), source, zipfile.ZIP_DEFLATED)
                count += 1
    return count


def _sources(folder: Traversable, place: str) -> Iterator[tuple[str, bytes]]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            yield from _sources(entry, f"{place}/{entry.name}")
        elif entry.name.endswith(".py"):
            yield f"{place}/{entry.name}", entry.read_bytes()


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m pyspark_rocketmq.archive", description="Write what executors need, for --py-files."
    )
    parser.add_argument("file", type=Path, help="the archive, with the ending .zip, without which Spark ignores it")
    file = parser.parse_args().file
    if file.suffix != ".zip":
        parser.error(f"{file} has to end in .zip: Spark takes no other ending")
    sys.stdout.write(f"{file}: {write_archive(file)} modules\n")


if __name__ == "__main__":
    main()
