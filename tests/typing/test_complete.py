"""Every public name has a type that all checkers read alike: `pyright --verifytypes` finds nothing to say."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.typing.checkers import ROOT, incomplete

pytestmark = pytest.mark.timeout(600)  # ten seconds of CPU, which a busy machine gives late

PACKAGES = [
    ("rocketapp", ROOT),
    ("rocketapp_redis", ROOT / "contrib" / "rocketapp-redis" / "src"),
    ("rocketapp_sqlalchemy", ROOT / "contrib" / "rocketapp-sqlalchemy" / "src"),
]


@pytest.mark.parametrize(("package", "folder"), PACKAGES, ids=[name for name, _ in PACKAGES])
def test_public_types_are_complete(package: str, folder: Path) -> None:
    assert incomplete(package, folder) == []
