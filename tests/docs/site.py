"""The built site, as its reader has it: files, links and what they load."""

from __future__ import annotations

import subprocess
import sys
from functools import cached_property
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tests.docs.pages import ROOT

_LOADS = {
    "script": "src",
    "img": "src",
    "link": "href",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "audio": "src",
}
"""Elements whose address a browser fetches by itself."""


class Page(HTMLParser):
    """The addresses and anchors of one HTML file."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag in _LOADS and _LOADS[tag] in given and given.get("rel") not in ("index", "search", "next", "prev"):
            self.loads.append(given[_LOADS[tag]])


class Site:
    """A built site in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @cached_property
    def pages(self) -> dict[Path, Page]:
        return {file: Page(file) for file in sorted(self.folder.rglob("*.html"))}

    def text(self, name: str) -> str:
        return (self.folder / name).read_text(encoding="utf-8")

    def lost_links(self) -> list[str]:
        """Links within the site that lead to no file, or to no place in it."""
        return [
            f"{file.relative_to(self.folder)}: {link}"
            for file, page in self.pages.items()
            for link in page.links
            if not self._leads_somewhere(file, link)
        ]

    def _leads_somewhere(self, file: Path, link: str) -> bool:
        parts = urlsplit(link)
        if parts.scheme:
            return True
        target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
        if not target.is_file():
            return False
        known = self.pages.get(target)
        return not parts.fragment or known is None or unquote(parts.fragment) in known.anchors


def build(folder: Path) -> tuple[Site, str]:
    """Build the site as `make docs` does, and what the build said. Warnings are errors."""
    words = ["-b", "html", "-W", "--keep-going", "-q", "-E", "-d", str(folder / "doctrees"), "-c", "docs", "."]
    command = [sys.executable, "-m", "sphinx", *words, str(folder / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return Site((folder / "site").resolve()), f"{done.stdout}{done.stderr}" + ("" if done.returncode == 0 else "failed")
