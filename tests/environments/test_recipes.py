"""What a page of a recipe shows is what is tested in the recipe's own environment, file by file, and nothing less."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.environments.clean import CODE, FOLDERS
from tests.environments.recipes import RECIPES

_FILE = re.compile(r"^`([\w./-]+)`\n\n```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(("page", "folder"), RECIPES.items(), ids=[page.stem for page in RECIPES])
def test_the_page_shows_the_files_of_the_recipe(page: Path, folder: Path) -> None:
    shown = {name: text for name, _, text in _FILE.findall(page.read_text())}
    files = [file for file in folder.rglob("*") if file.is_file() and "__pycache__" not in file.parts]
    tested = {str(file.relative_to(folder)): file.read_text() for file in files if file.stat().st_size}
    assert shown == tested
    assert {"requirements.txt"} < set(tested)


@pytest.mark.parametrize("page", RECIPES, ids=[page.stem for page in RECIPES])
def test_every_block_of_the_page_is_a_file_or_a_session(page: Path) -> None:
    languages = re.findall(r"^```(\w+)$", page.read_text(), re.MULTILINE)
    assert len([one for one in languages if one != "console"]) == len(_FILE.findall(page.read_text()))


def test_every_distribution_is_built_and_looked_into() -> None:
    assert set(CODE) == set(FOLDERS)
