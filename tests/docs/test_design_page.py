"""The page on the design names files and rooms that are there."""

from __future__ import annotations

import re

from tests.docs.pages import ROOT

PAGE = (ROOT / "docs/explanation/design.md").read_text()


def test_every_file_that_the_design_names_is_there() -> None:
    named = set(re.findall(r"`([\w/]+\.py)`", PAGE))
    assert len(named) > 10
    assert [name for name in named if not any((ROOT / "rocketapp").rglob(name))] == []


def test_every_room_is_on_the_map() -> None:
    maps = [drawn.partition("```")[0] for drawn in PAGE.split("```text layers\n")[1:]]
    for drawn, package in zip(maps, (ROOT / "rocketapp", ROOT / "rocketapp/consumer"), strict=True):
        # A line that goes on with the one above begins further to the right.
        lines = [line for line in drawn.splitlines() if not line.startswith("   ")]
        on_map = {word for line in lines for word in re.split(r"\s{2,}", line.strip())[0].split(" | ")}
        rooms = {path.stem for path in package.iterdir() if (path / "__init__.py").exists() or path.suffix == ".py"}
        assert on_map ^ (rooms - {"__init__", "__main__"}) == set()
