import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient


def test_the_cells_run_and_show_the_lag(rocketapp_broker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCKETAPP_CLIENT__NAME_SERVER", rocketapp_broker)
    cells = re.split(r"^# %%\n", Path(__file__).with_name("lag.py").read_text(), flags=re.MULTILINE)[1:]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    NotebookClient(notebook, timeout=120, kernel_name="python3").execute()

    outputs = [output for cell in notebook.cells for output in cell.outputs]
    shown = [output["data"] for output in outputs if "data" in output]
    assert [one["text/plain"] for one in shown if "image/png" not in one][-2:] == ["400", "True"]
    assert sum("image/png" in one for one in shown) == 1
    assert [output for output in outputs if output.output_type == "error"] == []
