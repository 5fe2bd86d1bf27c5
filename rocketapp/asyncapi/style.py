"""How our pages look, light and dark: what the page of a running app and the page of its document have in common.

One style sheet inside the page, nothing from elsewhere. Colours are of one hue in both schemes and pass 4.5:1 on their
ground.
"""

from __future__ import annotations

import base64
import hashlib
from typing import Final

BASE: Final = """
:root { color-scheme: light dark; --ground: #f5f6f8; --paper: #fff; --ink: #1b2230; --quiet: #5b6472; --line: #e2e5ea;
  --soft: #1b22300d; --accent: #2a5bd7; --good: #17743f; --bad: #b3261e; --warn: #8a5300; }
@media (prefers-color-scheme: dark) {
  :root { --ground: #0e1218; --paper: #161b23; --ink: #e3e7ee; --quiet: #98a2b1; --line: #2a313d;
    --soft: #ffffff12; --accent: #8aabff; --good: #6ad29a; --bad: #ff9a8d; --warn: #f0b65a; } }
* { box-sizing: border-box; }
body { background: var(--ground); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; margin: 0 auto;
  max-width: 84rem; padding: 1.25rem clamp(.75rem, 2vw, 2rem) 3rem; }
h1 { font-size: 1.5rem; letter-spacing: -.01em; margin: 0; } h2 { font-size: 1.05rem; margin: 0 0 .6rem; }
h3 { font-size: 1rem; } h4 { font-size: .95rem; }
a { color: var(--accent); text-underline-offset: .2em; }
a:focus-visible, button:focus-visible, summary:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
small, .quiet { color: var(--quiet); } small { font-size: .85em; }
code, pre { font: .9em/1.45 ui-monospace, monospace; }
code { background: var(--soft); border-radius: 4px; padding: .05em .3em; }
pre { background: var(--soft); border-radius: 8px; overflow-x: auto; padding: .7rem .9rem; }
h2, h3, h4, li, dd, td, th, pre { overflow-wrap: anywhere; }
.card { background: var(--paper); border: 1px solid var(--line); border-radius: 12px; margin: 1rem 0;
  padding: 1rem 1.2rem; }
.pill { border: 1px solid; border-radius: 999px; font-size: .8rem; font-weight: 600; padding: .1rem .65rem; }
.good { color: var(--good); } .bad { color: var(--bad); } .warn { color: var(--warn); }
table { border-collapse: collapse; width: 100%; }
th, td { border-bottom: 1px solid var(--line); padding: .45rem .9rem .45rem 0; text-align: left; vertical-align: top; }
tbody tr:last-child td { border-bottom: 0; } th:last-child, td:last-child { padding-right: 0; }
th { color: var(--quiet); font-size: .8rem; font-weight: 600; white-space: nowrap; }
""".strip()


def policy_of(style: str) -> str:
    """What a browser is told of a page with this style sheet alone: it loads nothing and runs nothing."""
    return f"default-src 'none'; style-src '{hash_of(style)}'; base-uri 'none'"


def hash_of(text: str) -> str:
    """Names one style sheet or script to a browser: it takes no other."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
