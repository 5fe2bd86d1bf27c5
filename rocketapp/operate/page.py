"""The page of a running app: plain HTML that needs no script and nothing from elsewhere."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Final

from rocketapp.operate.together import together
from rocketapp.operate.verdict import MOST, Finding, Verdict
from rocketapp.operate.view import Now, snapshots_of
from rocketapp.plugin import AppSnapshot, QueueSnapshot

REFRESH: Final = 5
"""Seconds after which a browser asks again."""
MOST_QUEUES: Final = 200
HANDLERS, TOPICS, QUEUES, FAILURES = "Handlers", "Topics", "Queues", "Last failures"
LONG_WORD: Final = 24
"""Characters; a longer one may be broken into lines."""
_BREAK = re.compile(r"(?<=[._:@/%-])(?=[^._:@/%-])")
_STYLE: Final = """
:root { color-scheme: light dark; --line: #8884; --bad: #c62828; --good: #2e7d32; --soft: #8881; }
@media (prefers-color-scheme: dark) { :root { --bad: #ff8a80; --good: #81c784; } }
body { font: 15px/1.45 system-ui, sans-serif; margin: 1.5rem auto; max-width: 76rem; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
nav a { margin-right: 1rem; }
a { color: inherit; }
table { border-collapse: collapse; width: 100%; }
th, td { border-bottom: 1px solid var(--line); padding: .3rem .6rem; text-align: left; vertical-align: top; }
th { font-weight: 600; white-space: nowrap; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.s, td span { white-space: nowrap; }
td:last-child, li { overflow-wrap: anywhere; }
td form { display: inline; }
button { font: inherit; padding: .1rem .6rem; }
.bad { color: var(--bad); } .good { color: var(--good); }
ul.findings { list-style: none; padding: 0; }
ul.findings li { background: var(--soft); border-left: 4px solid var(--line); margin: .4rem 0; padding: .4rem .8rem; }
ul.findings li.bad { border-color: var(--bad); color: inherit; }
small { opacity: .75; }
@media (max-width: 48rem) {
  thead { display: none; }
  table, tbody, tr, td { display: block; }
  tr { border-bottom: 1px solid var(--line); padding: .4rem 0; }
  td, td.n { border: 0; display: flex; gap: 1rem; justify-content: space-between; padding: .1rem 0; text-align: right; }
  td, td.n, td.s { overflow-wrap: anywhere; white-space: normal; }
  td::before { content: attr(data-label); flex: none; opacity: .75; }
  td:first-child { font-weight: 600; text-align: left; }
  td:first-child::before { content: none; }
  td:empty { display: none; }
}
""".strip()
_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
CONTENT_POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{_HASH}'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""A browser loads nothing, runs nothing, and sends forms nowhere else."""


def page(now: Now, verdict: Verdict) -> str:
    """All of it, as text."""
    known = snapshots_of(now.processes)
    app = together(known) if known else AppSnapshot(cache_limit_bytes=0, groups=())
    parts = [
        *_head(now, verdict),
        *_findings(verdict.findings),
        *_handlers(app),
        *_topics(app),
        *_queues(app),
        *_failures(now),
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def _head(now: Now, verdict: Verdict) -> Iterator[str]:
    name = escape(now.app)
    yield '<!doctype html><html lang="en"><head><meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f'<meta http-equiv="refresh" content="{REFRESH}"><title>{name}</title><style>{_STYLE}</style></head><body>'
    word = "ready" if verdict.is_ready else "draining" if now.is_draining else "not ready"
    yield f'<h1>{name}: <span class="{"good" if verdict.is_ready else "bad"}">{word}</span></h1>'
    count = len(now.processes)
    yield f"<p><small>{count} process{'' if count == 1 else 'es'}; asked again every {REFRESH} s;"
    yield '<a href="/docs">what it receives and sends</a></small></p>'
    links = " ".join(f'<a href="#{_anchor(title)}">{title}</a>' for title in (HANDLERS, TOPICS, QUEUES, FAILURES))
    yield f"<nav><small>{links}</small></nav>"


def _findings(findings: Sequence[Finding]) -> Iterator[str]:
    if not findings:
        return
    yield '<h2>What is the matter</h2><ul class="findings">'
    for one in findings[:MOST]:
        for_how_long = f" <small>for {_duration(one.seconds)}</small>" if one.seconds >= 1 else ""
        mend = f"<br><small>{escape(one.mend)}</small>" if one.mend else ""
        yield f"<li{' class=bad' if one.needs_person else ''}>{escape(one.text)}{for_how_long}{mend}</li>"
    yield "</ul>"
    if len(findings) > MOST:
        yield f"<p>and {len(findings) - MOST} more</p>"


def _handlers(app: AppSnapshot) -> Iterator[str]:
    rows = [
        (
            one.name,
            one.topic,
            _group(group.group, group.cluster),
            one.stats.handled,
            one.stats.retried,
            one.stats.dead_lettered,
            one.stats.dropped,
        )
        for group in app.groups
        for one in group.handlers
    ]
    heads = ("Handler", "Topic", "Group", "Done", "Retries", "Dead letters", "Dropped")
    yield from _table(HANDLERS, heads, rows, "No handler is subscribed.")


def _topics(app: AppSnapshot) -> Iterator[str]:
    topics = sorted({(group.group, one.topic) for group in app.groups for one in group.handlers})
    paused = {
        (group.group, one.queue.topic): one.blocked
        for group in app.groups
        for one in group.queues
        if one.blocked.startswith("paused: ")
    }
    heads = ("Topic", "Group", "Pause or resume", "State")
    yield from _head_of_table(TOPICS, heads, [False] * len(heads), "" if topics else "No topic is subscribed.")
    for group, topic in topics:
        hidden = f'<input type="hidden" name="topic" value="{escape(topic)}">'
        hidden += f'<input type="hidden" name="group" value="{escape(group)}">'
        forms = " ".join(
            f'<form method="post" action="/{call.lower()}">{hidden}'
            f'<button aria-label="{call} {escape(topic)} of {escape(group)}">{call}</button></form>'
            for call in ("Pause", "Resume")
        )
        state = escape(paused.get((group, topic), ""))
        cells = map(_cell, heads, (_shown(topic), _shown(group), f"<span>{forms}</span>", state))
        yield f"<tr>{''.join(cells)}</tr>"
    yield "</tbody></table>" if topics else ""


def _queues(app: AppSnapshot) -> Iterator[str]:
    owned = [(group, one) for group in app.groups for one in group.queues]
    # What stands still first, then what has most to do.
    owned.sort(key=lambda pair: (not pair[1].blocked, -(pair[1].lag or 0), pair[1].queue))
    rows = [
        (
            str(one.queue),
            _group(group.group, group.cluster),
            _known(one.lag),
            one.unfinished,
            _known(one.committed),
            "" if one.lease == "none" else one.lease,
            one.blocked or _state(one),
        )
        for group, one in owned[:MOST_QUEUES]
    ]
    heads = ("Queue", "Group", "Lag", "Unfinished", "Committed", "Lock", "Stands still because")
    yield from _table(QUEUES, heads, rows, "No queue is owned.")
    if len(owned) > MOST_QUEUES:
        yield f"<p>and {len(owned) - MOST_QUEUES} more queues with less to do</p>"


def _state(queue: QueueSnapshot) -> str:
    return "" if queue.position is not None else "not consumed yet"


def _failures(now: Now) -> Iterator[str]:
    found = [
        (failure.at, process.name, failure.text)
        for process in now.processes
        if process.view is not None
        for failure in process.view.failures
    ]
    found.sort(reverse=True)
    rows = [(_time(at), name or "", text) for at, name, text in found[:MOST]]
    yield from _table(FAILURES, ("Time (UTC)", "Process", "What went wrong"), rows, "None.")


def _table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str | int]], empty: str) -> Iterator[str]:
    numbers = [isinstance(cell, int) or cell == "?" for cell in rows[0]] if rows else []
    yield from _head_of_table(title, heads, numbers, "" if rows else empty)
    for row in rows:
        yield f"<tr>{''.join(_cells(heads, row, numbers))}</tr>"
    yield "</tbody></table>" if rows else ""


def _head_of_table(title: str, heads: Sequence[str], numbers: Sequence[bool], empty: str) -> Iterator[str]:
    yield f'<h2 id="{_anchor(title)}">{title}</h2>'
    if empty:
        yield f"<p>{empty}</p>"
        return
    cells = (f'<th scope="col"{_kind(is_number)}>{head}</th>' for head, is_number in zip(heads, numbers, strict=True))
    yield f"<table><thead><tr>{''.join(cells)}</tr></thead><tbody>"


def _cells(heads: Iterable[str], cells: Iterable[str | int], numbers: Iterable[bool]) -> Iterator[str]:
    for head, cell, is_number in zip(heads, cells, numbers, strict=True):
        kind = "" if isinstance(cell, int) or is_number or len(cell) > LONG_WORD else " class=s"
        shown = f"{cell:,}" if isinstance(cell, int) else _shown(cell)
        yield _cell(head, shown, kind or _kind(is_number))


def _cell(head: str, html: str, kind: str = "") -> str:
    """On a narrow screen it is a line that begins with its column's name."""
    return f'<td data-label="{head}"{kind}>{html}</td>'


def _kind(is_number: bool) -> str:
    return " class=n" if is_number else ""


def _anchor(title: str) -> str:
    return title.lower().replace(" ", "-")


def _shown(text: str) -> str:
    """As HTML; words that are very long may be broken behind their dots, dashes and colons."""
    return " ".join(
        "<wbr>".join(map(escape, _BREAK.split(word))) if len(word) > LONG_WORD else escape(word)
        for word in text.split(" ")
    )


def _known(value: int | None) -> str | int:
    return "?" if value is None else value


def _group(group: str, cluster: str) -> str:
    return f"{group} on {cluster}" if cluster else group


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"
