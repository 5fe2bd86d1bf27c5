"""The extension of Sphinx: completes each page as it is read, and writes llms.txt when all is built."""

from __future__ import annotations

import re
from pathlib import Path

from sphinx.application import Sphinx

from rocketapp_site import drawings, llms
from rocketapp_site.navigation import HOME, with_tree
from rocketapp_site.reference import completed

_FRONT = '<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={0}"><a href="{0}">{0}</a>\n'


class Pages:
    """The pages of one build, with what was made from the code."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def read(self, app: Sphinx, page: str, source: list[str]) -> None:
        text = completed(page, source[0])
        self._texts[page] = drawings.plain(text)
        # On the site a page is known by its title, not by its file.
        titled = re.sub(r"\[[\w./-]+\.md\]\(", "[](", drawings.drawn(text))
        source[0] = with_tree(page, titled, app.env.found_docs)

    def finish(self, app: Sphinx, error: Exception | None) -> None:
        if error is None and app.builder.name == "html":
            folder = Path(app.outdir)
            llms.write(folder, self._texts)
            (folder / "index.html").write_text(_FRONT.format(f"{HOME}.html"), encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    pages = Pages()
    app.connect("source-read", pages.read)
    app.connect("build-finished", pages.finish)
    return {"parallel_read_safe": False, "parallel_write_safe": True}
