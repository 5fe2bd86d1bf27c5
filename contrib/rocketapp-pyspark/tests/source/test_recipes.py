"""The recipes of README.md, run as they stand there, with the name server of the test."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql.utils import is_remote

from tests.peers.clusters import Embedded
from tests.peers.loading import Loader, Sent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(600)
PAGE = Path(__file__).parents[2] / "README.md"


def recipe(title: str, name_server: str) -> None:
    """Run it. Spark's process has a folder of its own, so paths are made absolute."""
    (code,) = re.findall(rf"^\*\*{re.escape(title)}.*?```python\n(.*?)```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    code = code.replace("127.0.0.1:9876", name_server).replace('"lake/', f'"{Path.cwd()}/lake/')
    exec(compile(code, title, "exec", dont_inherit=True), {})


def test_the_recipes_of_the_page(
    spark: SparkSession, embedded: Embedded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    loader = Loader(embedded.broker_address)
    for topic in ("orders", "payments"):
        loader.make_topic(topic, 2)

    def send(topic: str, numbers: range) -> None:
        for queue_id in (0, 1):
            some = [Sent(b"tea", keys=f"k{n}", unique_id=f"ID{n}") for n in numbers if n % 2 == queue_id]
            loader.send(topic, queue_id, some)

    def rows(table: str) -> list[Any]:
        return spark.read.parquet(str(tmp_path / "lake" / table)).collect()

    send("orders", range(20))
    send("orders", range(6))
    send("payments", range(15, 30))
    recipe("Rows in windows of time.", embedded.name_server)
    assert sum(row["count"] for row in spark.table("counts").collect()) == 26
    recipe("Two topics joined by key.", embedded.name_server)
    assert sorted(row.id for row in rows("paid")) == [f"k{n}" for n in range(15, 20)]
    recipe("Messages that a producer sent twice.", embedded.name_server)
    assert sorted(row.msg_id for row in rows("distinct")) == sorted(f"ID{n}" for n in range(20))
    recipe("The past first, then what comes.", embedded.name_server)
    assert len(rows("past")) == 26
    assert len(rows("coming")) == 0
    for _ in range(2):
        recipe("Each batch once in a Delta table.", embedded.name_server)
        assert DeltaTable("lake/orders").to_pyarrow_table().num_rows == 26
    if not is_remote():
        shutil.rmtree("lake/orders.checkpoint")
        with pytest.raises(StreamingQueryException, match="of another checkpoint"):
            recipe("Each batch once in a Delta table.", embedded.name_server)
    loader.close()
