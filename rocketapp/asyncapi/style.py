"""How the page looks, and how its texts become HTML."""

from __future__ import annotations

import re
from html import escape
from textwrap import dedent
from typing import Final

STYLE: Final = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; --quiet: #5b6470; --link: #0b57d0;
  --send: #8a4b00; --receive: #14652f; }
@media (prefers-color-scheme: dark) {
  :root { --quiet: #a8b0ba; --link: #8ab4f8; --send: #ffc078; --receive: #8ce0a5; } }
* { box-sizing: border-box; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 78rem; padding: 1rem; }
a { color: var(--link); } a:focus-visible { outline: 3px solid var(--link); outline-offset: 2px; }
.skip:not(:focus) { clip-path: inset(50%); position: absolute; }
h1 { font-size: 1.7rem; margin: .5rem 0; } h2 { font-size: 1.3rem; } h3 { font-size: 1.1rem; } h4 { font-size: 1rem; }
h2, h3, h4, li, dd, td, th { overflow-wrap: anywhere; }
code, pre { font: .9em/1.45 ui-monospace, monospace; }
code { background: var(--soft); border-radius: 4px; padding: 0 .25em; }
pre { background: var(--soft); border-radius: 6px; overflow-x: auto; padding: .7rem; }
small, .soft { color: var(--quiet); }
section.channel, section[aria-labelledby] { border-top: 1px solid var(--line); margin-top: 2rem; }
article { border-left: 4px solid var(--line); margin: 1rem 0; padding: .1rem 0 .1rem 1rem; }
article > :first-child { margin-top: .2rem; }
article.send { border-color: var(--send); } article.receive { border-color: var(--receive); }
.badge { border: 1px solid; border-radius: 999px; font-size: .8rem; font-weight: 600; padding: .1rem .6rem; }
.send .badge { color: var(--send); } .receive .badge { color: var(--receive); }
dl.facts { margin: .6rem 0; }
dl.facts > div { display: grid; gap: 0 1rem; grid-template-columns: 9rem 1fr; padding: .15rem 0; }
dt { color: var(--quiet); } dd { margin: 0; min-width: 0; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th, td { border-bottom: 1px solid var(--line); padding: .35rem .7rem .35rem 0; text-align: left; vertical-align: top; }
td p { margin: 0; }
nav ul { columns: 16rem; list-style: none; margin: 0; padding: 0; } nav h2 { font-size: 1rem; margin: 1rem 0 .3rem; }
@media (max-width: 36rem) {
  dl.facts > div { grid-template-columns: 1fr; padding: .3rem 0; }
  table, tbody, tr, td { display: block; } thead { clip-path: inset(50%); position: absolute; }
  td { border: 0; padding: .05rem 0; } tr { border-bottom: 1px solid var(--line); padding: .4rem 0; } }
""".strip()

_CODE = re.compile(r"`([^`\n]+)`")
_INDENTED = re.compile(r" {4}")


def prose(text: str, tag: str = "p") -> str:
    """A docstring as HTML: what stands in backticks is code, and a paragraph that is indented keeps its lines."""
    parts = re.split(r"\n\s*\n", text.strip("\n"))
    return "".join(_paragraph(part, tag) for part in parts if part.strip())


def _paragraph(text: str, tag: str) -> str:
    if _INDENTED.match(text):
        return f"<pre>{escape(dedent(text))}</pre>"
    return f"<{tag}>{_with_code(text.strip())}</{tag}>"


def _with_code(text: str) -> str:
    return _CODE.sub(r"<code>\1</code>", escape(text))
