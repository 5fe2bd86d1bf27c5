"""The page of a running app: HTML that is complete without a script, and nothing from elsewhere.

What blocks is on top, then what handlers did in the last 15 minutes, then topics and those queues that have something
to do. All text that comes from messages, handlers and brokers is escaped where it is put in. The only script asks for
the page again and puts the new body in the place of the old one; without it the browser loads the page anew.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Final, NamedTuple

from rocketapp.asyncapi.style import BASE, hash_of, policy_of
from rocketapp.operate.history import MINUTE, HandlerKey, Step, calls_of, quantile, since
from rocketapp.operate.sparklines import Points, bars, curves
from rocketapp.operate.verdict import MOST, Finding, Verdict
from rocketapp.operate.view import Now
from rocketapp.plugin import AppSnapshot, GroupSnapshot, HandlerSnapshot, HandlerStats, QueueSnapshot
from rocketapp.plugins.counts import BOUNDS

REFRESH: Final = 5
"""Seconds after which a browser asks again."""
MOST_QUEUES, MOST_LETTERS = 200, 20
HANDLERS, TOPICS, QUEUES = "Handlers", "Topics", "Queues"
DEAD_LETTERS, FAILURES = "Last dead letters", "Last failures"
LONG_WORD: Final = 24
"""Characters; a longer one may be broken into lines."""
_BREAK = re.compile(r"(?<=[._:@/%-])(?=[^._:@/%-])")
STYLE: Final = (
    BASE
    + """
header { align-items: baseline; display: flex; flex-wrap: wrap; gap: .3rem 1rem; }
header p { flex: 1; margin: 0; min-width: 16rem; text-align: right; }
td.n, th.n { font-variant-numeric: tabular-nums; text-align: right; white-space: nowrap; }
td.c { white-space: nowrap; }
.figure { display: inline-block; font-variant-numeric: tabular-nums; min-width: 6rem; padding-right: .8rem;
  text-align: right; vertical-align: middle; }
.figure small { display: block; line-height: 1.2; }
.spark { height: 1.7rem; overflow: visible; vertical-align: middle; width: 6.5rem; }
.spark path { fill: none; stroke: var(--accent); stroke-width: 1.5; vector-effect: non-scaling-stroke; }
.spark .ground { stroke: var(--line); stroke-width: 1; }
.spark .area { fill: var(--accent); opacity: .14; stroke: none; }
.spark .over { opacity: .55; } .spark .bars { stroke: var(--bad); stroke-width: 2; }
.spark.lag path { stroke: var(--warn); } .spark.lag .area { fill: var(--warn); stroke: none; }
.spark.lag .ground { stroke: var(--line); }
td b { font-weight: 600; } td > small { display: block; }
td.s { white-space: nowrap; } td:last-child { overflow-wrap: anywhere; }
td form { display: inline; }
label { color: var(--quiet); display: block; font-size: .9rem; margin: .6rem 0; }
input, select, textarea { background: var(--ground); border: 1px solid var(--line); border-radius: 7px; display: block;
  color: var(--ink); font: .95rem/1.45 ui-monospace, monospace; margin-top: .2rem; max-width: 100%;
  padding: .35rem .6rem; }
textarea { width: 100%; }
button { background: var(--paper); border: 1px solid var(--line); border-radius: 7px; color: inherit; cursor: pointer;
  font: inherit; font-size: .9rem; padding: .15rem .8rem; }
button:hover { border-color: var(--accent); color: var(--accent); }
ul.findings { list-style: none; margin: 0; padding: 0; }
ul.findings li { border-left: 3px solid var(--warn); margin: .6rem 0 0; padding: 0 0 0 .8rem; }
ul.findings li.bad { border-color: var(--bad); color: inherit; }
ul.findings small { display: block; }
details summary { cursor: pointer; } details p { margin: .3rem 0 .3rem 1rem; }
.idle { color: var(--quiet); margin: .5rem 0 0; }
body[data-state]::before { background: var(--warn); border-radius: 8px; color: var(--paper); display: block;
  margin-bottom: .8rem; padding: .3rem .8rem; }
