"""Distributions in contrib/ are built on public names alone, as a stranger's would be."""

from __future__ import annotations

import ast
import tomllib

from tests.architecture.source import PACKAGE

CONTRIB = PACKAGE.parent / "contrib"
PUBLIC = {"rocketapp", "rocketapp.errors", "rocketapp.plugin", "rocketapp.testing", "rocketapp.state.queue_identity"}
"""The last is public for whoever keeps positions in queues elsewhere: a checkpoint, a table."""
CODEC = "rocketapp.wire"
"""The codec is public for readers of the protocol outside of rocketapp, such as a data source of Spark."""


def test_they_import_public_modules_alone() -> None:
    found = []
    for file in sorted(CONTRIB.glob("*/src/**/*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom):
                modules = [str(node.module)]
            elif isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            else:
                continue
            wrong = [name for name in modules if name.split(".")[0] == "rocketapp" and not is_public(name)]
            found += [f"{file.relative_to(CONTRIB)}:{node.lineno}: {name}" for name in wrong]
    assert found == []


def is_public(name: str) -> bool:
    return name in PUBLIC or name == CODEC or name.startswith(f"{CODEC}.")


def test_each_is_a_distribution_with_a_readme_and_tests_that_the_suite_runs() -> None:
    suite = tomllib.loads((CONTRIB.parent / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]["testpaths"]
    for folder in sorted(path.parent for path in CONTRIB.glob("*/pyproject.toml")):
        about = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
        assert about["name"] == folder.name
        assert (folder / about["readme"]).is_file()
        assert f"contrib/{folder.name}/tests" in suite
