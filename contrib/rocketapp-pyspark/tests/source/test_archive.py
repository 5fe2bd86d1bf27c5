"""The archive for `spark-submit --py-files`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from pyspark_rocketmq.archive import write_archive


def test_everything_that_a_task_imports_of_the_project_is_in_the_archive(tmp_path: Path) -> None:
    archive = tmp_path / "rocketmq.zip"
    write_archive(archive)
    program = (
        f"import sys; sys.path.insert(0, {str(archive)!r})\n"
        "import pyspark_rocketmq.reading, pyspark_rocketmq.streaming, pyspark_rocketmq.writing\n"
        "names = ('rocketapp', 'pyspark_rocketmq')\n"
        "for name, module in sorted(sys.modules.items()):\n"
        "    if name.partition('.')[0] in names: print(module.__file__)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=300)
    places = done.stdout.splitlines()
    assert len(places) > 20
    assert [place for place in places if not place.startswith(str(archive))] == []


def test_equal_sources_make_equal_archives(tmp_path: Path) -> None:
    counts = {write_archive(tmp_path / name) for name in ("one.zip", "two.zip")}
    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "two.zip").read_bytes()
    assert min(counts) > 50


def test_the_archive_is_made_from_the_command_line_and_has_an_ending_that_spark_takes(tmp_path: Path) -> None:
    def made(name: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "pyspark_rocketmq.archive", str(tmp_path / name)]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)

    assert made("rocketmq.zip").stdout.startswith(f"{tmp_path / 'rocketmq.zip'}: ")
    refused = made("rocketmq.whl")
    assert (refused.returncode, (tmp_path / "rocketmq.whl").exists()) == (2, False)
    assert "has to end in .zip" in refused.stderr
