"""Types are part of the interface: right uses check, and each marked line of a wrong one fails as marked."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.docs.pages import all_blocks, name_of
from tests.environments.recipes import RECIPES
from tests.typing.checkers import ROOT, Found, mypy, pyright

pytestmark = pytest.mark.timeout(600)  # ten seconds of CPU, which a busy machine gives late

HERE = Path(__file__).parent
GOOD = sorted(HERE.glob("good*.py"))
BAD = sorted(HERE.glob("bad*.py"))
EXAMPLE = sorted((ROOT / "example_app").rglob("*.py"))
CHECKERS: dict[str, Callable[[list[Path]], Found]] = {"mypy": mypy, "pyright": pyright}


@pytest.fixture(scope="module")
def of_pages(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Every snippet of the pages as a file: `tutorial_md_18.py`, where it keeps its line numbers.

    What recipes import is not installed here.
    """
    folder = tmp_path_factory.mktemp("pages")
    files = []
    recipes = {name_of(page) for page in RECIPES}
    for block in all_blocks("python"):
        if block.place.rpartition(":")[0] in recipes:
            continue
        page, _, line = block.place.rpartition(":")
        file = folder / f"{page.replace('/', '_').replace('-', '_').replace('.', '_')}_{line}.py"
        file.write_text("\n" * (int(line) - 1) + block.text)
        files.append(file)
    return files


@pytest.fixture(scope="module")
def found(of_pages: list[Path]) -> dict[str, Found]:
    """What each checker finds in all files, side by side."""
    files = [*GOOD, *BAD, *EXAMPLE, *of_pages]
    with ThreadPoolExecutor(len(CHECKERS)) as both:
        return dict(zip(CHECKERS, both.map(lambda check: check(files), CHECKERS.values()), strict=True))


@pytest.mark.parametrize("checker", CHECKERS)
def test_what_users_write_checks(checker: str, found: dict[str, Found]) -> None:
    assert {file.name: lines for file, lines in found[checker].items() if file in [*GOOD, *EXAMPLE]} == {}


@pytest.mark.parametrize("checker", CHECKERS)
def test_what_the_pages_show_checks(checker: str, of_pages: list[Path], found: dict[str, Found]) -> None:
    assert any(file.name.startswith("docs_tutorial") for file in of_pages)
    assert {file.name: lines for file, lines in found[checker].items() if file in of_pages} == {}


@pytest.mark.parametrize("file", BAD, ids=lambda file: file.name)
def test_what_users_get_wrong_is_found(file: Path, found: dict[str, Found]) -> None:
    lines = file.read_text().splitlines()
    marked = {number: line.rpartition("# E: ")[2] for number, line in enumerate(lines, 1) if "# E: " in line}
    assert found["mypy"].get(file) == marked
    assert sorted(found["pyright"].get(file, {})) == sorted(marked)
