"""A project follows its template: what the template has learnt comes in, and what its owner has changed stays."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from rocketapp.cli.templates import has_git
from tests.templates.projects import copy_of_rocketapp, rocketapp, run

pytestmark = pytest.mark.skipif(not has_git(), reason="projects without git are not updated")


@dataclass
class Owner:
    """Has a project, and a rocketapp that may become newer."""

    project: Path
    checkout: Path
    environment: dict[str, str]

    def git(self, *words: str) -> str:
        return run(self.project, "git", "-c", "user.name=owner", "-c", "user.email=owner@localhost", *words)

    def commits(self) -> None:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message=mine")

    def updates(self, *options: str, code: int = 0) -> str:
        return rocketapp(
            self.project.parent, "new", self.project.name, "--update", *options, code=code, environment=self.environment
        )

    def template_learns(self, old: str, new: str) -> None:
        file = self.checkout / "templates/app/project/settings.toml"
        assert old in file.read_text()
        file.write_text(file.read_text().replace(old, new))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout of rocketapp, and beside it a project that is committed: each test has a copy of both."""
    place = tmp_path_factory.mktemp("made")
    owner = owner_in(place)
    copy_of_rocketapp(owner.checkout)
    owner.project.parent.mkdir()
    rocketapp(owner.project.parent, "new", "shop", "--defaults", environment=owner.environment)
    owner.git("init", "--quiet")
    owner.commits()
    return place


@pytest.fixture
def owner(made: Path, tmp_path: Path) -> Owner:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return owner_in(tmp_path)


def owner_in(place: Path) -> Owner:
    return Owner(place / "home/shop", place / "checkout", {"PYTHONPATH": str(place / "checkout")})


def test_the_templates_news_come_in_and_the_owners_changes_stay(owner: Owner) -> None:
    settings = owner.project / "settings.toml"
    settings.write_text(settings.read_text() + "# mine\n")
    owner.commits()
    owner.template_learns("drain_timeout = 30.0", "drain_timeout = 45.0")
    assert owner.updates().startswith("updated shop:")
    assert "drain_timeout = 45.0" in settings.read_text()
    assert settings.read_text().endswith("# mine\n")
    changed = owner.git("status", "--porcelain").split()[1::2]
    assert changed == [".copier-answers.yml", ".copier-template.bundle", "settings.toml"]
    owner.commits()
    assert "already" in owner.updates()
    # copier itself finds its way as well, where it is called in the project.
    run(owner.project, sys.executable, "-m", "copier", "update", "--defaults", "--quiet")
    assert owner.git("status", "--porcelain") == ""


def test_lines_that_both_have_changed_are_a_conflict(owner: Owner) -> None:
    settings = owner.project / "settings.toml"
    settings.write_text(settings.read_text().replace("drain_timeout = 30.0", "drain_timeout = 5.0"))
    owner.commits()
    owner.template_learns("drain_timeout = 30.0", "drain_timeout = 45.0")
    assert "conflicts in settings.toml" in owner.updates(code=1)
    assert "<<<<<<<" in settings.read_text()


def test_what_is_not_committed_is_refused_and_nothing_changes(owner: Owner) -> None:
    (owner.project / "mine.txt").write_text("mine")
    owner.template_learns("drain_timeout = 30.0", "drain_timeout = 45.0")
    assert "commit or stash" in owner.updates(code=2)
    assert owner.git("status", "--porcelain") == "?? mine.txt\n"
    shutil.rmtree(owner.project / ".git")
    assert "commit the project first" in owner.updates(code=2)
