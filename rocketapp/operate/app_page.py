"""The HTML page of a running app.

Blocked queues come first, then the handlers with their last 15 minutes, then topics and the queues with messages. All
text of messages, handlers and brokers is escaped where it is inserted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import NamedTuple

from rocketapp.operate.app_state import AppState, DeadLetterLine
from rocketapp.operate.health import MOST, Finding, Health
from rocketapp.operate.history import MINUTE, HandlerKey, Step, calls_of, quantile, since
from rocketapp.operate.html_parts import (
    END,
    Columns,
    button,
    counted,
    duration,
    head,
    shown,
    small_page,
    table,
    time_of,
)
from rocketapp.plugin import AppSnapshot, GroupSnapshot, HandlerSnapshot, HandlerStats, QueueSnapshot
from rocketapp.plugins.counts import BOUNDS

MOST_QUEUES, MOST_LETTERS = 200, 20
HANDLERS, TOPICS, QUEUES = "Handlers", "Topics", "Queues"
DEAD_LETTERS, FAILURES = "Last dead letters", "Last failures"
_WIDTH, _HEIGHT = 100.0, 24.0
"""The size of a curve."""
Points = Sequence[tuple[float, float | None]]
"""How far back in the span, from 0 for now to 1, and the value; None where there is none."""


def page(state: AppState, health: Health, at: float) -> str:
    """The whole page. `at`: the time of day, in seconds since 1970."""
    app = state.snapshot
    parts = [
        *_head(state, health, at),
        *_findings(health.findings),
        *_handlers(state, app, at),
        *_topics(app, at),
        *_queues(app, at),
        *_dead_letters(state),
        *_failures(state),
        END,
    ]
    return "\n".join(parts) + "\n"


def _head(state: AppState, health: Health, at: float) -> Iterator[str]:
    word = "ready" if health.is_ready else "draining" if state.is_draining else "not ready"
    about = [
        f"{counted(len(state.processes), 'process', 'processes')} at {time_of(at)} UTC",
        '<a href="/docs">what it receives and sends</a>',
        *(['<a href="/try">try a handler</a>'] if state.may_try else []),
        '<a href="/metrics">metrics</a>',
    ]
    yield from head(state.app, word, about, is_good=health.is_ready)


def _findings(findings: Sequence[Finding]) -> Iterator[str]:
    if not findings:
        return
    yield '<section class="card"><h2>What is the matter</h2><ul class="findings">'
    for one in findings[:MOST]:
        for_how_long = f" <b>for {duration(one.seconds)}</b>" if one.seconds >= 1 else ""
        mend = f"<small>{escape(one.mend)}</small>" if one.mend else ""
        yield f"<li{' class=bad' if one.needs_person else ''}>{escape(one.text)}{for_how_long}{mend}</li>"
    yield "</ul>"
    if len(findings) > MOST:
        yield f"<p>and {len(findings) - MOST} more</p>"
    yield "</section>"


def page_of_outcome(state: AppState, title: str, text: str) -> str:
    """A page that shows the result of a button."""
    return small_page(state.app, title, f"<pre>{escape(text)}</pre>")


def page_of_try(state: AppState, given: Mapping[str, str], outcome: str = "") -> str:
    """The form that sends one message to one handler. It keeps what was typed before and shows its outcome."""
    chosen = given.get("handler", "")
    known = (f"{one.name} {one.topic} {group.group}" for group in state.snapshot.groups for one in group.handlers)
    options = "".join(
        f"<option{' selected' if one == chosen else ''}>{escape(one)}</option>" for one in dict.fromkeys(known)
    )
    told = f"<pre>{escape(outcome)}</pre>" if outcome else ""
    tag, body = escape(given.get("tag", "")), escape(given.get("body", ""))
    about = (
        "Calls a handler of this process with one message, without a broker. What it publishes is shown and not sent;"
    )
    form = (
        f'<label>Handler, topic and group <select name="handler">{options}</select></label>'
        f'<label>Tag <input name="tag" value="{tag}"></label>'
        f'<label>Body <textarea name="body" rows="8" spellcheck="false">\n{body}</textarea></label>'
    )
    html = f'<p>{about} what it writes elsewhere is written.</p>{told}<form method="post" action="/try">{form}'
    return small_page(state.app, "Try a handler", f"{html}<button>Try</button></form>")


# Handlers.


class _Row(NamedTuple):
    """A handler and its steps of the last minutes."""

    group: GroupSnapshot
    one: HandlerSnapshot
    steps: Sequence[Step]
    minutes: int

    @property
    def queues(self) -> list[QueueSnapshot]:
        return [queue for queue in self.group.queues if queue.queue.topic == self.one.topic]

    def points(self, values: Iterable[float | None]) -> Points:
        """The points of a curve: one value for each step."""
        span = MINUTE * self.minutes
        return [((self.steps[-1].at - one.at) / span, value) for one, value in zip(self.steps, values, strict=True)]


def _handlers(state: AppState, app: AppSnapshot, at: float) -> Iterator[str]:
    """Blocked ones are not told apart here: that is said of their queues."""
    minutes, steps_of = state.history.minutes, state.history.steps
    rows = [
        _Row(group, one, steps_of(HandlerKey(group.cluster, group.group, one.topic, one.name)), minutes)
        for group in app.groups
        for one in group.handlers
    ]
    columns: Columns = (
        ("Handler", "", _name_of),
        ("Rate", "c", _rate),
        ("Duration", "c", _durations),
        ("Failures", "c", _failed),
        ("Lag", "c", lambda row: _lag(row, at)),
        ("Done", "n", lambda row: f"{row.one.stats.handled:,}{_failed_so_far(row.one.stats)}"),
    )
    yield from table(HANDLERS, columns, rows, "No handler is subscribed.", note=f"the last {minutes} minutes")


def _name_of(row: _Row) -> str:
    where = f"{row.one.topic}, group {_group(row.group)}"
    return f"<b>{shown(row.one.name)}</b><small>{shown(where)}</small>"


def _failed_so_far(stats: HandlerStats) -> str:
    """Since the start, where there is any."""
    known = (
        ("retried", stats.retried),
        ("dead", stats.dead_lettered),
        ("dropped", stats.dropped),
        ("filtered", stats.filtered),
    )
    return "".join(f"<small>{count:,} {word}</small>" for word, count in known if count)


def _rate(row: _Row) -> str:
    steps = row.steps
    last = since(steps, MINUTE)
    now = sum(one.done for one in last) / sum(one.seconds for one in last) if last else 0.0
    most, done = max((one.rate for one in steps), default=0.0), sum(one.done for one in steps)
    all_in_all = f"{done:,} messages in {row.minutes} minutes"
    title = f"{_rated(now)} a second in the last minute, at most {_rated(most)}; {all_in_all}"
    return _figure(f"{_rated(now)}/s", curves(title, row.points(one.rate for one in steps)))


def _durations(row: _Row) -> str:
    steps = row.steps
    calls = calls_of(since(steps, MINUTE))
    if not any(calls_of(steps)):
        return _figure(
            '<span class="quiet">-</span>', curves(f"no call was measured in {row.minutes} minutes: app.http_durations")
        )
    slow = f"<small>95%: {_took(quantile(calls, 0.95))}</small>" if any(calls) else ""
    now = f"{_took(quantile(calls, 0.5))}{slow}"
    half, most = ([_capped(quantile(one.calls, share)) for one in steps] for share in (0.5, 0.95))
    whole = calls_of(steps)
    words = f"{_took(quantile(whole, 0.5))}, and 95 of 100 within {_took(quantile(whole, 0.95))}"
    title = f"{sum(whole):,} calls in {row.minutes} minutes, half of them within {words}"
    return _figure(now, curves(title, row.points(most), row.points(half)))


def _failed(row: _Row) -> str:
    steps = row.steps
    count = sum(one.failed for one in steps)
    most = max((one.failed for one in steps), default=0)
    title = f"{counted(count, 'failed attempt')} in {row.minutes} minutes, at most {most:,} in 10 s"
    figure = f'<span class="bad">{count:,}</span>' if count else '<span class="quiet">0</span>'
    return _figure(figure, bars(title, row.points(one.failed for one in steps)))


def _lag(row: _Row, at: float) -> str:
    steps = row.steps
    most = max((one.lag or 0 for one in steps), default=0)
    title = f"{_known(_lag_of(row.queues))} messages are not finished, at most {most:,} in {row.minutes} minutes"
    oldest = f"<small>{age}</small>" if (age := _oldest(row.queues, at)) else ""
    spark = curves(title, row.points(one.lag for one in steps), kind="lag")
    return _figure(f"{_known(_lag_of(row.queues))}{oldest}", spark)


def _figure(html: str, spark: str) -> str:
    return f'<span class="figure">{html}</span>{spark}'


def _capped(seconds: float | None) -> float | None:
    return None if seconds is None else min(seconds, BOUNDS[-1])


def _rated(rate: float) -> str:
    return "0" if not rate else f"{rate:.2f}" if rate < 1 else f"{rate:.1f}" if rate < 100 else f"{rate:,.0f}"


def _took(seconds: float | None) -> str:
    """A duration as text, no more exact than the buckets of the histogram."""
    if seconds is None:
        return "-"
    if seconds <= BOUNDS[0]:
        return f"&lt;{1000 * BOUNDS[0]:g} ms"
    if seconds > BOUNDS[-1]:
        return f"&gt;{BOUNDS[-1]:g} s"
    return f"{1000 * seconds:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


# Topics and queues.


class _Topic(NamedTuple):
    """A topic of one group, and why it stands still."""

    group: GroupSnapshot
    name: str
    queues: list[QueueSnapshot]
    why: str


def _topics(app: AppSnapshot, at: float) -> Iterator[str]:
    """Paused and blocked ones first."""
    found: list[_Topic] = []
    for group in app.groups:
        for topic in dict.fromkeys(one.topic for one in group.handlers):
            queues = [one for one in group.queues if one.queue.topic == topic]
            why = group.paused.get(topic) or "; ".join(dict.fromkeys(one.blocked for one in queues if one.blocked))
            found.append(_Topic(group, topic, queues, why))
    found.sort(key=lambda one: (not one.why, -(_lag_of(one.queues) or 0)))
    columns: Columns = (
        ("Topic", "", lambda one: f"<b>{shown(one.name)}</b><small>group {shown(_group(one.group))}</small>"),
        ("Queues", "n", lambda one: f"{len(one.queues):,}"),
        ("Members", "n", lambda one: f"{one.group.members:,}"),
        ("Lag", "n", lambda one: _known(_lag_of(one.queues))),
        ("Oldest", "n", lambda one: _oldest(one.queues, at)),
        ("", "", lambda one: _change(one.name, one.group.group, is_paused=one.name in one.group.paused)),
        ("Stands still because", "", lambda one: f'<span class="warn">{shown(one.why)}</span>' if one.why else ""),
    )
    yield from table(TOPICS, columns, found, "No topic is subscribed.")


def _change(topic: str, group: str, *, is_paused: bool) -> str:
    """The button to pause a topic, or to resume it when it is paused."""
    return button("Resume" if is_paused else "Pause", f"{topic} of {group}", topic=topic, group=group)


def _queues(app: AppSnapshot, at: float) -> Iterator[str]:
    """Queues that stand still first, then those with the most messages. Idle ones are one line per topic."""
    owned = [(_group(group), one) for group in app.groups for one in group.queues]
    busy = [(group, one) for group, one in owned if not _is_idle(one)]
    busy.sort(key=lambda pair: (not pair[1].blocked, -(pair[1].lag or 0), pair[1].queue))
    columns: Columns = (
        ("Queue", "", lambda row: f"<b>{shown(str(row[1].queue))}</b> <span class=quiet>{shown(row[0])}</span>"),
        ("Lag", "n", lambda row: _known(row[1].lag)),
        ("Oldest", "n", lambda row: _oldest([row[1]], at)),
        ("Unfinished", "n", lambda row: f"{row[1].unfinished:,}"),
        ("Committed", "n", lambda row: _known(row[1].committed)),
        ("Lock", "s", lambda row: "" if row[1].lease == "none" else row[1].lease),
        ("Stands still because", "", lambda row: shown(row[1].blocked) or _not_consumed(row[1])),
    )
    after = [f"<p>and {len(busy) - MOST_QUEUES} more queues with less to do</p>"] if len(busy) > MOST_QUEUES else []
    idle: dict[tuple[str, str], list[QueueSnapshot]] = {}
    for group, one in owned:
        if _is_idle(one):
            idle.setdefault((group, one.queue.topic), []).append(one)
    after += [_folded(group, topic, queues) for (group, topic), queues in sorted(idle.items())]
    empty = "No queue has anything to do." if owned else "No queue is owned."
    yield from table(QUEUES, columns, busy[:MOST_QUEUES], empty, after=after)


def _not_consumed(one: QueueSnapshot) -> str:
    return "" if one.position is not None else "not consumed yet"


def _folded(group: str, topic: str, queues: Sequence[QueueSnapshot]) -> str:
    names = ", ".join(shown(f"{one.queue.broker_name}:{one.queue.queue_id}") for one in queues[:MOST_QUEUES])
    more = f" and {len(queues) - MOST_QUEUES} more" if len(queues) > MOST_QUEUES else ""
    head = f"{shown(topic)} of group {shown(group)}: {counted(len(queues), 'idle queue')}"
    identity = escape(f"idle {group} {topic}")
    return f'<details class="idle" id="{identity}"><summary>{head}</summary><p>{names}{more}</p></details>'


def _is_idle(one: QueueSnapshot) -> bool:
    return not one.blocked and not one.unfinished and one.lag == 0


def _lag_of(queues: Sequence[QueueSnapshot]) -> int | None:
    """The lag of all these queues; None when the lag of one is unknown."""
    lags = [one.lag for one in queues]
    return None if any(lag is None for lag in lags) else sum(lag or 0 for lag in lags)


def _oldest(queues: Sequence[QueueSnapshot], at: float) -> str:
    """The age of the oldest unfinished message among those pulled; messages still at the broker are younger."""
    stored = [one.oldest_ms for one in queues if one.oldest_ms is not None]
    return duration(max(0.0, at - min(stored) / 1000)) if stored else ""


# What went wrong.


def _dead_letters(state: AppState) -> Iterator[str]:
    found = [one for process in state.processes if process.view for one in process.view.dead_letters]
    found.sort(key=lambda one: one.at, reverse=True)
    columns: Columns = (
        ("Time (UTC)", "s", lambda one: time_of(one.at)),
        ("", "", lambda one: button("Replay", one.message_id, group=one.group, id=one.message_id)),
        ("Reason", "", _reason),
    )
    yield from table(DEAD_LETTERS, columns, found[:MOST_LETTERS], "None since the start.")


def _reason(one: DeadLetterLine) -> str:
    about = f"{one.handler} at {one.topic}, message {one.message_id}, attempt {one.attempt}"
    return f"<b>{shown(one.reason)}</b><small>{shown(about)}</small>"


def _failures(state: AppState) -> Iterator[str]:
    found = [
        (one.at, process.name, one.text) for process in state.processes if process.view for one in process.view.failures
    ]
    columns: Columns = (
        ("Time (UTC)", "s", lambda row: time_of(row[0])),
        ("Process", "s", lambda row: shown(row[1])),
        ("What went wrong", "", lambda row: shown(row[2])),
    )
    yield from table(FAILURES, columns, sorted(found, reverse=True)[:MOST], "None.")


def _known(value: int | None) -> str:
    return "?" if value is None else f"{value:,}"


def _group(one: GroupSnapshot) -> str:
    return f"{one.group} on {one.cluster}" if one.cluster else one.group


# Small curves of the last minutes, as SVG inside the page: now is on the right, and 0 at the bottom. A curve has no
# axis. Its title says the figures, for those who hover over it and those who hear the page.


def curves(title: str, *series: Points, kind: str = "") -> str:
    """One curve for each series, the first with what is below it filled. All have one scale."""
    most = max((value for points in series for _, value in points if value is not None), default=0.0)
    if not most:
        return _svg(title, "", kind)
    lines = (
        f'<path class="{"over" if index else "under"}" d="{_line(points, most)}"/>'
        for index, points in enumerate(series)
    )
    return _svg(title, f'<path class="area" d="{_area(series[0], most)}"/>{"".join(lines)}', kind)


def bars(title: str, points: Points) -> str:
    """A bar wherever something happened: what is rare is not lost between two points."""
    most = max((value for _, value in points if value is not None), default=0.0)
    found = "".join(f"M{_x(ago)} {_HEIGHT:g}V{_y(value, most)}" for ago, value in points if value)
    return _svg(title, f'<path class="bars" d="{found}"/>' if found else "", "")


def _svg(title: str, paths: str, kind: str) -> str:
    ground = f'<path class="ground" d="M0 {_HEIGHT:g}H{_WIDTH:g}"/>'
    box = f'viewBox="0 -1 {_WIDTH:g} {_HEIGHT + 2:g}" preserveAspectRatio="none"'
    name = f"spark {kind}".strip()
    return f'<svg class="{name}" role="img" {box}><title>{escape(title)}</title>{ground}{paths}</svg>'


def _runs(points: Points) -> list[list[tuple[float, float]]]:
    """The points, split where values are missing."""
    runs: list[list[tuple[float, float]]] = [[]]
    for ago, value in points:
        if value is None:
            runs.append([])
        else:
            runs[-1].append((ago, value))
    return [run for run in runs if run]


def _line(points: Points, most: float) -> str:
    """Broken where a value is missing; a value that stands alone is a dot."""
    return "".join(f"M{_path(run, most)}h.1" for run in _runs(points))


def _area(points: Points, most: float) -> str:
    runs = [run for run in _runs(points) if len(run) > 1]
    return "".join(f"M{_x(run[0][0])} {_HEIGHT:g}L{_path(run, most)}V{_HEIGHT:g}Z" for run in runs)


def _path(run: Sequence[tuple[float, float]], most: float) -> str:
    return "L".join(f"{_x(ago)} {_y(value, most)}" for ago, value in run)


def _x(ago: float) -> str:
    return f"{max(0.0, _WIDTH * (1 - ago)):.1f}"


def _y(value: float, most: float) -> str:
    return f"{_HEIGHT * (1 - value / most):.1f}"
