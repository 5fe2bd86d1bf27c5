"""What each of our distributions says of itself, and under which licences the libraries are that it brings along."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.architecture.source import ROOT
from tests.cases import cases

FOLDERS = [ROOT, *sorted(path.parent for path in ROOT.glob("contrib/*/pyproject.toml"))]
NAMES = [about["name"] for about in (tomllib.loads((one / "pyproject.toml").read_text())["project"] for one in FOLDERS)]
WORKSHOP = {"dev", "docs"}
"""Extras that nothing needs at run time."""
IN_AN_EXTRA = {
    # copier asks for it, and rocketapp[new] for copier; it makes projects, and no app imports it.
    "jinja2-ansible-filters": "GPL3",
}
"""Name -> licence of what an extra may bring along all the same. Without extras there is no exception."""
FREE = re.compile(
    r"\b(Apache|MIT|BSD|0BSD|ISC|PSF|Python Software Foundation|MPL|Mozilla|Zlib|CC0|Public Domain)\b", re.I
)
COPYLEFT = re.compile(r"GPL|GNU|SSPL|BUSL|Commons Clause|Proprietary", re.I)


def about(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    return found


@pytest.mark.parametrize("folder", FOLDERS, ids=NAMES)
def test_each_carries_the_licence_and_the_notice_as_files_of_its_own(folder: Path) -> None:
    assert (about(folder)["license"], about(folder)["license-files"]) == ("Apache-2.0", ["LICENSE", "NOTICE"])
    for name in ("LICENSE", "NOTICE"):
        file = folder / name
        assert not file.is_symlink()  # a checkout on another system may have its text in place of a link
        assert file.read_bytes() == (ROOT / name).read_bytes()


def test_all_say_the_same_of_themselves() -> None:
    for key in ("version", "requires-python", "classifiers", "authors"):
        assert [about(folder)[key] for folder in FOLDERS] == [about(ROOT)[key]] * len(FOLDERS)


def licence_of(found: Distribution) -> str:
    """What it says itself: the expression, or else the text in short and the classifiers."""
    if expression := found.metadata.get("License-Expression"):
        return str(expression)
    text = (found.metadata.get("License") or "").strip()
    classifiers = [one for one in found.metadata.get_all("Classifier") or [] if one.startswith("License ::")]
    return "; ".join([*([text] if "\n" not in text and text else []), *classifiers])


def may_be_combined(licence: str) -> bool:
    """Whether software of Apache-2.0 may be shipped with it: every part of it, or one that may be chosen, is free."""
    choices = licence.split(" OR ")
    return any(FREE.search(choice) and not COPYLEFT.search(choice) for choice in choices)


def brought_along(name: str, extras: Iterable[str], seen: set[tuple[str, str]] | None = None) -> Iterator[Distribution]:
    """This distribution and all that it requires here with these extras, at any distance."""
    seen = set() if seen is None else seen
    new = [extra for extra in ("", *extras) if (canonicalize_name(name), extra) not in seen]
    seen.update((canonicalize_name(name), extra) for extra in new)
    if not new:
        return
    found = distribution(name)
    yield found
    for line in found.requires or ():
        wanted = Requirement(line)
        if wanted.marker is None or any(wanted.marker.evaluate({"extra": extra}) for extra in new):
            yield from brought_along(wanted.name, wanted.extras, seen)


def refused(extras: Iterable[str] | None) -> dict[str, str]:
    """Name -> licence of what may not come along; of all extras when None."""
    found = {}
    for name in NAMES:
        of_run_time = set(distribution(name).metadata.get_all("Provides-Extra") or ()) - WORKSHOP
        for one in brought_along(name, of_run_time if extras is None else extras):
            if not may_be_combined(licence := licence_of(one)):
                found[canonicalize_name(one.name)] = licence
    return found


def test_every_library_that_is_always_there_may_be_combined_with_our_licence() -> None:
    assert refused([]) == {}


def test_every_library_of_an_extra_may_be_combined_with_our_licence_but_for_those_that_are_named() -> None:
    assert refused(None) == IN_AN_EXTRA


@cases(
    "licence, may",
    [
        ("MIT", True),
        ("MIT AND PSF-2.0", True),
        ("Apache-2.0 OR GPL-2.0-only", True),
        ("BSD; License :: OSI Approved :: BSD License", True),
        ("MIT AND GPL-3.0-or-later", False),
        ("License :: OSI Approved :: GNU Affero General Public License v3", False),
        ("LGPL-3.0-only", False),
        ("my own", False),
        ("", False),
    ],
)
def test_a_licence_is_told_by_its_name(licence: str, may: bool) -> None:
    assert may_be_combined(licence) is may
