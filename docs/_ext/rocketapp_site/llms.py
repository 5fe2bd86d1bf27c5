"""llms.txt and llms-full.txt, by which language models find their way, and each page as Markdown beside its HTML."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from rocketapp_site.navigation import HOME, below

_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")


def write(folder: Path, texts: Mapping[str, str]) -> None:
    """Write them for the pages of the site, by their names."""
    for page, text in texts.items():
        (folder / f"{page}.md").write_text(text, encoding="utf-8")
    (folder / "llms.txt").write_text(contents(texts), encoding="utf-8")
    everything = "\n\n".join(f"<!-- {page}.md -->\n\n{texts[page].strip()}" for page in order(HOME, texts))
    (folder / "llms-full.txt").write_text(f"{everything}\n", encoding="utf-8")


def contents(texts: Mapping[str, str]) -> str:
    """Title and summary of the site, and a line for each page."""
    lines = [f"# {title_of(texts[HOME])}", "", f"> {summary_of(texts[HOME])}"]
    for caption, pages in below(HOME, texts):
        lines += ["", f"## {caption}", ""]
        for one in (one for top in pages for one in order(top, texts)):
            lines.append(f"- [{title_of(texts[one])}]({one}.md): {summary_of(texts[one])}")
    return "\n".join(lines) + "\n"


def order(page: str, texts: Mapping[str, str]) -> Iterator[str]:
    """The page, and all that stands below it."""
    yield page
    for _, pages in below(page, texts):
        for one in pages:
            yield from order(one, texts)


def title_of(text: str) -> str:
    return text.partition("\n")[0].removeprefix("# ").replace("`", "")


def summary_of(text: str) -> str:
    """The first sentence of a page; its title where it has none."""
    prose = re.sub(r"(?ms)^```.*?^```$", "", text)
    paragraphs = [one.strip() for one in prose.split("\n\n")[1:]]
    first = next((one for one in paragraphs if one and one[0] not in "#|-<"), title_of(text))
    words = " ".join(_LINK.sub(r"\1", first.removeprefix("**Situation.** ")).split())
    return re.split(r"(?<=\.)\s(?=[^a-z])", words)[0].removesuffix(":")
