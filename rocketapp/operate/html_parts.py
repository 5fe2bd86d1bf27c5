"""HTML parts that the pages of an app and of a broker share. The pages work without a script.

Nothing is loaded from elsewhere, and all foreign text is escaped where it is inserted. The only script fetches the page
again and replaces its body; without the script the browser reloads the page.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any, Final

from rocketapp.asyncapi.style import BASE, file_of, hash_of, policy_of

Columns = Sequence[tuple[str, str, Callable[[Any], str]]]
"""Of a table: the head, the class of the cells, and what makes the HTML of a cell of its row."""
REFRESH: Final = 5
"""Seconds after which a browser asks again."""
LONG_WORD: Final = 24
"""Characters; a longer one may be broken into lines."""
_BREAK = re.compile(r"(?<=[._:@/%-])(?=[^._:@/%-])")
STYLE: Final = f"{BASE}\n{file_of(__package__, 'page.css')}"
SCRIPT: Final = file_of(__package__, "page.js").replace("SECONDS", str(1000 * REFRESH))
_OURS = f"script-src '{hash_of(SCRIPT)}'; connect-src 'self'; form-action 'self'; frame-ancestors 'none'"
CONTENT_POLICY: Final = f"{policy_of(STYLE)}; {_OURS}"
"""A browser loads nothing from elsewhere, runs this script alone, and sends forms nowhere else."""
START: Final = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8">'
    '<meta name="viewport" content="width=device-width, initial-scale=1">'
)
END: Final = "</main></body></html>"


def head(name: str, word: str, about: Sequence[str], *, is_good: bool, asks_again: bool = True) -> Iterator[str]:
    """The beginning of a page. `about`: the HTML of the line beside its title.

    `asks_again`: whether the page reloads itself. A form does not: a reload would lose what was typed.
    """
    yield f"{START}<title>{escape(name)}: {word}</title><style>{STYLE}</style>"
    if asks_again:
        yield f"<script>{SCRIPT}</script>"
        yield f'<noscript><meta http-equiv="refresh" content="{REFRESH}"></noscript>'
    yield "</head><body>"
    yield f'<header><h1>{escape(name)}</h1><span class="pill {"good" if is_good else "bad"}">{word}</span>'
    yield f"<p><small>{' &middot; '.join(about)}</small></p></header><main>"


def small_page(name: str, title: str, html: str) -> str:
    """A page of one card that does not reload itself."""
    top = f"{START}<title>{escape(name)}: {title}</title><style>{STYLE}</style></head>"
    back = f'<header><h1>{escape(name)}</h1><p><a href="/">back to the page</a></p></header>'
    return f'{top}<body>{back}<main><section class="card"><h2>{title}</h2>{html}</section>{END}\n'


def button(call: str, named: str, *, token: str = "", **fields: str) -> str:
    """A button that sends a form. Its id survives a reload. `token`: the secret that the form must send along."""
    given = {**fields, "token": token} if token else fields
    hidden = "".join(f'<input type="hidden" name="{name}" value="{escape(value)}">' for name, value in given.items())
    identity = " ".join(fields.values())
    html = f'<button id="change {escape(identity)}" aria-label="{call} {escape(named)}">{call}</button>'
    return f'<form method="post" action="/{call.lower()}">{hidden}{html}</form>'


def table(
    title: str, columns: Columns, rows: Sequence[Any], empty: str, *, note: str = "", after: Iterable[str] = ()
) -> Iterator[str]:
    """A card with a table, or with the text `empty` when there is no row. `note` and `after` are HTML."""
    said = f" <small>{note}</small>" if note else ""
    yield f'<section class="card"><h2 id="{_anchor(title)}">{title}{said}</h2>'
    if rows:
        # The roles are said because small screens lay the rows out as blocks, and a table without its layout has none.
        cells = (_head_cell(name, kind) for name, kind, _ in columns)
        yield f'<table role="table"><thead><tr role="row">{"".join(cells)}</tr></thead><tbody>'
        for row in rows:
            row_html = "".join(
                f'<td role="cell" data-label="{name}"{_kind(kind)}>{make(row)}</td>' for name, kind, make in columns
            )
            yield f'<tr role="row">{row_html}</tr>'
        yield "</tbody></table>"
    else:
        yield f'<p class="idle">{empty}</p>'
    yield from after
    yield "</section>"


def _head_cell(name: str, kind: str) -> str:
    html = f'<span class="figure">{name}</span>' if kind == "c" else name
    return f'<th scope="col" role="columnheader"{_kind(kind)}>{html}</th>'


def _kind(name: str) -> str:
    return f' class="{name}"' if name else ""


def _anchor(title: str) -> str:
    return title.lower().replace(" ", "-")


def shown(text: str) -> str:
    """The text, escaped for HTML. Long words may break behind dots, dashes and colons."""
    return " ".join(
        "<wbr>".join(map(escape, _BREAK.split(word))) if len(word) > LONG_WORD else escape(word)
        for word in text.split(" ")
    )


def counted(count: int, one: str, more: str = "") -> str:
    return f"{count:,} {one if count == 1 else more or f'{one}s'}"


def time_of(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")


def duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"
