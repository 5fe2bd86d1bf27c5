"""The package's files, as the tests about all of them read them."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "rocketapp"
FILES = sorted(PACKAGE.rglob("*.py"))


def shown(path: Path) -> str:
    """The path as a failing test names it."""
    return str(path.relative_to(ROOT))
