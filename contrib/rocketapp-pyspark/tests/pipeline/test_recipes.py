"""The recipes for readers run as they are shown, over a table like that of a sink."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

PAGE = Path(__file__).parents[2] / "HOW-TO.md"


def test_the_recipes_for_readers_see_every_row_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = {
        "item": ["tea", "cocoa"] * 5,
        "cents": list(range(10)),
        "_rmq_broker": ["broker-a"] * 10,
        "_rmq_queue": [0, 1] * 5,
        "_rmq_offset": [number // 2 for number in range(10)],
    }
    for place in ("lake/orders", "lake/orders/_rmq_staging/batch/out"):
        (tmp_path / place).mkdir(parents=True)
        pq.write_table(pa.table(columns), tmp_path / place / "part.parquet")
    monkeypatch.chdir(tmp_path)
    for block in re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL):
        exec(compile(block, "HOW-TO.md", "exec"), {})
    told = capsys.readouterr().out
    assert told.startswith("45\n5\n")
    assert re.search(r"cocoa\W+25\W+tea\W+20", re.sub(r"[^\x00-\x7f]", " ", told))