body[data-state=held]::before { content: "Not asked again while text is selected."; }
body[data-state=lost]::before { content: "The app does not answer: what is shown is old."; }
@media (max-width: 60rem) {
  header p { text-align: left; } thead { display: none; } table, tbody { display: block; }
  tr { border-bottom: 1px solid var(--line); display: flex; flex-wrap: wrap; gap: .1rem 1.1rem; padding: .6rem 0; }
  tr:last-child { border: 0; }
  td, td.c { border: 0; flex: 1 0 100%; min-width: 0; padding: 0; text-align: left; white-space: normal; width: auto; }
  td.n, td.s { display: flex; flex: none; gap: .4rem; }
  td.n::before, td.s::before, td.c::before { color: var(--quiet); content: attr(data-label); font-size: .85rem; }
  td.c { align-items: center; display: flex; } td.c::before { flex: 1; }
  td:empty { display: none; }
}
"""
).strip()
SCRIPT: Final = """
"use strict";
const say = (state) => { if (state) document.body.dataset.state = state; else delete document.body.dataset.state; };
const again = async () => {
  if (!document.hidden) try {
    if (!getSelection().isCollapsed) say("held");
    else {
      const answer = await fetch("/", { cache: "no-store" });
      if (!answer.ok) throw new Error(answer.status);
      const next = new DOMParser().parseFromString(await answer.text(), "text/html");
      const focused = document.activeElement && document.activeElement.id;
      for (const one of document.querySelectorAll("details[open]")) {
        const same = next.getElementById(one.id);
        if (same) same.open = true;
      }
      document.title = next.title;
      document.body.replaceChildren(...next.body.childNodes);
      say("");
      if (focused) { const same = document.getElementById(focused); if (same) same.focus(); }
    }
  } catch { say("lost"); }
  setTimeout(again, SECONDS);
};
setTimeout(again, SECONDS);
""".strip().replace("SECONDS", str(1000 * REFRESH))
_OURS = f"script-src '{hash_of(SCRIPT)}'; connect-src 'self'; form-action 'self'; frame-ancestors 'none'"
CONTENT_POLICY: Final = f"{policy_of(STYLE)}; {_OURS}"
"""A browser loads nothing from elsewhere, runs this script alone, and sends forms nowhere else."""


_START: Final = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8">'
    '<meta name="viewport" content="width=device-width, initial-scale=1">'
)


class _Cell(NamedTuple):
    """Of a table; the HTML is escaped already."""

    html: str
    kind: str = ""


def page(now: Now, verdict: Verdict, at: float) -> str:
    """All of it, as text. `at`: the time of day, in seconds since 1970."""
    app = now.snapshot
    parts = [
        *_head(now, verdict, at),
        *_findings(verdict.findings),
        *_handlers(now, app, at),
        *_topics(app, at),
        *_queues(app, at),
        *_dead_letters(now),
        *_failures(now),
        "</main></body></html>",
    ]
    return "\n".join(parts) + "\n"


def _head(now: Now, verdict: Verdict, at: float) -> Iterator[str]:
    name = escape(now.app)
    word = "ready" if verdict.is_ready else "draining" if now.is_draining else "not ready"
    yield f"{_START}<title>{name}: {word}</title><style>{STYLE}</style><script>{SCRIPT}</script>"
    yield f'<noscript><meta http-equiv="refresh" content="{REFRESH}"></noscript></head><body>'
    yield f'<header><h1>{name}</h1><span class="pill {"good" if verdict.is_ready else "bad"}">{word}</span>'
    yield f"<p><small>{_counted(len(now.processes), 'process', 'processes')} at {_time(at)} UTC &middot;"
    yield '<a href="/docs">what it receives and sends</a> &middot;'
    yield '<a href="/try">try a handler</a> &middot;' if now.may_try else ""
    yield '<a href="/metrics">metrics</a></small></p></header><main>'


def _findings(findings: Sequence[Finding]) -> Iterator[str]:
    if not findings:
        return
    yield '<section class="card"><h2>What is the matter</h2><ul class="findings">'
    for one in findings[:MOST]:
        for_how_long = f" <b>for {_duration(one.seconds)}</b>" if one.seconds >= 1 else ""
        mend = f"<small>{escape(one.mend)}</small>" if one.mend else ""
        yield f"<li{' class=bad' if one.needs_person else ''}>{escape(one.text)}{for_how_long}{mend}</li>"
    yield "</ul>"
    if len(findings) > MOST:
        yield f"<p>and {len(findings) - MOST} more</p>"
    yield "</section>"


def page_of_outcome(now: Now, title: str, text: str) -> str:
    """What became of a button that does not lead back at once."""
    return _small_page(now, title, f"<pre>{escape(text)}</pre>")


def page_of_try(now: Now, given: Mapping[str, str], outcome: str = "") -> str:
    """A form for one message to one handler, filled with what was given before, and the outcome of that."""
    chosen = given.get("handler", "")
    known = {f"{one.name} {one.topic}": one for group in now.snapshot.groups for one in group.handlers}
    options = "".join(
        f'<option value="{escape(value)}"{" selected" if value == chosen else ""}>'
        f"{escape(one.name)} at {escape(one.topic)}</option>"
        for value, one in known.items()
    )
    told = f"<pre>{escape(outcome)}</pre>" if outcome else ""
    tag, body = escape(given.get("tag", "")), escape(given.get("body", ""))
    about = (
        "Calls a handler of this process with one message, without a broker. What it publishes is shown and not sent;"
    )
    form = (
        f'<label>Handler <select name="handler">{options}</select></label>'
        f'<label>Tag <input name="tag" value="{tag}"></label>'
        f'<label>Body <textarea name="body" rows="8" spellcheck="false">\n{body}</textarea></label>'
    )
    html = f'<p>{about} what it writes elsewhere is written.</p>{told}<form method="post" action="/try">{form}'
    return _small_page(now, "Try a handler", f"{html}<button>Try</button></form>")


def _small_page(now: Now, title: str, html: str) -> str:
    head = f"{_START}<title>{escape(now.app)}: {title}</title><style>{STYLE}</style></head>"
    back = f'<header><h1>{escape(now.app)}</h1><p><a href="/">back to the page</a></p></header>'
    return f'{head}<body>{back}<main><section class="card"><h2>{title}</h2>{html}</section></main></body></html>\n'


# Handlers.


def _handlers(now: Now, app: AppSnapshot, at: float) -> Iterator[str]:
    """Blocked ones are not told apart here: that is said of their queues."""
    minutes = now.history.minutes
    rows = [
        [
            _Cell(_name_of(group, one)),
            *_figures(
                _Past(now.history.steps(HandlerKey(group.cluster, group.group, one.topic, one.name)), minutes),
                [queue for queue in group.queues if queue.queue.topic == one.topic],
                at,
            ),
            _Cell(f"{one.stats.handled:,}{_failed_so_far(one.stats)}", "n"),
        ]
        for group in app.groups
        for one in group.handlers
    ]
    heads = ("Handler", "Rate", "Duration", "Failures", "Lag", "Done")
    yield from _table(HANDLERS, heads, rows, "No handler is subscribed.", note=f"the last {minutes} minutes")


def _name_of(group: GroupSnapshot, one: HandlerSnapshot) -> str:
    where = f"{one.topic}, group {_group(group.group, group.cluster)}"
    return f"<b>{_shown(one.name)}</b><small>{_shown(where)}</small>"


class _Past(NamedTuple):
    """What a handler did in the last minutes."""

    steps: Sequence[Step]
    minutes: int

    def points(self, values: Iterable[float | None]) -> Points:
        """One value for each step."""
        span = MINUTE * self.minutes
        return [((self.steps[-1].at - one.at) / span, value) for one, value in zip(self.steps, values, strict=True)]


def _figures(past: _Past, queues: Sequence[QueueSnapshot], at: float) -> list[_Cell]:
    return [_rate(past), _durations(past), _failed(past), _lag(past, queues, at)]


def _failed_so_far(stats: HandlerStats) -> str:
    """Since the start, where there is any."""
    known = (
        ("retried", stats.retried),
        ("dead", stats.dead_lettered),
        ("dropped", stats.dropped),
        ("filtered", stats.filtered),
    )
    return "".join(f"<small>{count:,} {word}</small>" for word, count in known if count)


def _rate(past: _Past) -> _Cell:
    steps = past.steps
    last = since(steps, MINUTE)
    now = sum(one.done for one in last) / sum(one.seconds for one in last) if last else 0.0
    most, done = max((one.rate for one in steps), default=0.0), sum(one.done for one in steps)
    all_in_all = f"{done:,} messages in {past.minutes} minutes"
    title = f"{_rated(now)} a second in the last minute, at most {_rated(most)}; {all_in_all}"
    return _figure(f"{_rated(now)}/s", curves(title, past.points(one.rate for one in steps)))


def _durations(past: _Past) -> _Cell:
    steps = past.steps
    calls = calls_of(since(steps, MINUTE))
    if not any(calls_of(steps)):
        return _figure(
            '<span class="quiet">-</span>',
            curves(f"no call was measured in {past.minutes} minutes: app.http_durations"),
        )
    slow = f"<small>95%: {_took(quantile(calls, 0.95))}</small>" if any(calls) else ""
    now = f"{_took(quantile(calls, 0.5))}{slow}"
    half, most = ([_capped(quantile(one.calls, share)) for one in steps] for share in (0.5, 0.95))
    whole = calls_of(steps)
    words = f"{_took(quantile(whole, 0.5))}, and 95 of 100 within {_took(quantile(whole, 0.95))}"
    title = f"{sum(whole):,} calls in {past.minutes} minutes, half of them within {words}"
    return _figure(now, curves(title, past.points(most), past.points(half)))


def _failed(past: _Past) -> _Cell:
    steps = past.steps
    count = sum(one.failed for one in steps)
    most = max((one.failed for one in steps), default=0)
    title = f"{_counted(count, 'failed attempt')} in {past.minutes} minutes, at most {most:,} in 10 s"
    figure = f'<span class="bad">{count:,}</span>' if count else '<span class="quiet">0</span>'
    return _figure(figure, bars(title, past.points(one.failed for one in steps)))


def _lag(past: _Past, queues: Sequence[QueueSnapshot], at: float) -> _Cell:
    steps = past.steps
    most = max((one.lag or 0 for one in steps), default=0)
    title = f"{_known(_lag_of(queues))} messages are not finished, at most {most:,} in {past.minutes} minutes"
    oldest = f"<small>{age}</small>" if (age := _oldest(queues, at)) else ""
    spark = curves(title, past.points(one.lag for one in steps), kind="lag")
    return _figure(f"{_known(_lag_of(queues))}{oldest}", spark)


def _figure(html: str, spark: str) -> _Cell:
    return _Cell(f'<span class="figure">{html}</span>{spark}', "c")


def _capped(seconds: float | None) -> float | None:
    return None if seconds is None else min(seconds, BOUNDS[-1])


def _rated(rate: float) -> str:
    return "0" if not rate else f"{rate:.2f}" if rate < 1 else f"{rate:.1f}" if rate < 100 else f"{rate:,.0f}"


def _took(seconds: float | None) -> str:
    """As exact as the bounds of the histogram allow."""
    if seconds is None:
        return "-"
    if seconds <= BOUNDS[0]:
        return f"&lt;{1000 * BOUNDS[0]:g} ms"
    if seconds > BOUNDS[-1]:
        return f"&gt;{BOUNDS[-1]:g} s"
    return f"{1000 * seconds:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


# Topics and queues.


def _topics(app: AppSnapshot, at: float) -> Iterator[str]:
    """Paused and blocked ones first."""
    found: list[tuple[bool, int, list[_Cell]]] = []
    for group in app.groups:
        for topic in dict.fromkeys(one.topic for one in group.handlers):
            queues = [one for one in group.queues if one.queue.topic == topic]
            blocked = [one for one in queues if one.blocked]
            state = group.paused.get(topic) or "; ".join(dict.fromkeys(one.blocked for one in blocked))
            cells = [
                _Cell(f"<b>{_shown(topic)}</b><small>group {_shown(_group(group.group, group.cluster))}</small>"),
                _Cell(f"{len(queues):,}", "n"),
                _Cell(f"{group.members:,}", "n"),
                _Cell(_known(_lag_of(queues)), "n"),
                _Cell(_oldest(queues, at), "n"),
                _Cell(_change(topic, group.group, is_paused=topic in group.paused)),
                _Cell(f'<span class="warn">{_shown(state)}</span>' if state else ""),
            ]
            found.append((not state, -(_lag_of(queues) or 0), cells))
    found.sort(key=lambda one: one[:2])
    heads = ("Topic", "Queues", "Members", "Lag", "Oldest", "", "Stands still because")
    yield from _table(TOPICS, heads, [cells for _, _, cells in found], "No topic is subscribed.")


def _change(topic: str, group: str, *, is_paused: bool) -> str:
    """The button that fits: what is paused can be resumed, and what is not can be paused."""
    return _form("Resume" if is_paused else "Pause", f"{topic} of {group}", topic=topic, group=group)


def _form(call: str, named: str, **fields: str) -> str:
    """A button. It keeps its id when the page is asked for again."""
    hidden = "".join(f'<input type="hidden" name="{name}" value="{escape(value)}">' for name, value in fields.items())
    identity = " ".join(fields.values())
    button = f'<button id="change {escape(identity)}" aria-label="{call} {escape(named)}">{call}</button>'
    return f'<form method="post" action="/{call.lower()}">{hidden}{button}</form>'


def _queues(app: AppSnapshot, at: float) -> Iterator[str]:
    """What stands still first, then what has most to do. Those without anything to do are a line for their topic."""
    owned = [(group, one) for group in app.groups for one in group.queues]
    busy = [(group, one) for group, one in owned if not _is_idle(one)]
    busy.sort(key=lambda pair: (not pair[1].blocked, -(pair[1].lag or 0), pair[1].queue))
    rows = [
        [
            _Cell(
                f"<b>{_shown(str(one.queue))}</b> <span class=quiet>{_shown(_group(group.group, group.cluster))}</span>"
            ),
            _Cell(_known(one.lag), "n"),
            _Cell(_oldest([one], at), "n"),
            _Cell(f"{one.unfinished:,}", "n"),
            _Cell(_known(one.committed), "n"),
            _Cell("" if one.lease == "none" else one.lease, "s"),
            _Cell(_shown(one.blocked) or ("" if one.position is not None else "not consumed yet")),
        ]
        for group, one in busy[:MOST_QUEUES]
    ]
    heads = ("Queue", "Lag", "Oldest", "Unfinished", "Committed", "Lock", "Stands still because")
    after = [f"<p>and {len(busy) - MOST_QUEUES} more queues with less to do</p>"] if len(busy) > MOST_QUEUES else []
    idle: dict[tuple[str, str], list[QueueSnapshot]] = {}
    for group, one in owned:
        if _is_idle(one):
            idle.setdefault((_group(group.group, group.cluster), one.queue.topic), []).append(one)
    after += [_folded(group, topic, queues) for (group, topic), queues in sorted(idle.items())]
    empty = "No queue has anything to do." if owned else "No queue is owned."
    yield from _table(QUEUES, heads, rows, empty, after=after)


def _folded(group: str, topic: str, queues: Sequence[QueueSnapshot]) -> str:
    names = ", ".join(_shown(f"{one.queue.broker_name}:{one.queue.queue_id}") for one in queues[:MOST_QUEUES])
    more = f" and {len(queues) - MOST_QUEUES} more" if len(queues) > MOST_QUEUES else ""
    head = f"{_shown(topic)} of group {_shown(group)}: {_counted(len(queues), 'idle queue')}"
    identity = escape(f"idle {group} {topic}")
    return f'<details class="idle" id="{identity}"><summary>{head}</summary><p>{names}{more}</p></details>'


def _is_idle(one: QueueSnapshot) -> bool:
    return not one.blocked and not one.unfinished and one.lag == 0


def _lag_of(queues: Sequence[QueueSnapshot]) -> int | None:
    """Over all of them; None while one of them is not known."""
    lags = [one.lag for one in queues]
    return None if any(lag is None for lag in lags) else sum(lag or 0 for lag in lags)


def _oldest(queues: Sequence[QueueSnapshot], at: float) -> str:
    """The age of the oldest message that is not finished. What waits at the broker is younger."""
    stored = [one.oldest_ms for one in queues if one.oldest_ms is not None]
    return _duration(max(0.0, at - min(stored) / 1000)) if stored else ""


# What went wrong.


def _dead_letters(now: Now) -> Iterator[str]:
    found = [one for process in now.processes if process.view for one in process.view.dead_letters]
    found.sort(key=lambda one: one.at, reverse=True)
    rows = []
    for one in found[:MOST_LETTERS]:
        about = f"{one.handler} at {one.topic}, message {one.message_id}, attempt {one.attempt}"
        button = _form("Replay", one.message_id, group=one.group, id=one.message_id)
        text = f"<b>{_shown(one.reason)}</b><small>{_shown(about)}</small>"
        rows.append([_Cell(_time(one.at), "s"), _Cell(button), _Cell(text)])
    yield from _table(DEAD_LETTERS, ("Time (UTC)", "", "Reason"), rows, "None since the start.")


def _failures(now: Now) -> Iterator[str]:
    found = [
        (failure.at, process.name, failure.text)
        for process in now.processes
        if process.view is not None
        for failure in process.view.failures
    ]
    found.sort(reverse=True)
    rows = [[_Cell(_time(at), "s"), _Cell(_shown(name), "s"), _Cell(_shown(text))] for at, name, text in found[:MOST]]
    yield from _table(FAILURES, ("Time (UTC)", "Process", "What went wrong"), rows, "None.")


# Tables and text.


def _table(
    title: str,
    heads: Sequence[str],
    rows: Sequence[Sequence[_Cell]],
    empty: str,
    *,
    note: str = "",
    after: Iterable[str] = (),
) -> Iterator[str]:
    said = f" <small>{note}</small>" if note else ""
    yield f'<section class="card"><h2 id="{_anchor(title)}">{title}{said}</h2>'
    if rows:
        # The roles are said because small screens lay the rows out as blocks, and a table without its layout has none.
        cells = (_head_cell(head, cell.kind) for head, cell in zip(heads, rows[0], strict=True))
        yield f'<table role="table"><thead><tr role="row">{"".join(cells)}</tr></thead><tbody>'
        for row in rows:
            shown = "".join(
                f'<td role="cell" data-label="{head}"{_kind(cell.kind)}>{cell.html}</td>'
                for head, cell in zip(heads, row, strict=True)
            )
            yield f'<tr role="row">{shown}</tr>'
        yield "</tbody></table>"
    else:
        yield f'<p class="idle">{empty}</p>'
    yield from after
    yield "</section>"


def _head_cell(head: str, kind: str) -> str:
    shown = f'<span class="figure">{head}</span>' if kind == "c" else head
    return f'<th scope="col" role="columnheader"{_kind(kind)}>{shown}</th>'


def _kind(name: str) -> str:
    return f' class="{name}"' if name else ""


def _anchor(title: str) -> str:
    return title.lower().replace(" ", "-")


def _shown(text: str) -> str:
    """As HTML; words that are very long may be broken behind their dots, dashes and colons."""
    return " ".join(
        "<wbr>".join(map(escape, _BREAK.split(word))) if len(word) > LONG_WORD else escape(word)
        for word in text.split(" ")
    )


def _known(value: int | None) -> str:
    return "?" if value is None else f"{value:,}"


def _counted(count: int, one: str, more: str = "") -> str:
    return f"{count:,} {one if count == 1 else more or f'{one}s'}"


def _group(group: str, cluster: str) -> str:
    return f"{group} on {cluster}" if cluster else group


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"
