"""What is not asked for costs nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["rocketapp", "rocketapp.plugin", "rocketapp_lake.plugin"])
def test_an_app_without_a_sink_imports_neither_spark_nor_arrow(module: str) -> None:
    program = f"import sys, {module}; print(sorted({{'pyspark', 'pyarrow', 'pandas', 'numpy'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout.strip() == "[]"
