"""The pages of a broker: what it holds, who consumes it, and what waits.

Each card is made by itself: one that fails says so, and the others are there. All names, keys, properties and bodies
are escaped where they are put in.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any, Final
from urllib.parse import urlencode

from rocketapp.admin import dead_letters
from rocketapp.admin.cluster import AdminCluster, AdminError
from rocketapp.admin.messages import find_by_id, find_by_key, limits, newest, stored_since
from rocketapp.admin.topics import kind_of
from rocketapp.broker.broker_state import BrokerState
from rocketapp.clock import SystemClock
from rocketapp.errors import ProtocolError, RocketAppError
from rocketapp.model.numbers import END_MS
from rocketapp.operate.broker_console import BrokerConsole, GroupLine, stored_in
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
from rocketapp.wire.record import Message, decode_records

Query = Mapping[str, str]
MOST_TOPICS, MOST_GROUPS, MOST_WAITING, MOST_QUEUES, MOST_MESSAGES = 100, 50, 50, 500, 32
"""Rows of one page."""
MOST_SEARCHED = 64
"""Queues of a topic in which messages are looked for by time, and the newest ones."""
LONGEST_BEGINNING, LONGEST_BODY = 80, 65_536
"""Characters of a body in a list, and bytes of one that are shown."""
_LONGEST_POSITION = 19
SOME_GROUPS: Final = 10
_log = logging.getLogger("rocketapp.http")
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")


def page(path: str, console: BrokerConsole, query: Query) -> str:
    """The page at one of the paths in `PAGES`."""
    state, at = console.state(), SystemClock().now()
    about = [
        f"{shown(state.address)} at {time_of(at)} UTC",
        '<a href="/">the broker</a>',
        '<a href="/topics">topics</a>',
        '<a href="/groups">groups</a>',
        '<a href="/messages">messages</a>',
        '<a href="/waiting">waiting</a>',
        '<a href="/metrics">metrics</a>',
    ]
    word, is_good = "read-only" if state.problem else "ready", not state.problem
    lines = [*head(state.name, word, about, is_good=is_good, asks_again=path not in _ASKED_ONCE)]
    for title, make in PAGES[path]:
        lines += _part(title, make, console, state, query)
    return "\n".join([*lines, END]) + "\n"


def outcome_page(console: BrokerConsole, group: str, outcome: str) -> str:
    """What became of a replay."""
    back = _link("/dead-letters", "the dead letters of this group", group=group)
    return small_page(console.state().name, "Replay of a dead letter", f"<pre>{escape(outcome)}</pre><p>{back}</p>")


def _part(title: str, make: Part, console: BrokerConsole, state: BrokerState, query: Query) -> list[str]:
    """A card, or what kept it from being made."""
    try:
        return list(make(console, state, query))
    except (RocketAppError, TimeoutError) as error:
        problem = str(error) or "the event loop of the broker does not answer"
    except Exception:
        _log.exception("a part of the page failed")
        problem = "this part failed: the log has the traceback"
    return [f'<section class="card"><h2>{title}</h2><p class="bad">{shown(problem)}</p></section>']


# The broker.


def _broker(console: BrokerConsole, state: BrokerState, _query: Query) -> Iterator[str]:
    disk, unflushed = console.disk(), state.log_end - state.durable_end
    on_disk = f"{_bytes(unflushed)} of it not on disk yet" if unflushed else "all of it on disk"
    role = escape(state.role.replace("_", " "))
    if state.copies_from is not None:
        role += f"<small>copies {shown(state.copies_from or 'nobody now: its log says why')}</small>"
    facts = [
        ("Up", duration(state.seconds)),
        ("Role", role),
        ("Stored", f"{state.stored:,}<small>{state.stored_rate:,.1f} a second</small>"),
        ("Served", f"{state.served:,}<small>{state.served_rate:,.1f} a second</small>"),
        ("Log", f"{_bytes(state.log_end - state.log_begin)}<small>{on_disk}; flush {escape(state.flush)}</small>"),
        ("Disk", "in memory" if disk is None else f"{_bytes(disk[0])} free<small>of {_bytes(disk[1])}</small>"),
        ("Delayed", f'<a href="/waiting#delayed">{state.delayed:,}</a>'),
        ("Open transactions", f'<a href="/waiting#open-transactions">{state.open_transactions:,}</a>'),
    ]
    yield '<section class="card"><h2 id="broker">The broker</h2>'
    if state.problem:
        yield f'<ul class="findings"><li class="bad">{shown(state.problem)}<small>a full disk needs room; after'
        yield " an error of the disk, mend it, and start the broker again</small></li></ul>"
    yield '<dl class="facts">'
    yield "".join(f"<div><dt>{name}</dt><dd>{html}</dd></div>" for name, html in facts)
    yield "</dl></section>"


def _slaves(_console: BrokerConsole, state: BrokerState, _query: Query) -> Iterator[str]:
    if state.slaves is None:
        return
    columns: Columns = (
        ("Slave", "", lambda one: f"<b>{shown(one.host)}</b>"),
        ("Its log ends at", "n", lambda one: f"{one.confirmed:,}"),
        ("Bytes behind", "n", lambda one: f"{state.log_end - one.confirmed:,}"),
    )
    note = f"our log ends at {state.log_end:,}"
    yield from table("Slaves", columns, state.slaves, "No slave copies the log now.", note=note)


# Topics.

_TOPICS: Columns = (
    ("Topic", "", lambda one: f"<b>{_link('/topic', one[0], name=one[0])}</b>"),
    ("Queues", "n", lambda one: f"{len(one[1]):,}"),
    ("Messages", "n", lambda one: f"{stored_in(one[1]):,}"),
    ("Last message (UTC)", "s", lambda one: _time_ms(max((queue.last_ms for queue in one[1]), default=0))),
)
"""Of a topic's name and its queues."""


def _topics(console: BrokerConsole, state: BrokerState, _query: Query) -> Iterator[str]:
    names = _normal(state, console.topic_names())
    topics = console.topics(names[:MOST_TOPICS])
    link = f"<p>{_link('/topics', 'find a topic')}</p>"
    yield from table("Topics", _TOPICS, topics, "No topic.", note=_of_all(len(topics), len(names)), after=[link])


def _found_topics(console: BrokerConsole, state: BrokerState, query: Query) -> Iterator[str]:
    find, every = query.get("find", ""), "every" in query
    names = console.topic_names()
    names = [one for one in (names if every else _normal(state, names)) if find in one]
    topics = console.topics(names[_from(query) :][:MOST_TOPICS])
    asked = {name: value for name, value in query.items() if name in ("find", "every")}
    ticked = " checked" if every else ""
    yield from table("Topics", _TOPICS, topics, "No topic has this in its name.", note=f"{len(names):,}")
    yield _pages("/topics", query, len(names), MOST_TOPICS, **asked)
    yield '<section class="card"><h2>Find</h2><form action="/topics" method="get">'
    yield f'<label>In its name <input name="find" value="{escape(find)}"></label>'
    yield f'<label><input type="checkbox" name="every" value="1"{ticked}> those of retries, dead letters and the broker'
    yield "too</label><button>Find</button></form></section>"


def _normal(state: BrokerState, names: Sequence[str]) -> list[str]:
    return [name for name in names if kind_of(name, {state.name, state.cluster}) == "normal"]


_QUEUES: Columns = (
    ("Queue", "s", lambda one: f"queue {one.queue_id}"),
    ("First offset", "n", lambda one: f"{one.first_offset:,}"),
    ("End offset", "n", lambda one: f"{one.end_offset:,}"),
    ("Messages", "n", lambda one: f"{one.end_offset - one.first_offset:,}"),
    ("Last message (UTC)", "s", lambda one: _time_ms(one.last_ms)),
)


def _topic(console: BrokerConsole, _state: BrokerState, query: Query) -> Iterator[str]:
    name = query.get("name", "")
    queues = console.listed(lambda facts: facts.queues(name))
    groups = console.read(lambda facts: sorted(group for group, topics in facts.groups().items() if name in topics))
    readers = ", ".join(_link("/group", group, name=group) for group in groups[:MOST_GROUPS])
    after = [
        _pages("/topic", query, len(queues), MOST_QUEUES, name=name),
        f"<p>Groups: {readers or 'none'}</p>",
        f"<p>{_link('/messages', 'its messages', topic=name)}</p>",
    ]
    some = queues[_from(query) :][:MOST_QUEUES]
    yield from table(f"Topic {shown(name)}", _QUEUES, some, "There is no such topic.", after=after)


# Groups.

_GROUPS: Columns = (
    ("Group", "", lambda one: f"<b>{_link('/group', one.name, name=one.name)}</b>"),
    ("Members", "n", lambda one: f"{one.members:,}" if one.members or not one.whole_lag else _NO_MEMBER),
    ("Topics", "n", lambda one: f"{len(one.lag):,}"),
    ("Lag", "n", lambda one: f"{one.whole_lag:,}"),
    (
        "Dead letters",
        "n",
        lambda one: _link("/dead-letters", f"{one.dead_letters:,}", group=one.name) if one.dead_letters else "0",
    ),
)
_NO_MEMBER: Final = '<span class="warn">0</span>'


def _furthest_behind(console: BrokerConsole, _state: BrokerState, _query: Query) -> Iterator[str]:
    groups = console.groups()
    link = [f"<p>{_link('/groups', 'all groups')}</p>"] if len(groups) > SOME_GROUPS else []
    return _group_table(len(groups), groups[:SOME_GROUPS], link)


def _groups(console: BrokerConsole, _state: BrokerState, query: Query) -> Iterator[str]:
    groups = console.groups()
    links = [_pages("/groups", query, len(groups), MOST_GROUPS)]
    return _group_table(len(groups), groups[_from(query) :][:MOST_GROUPS], links)


def _group_table(count: int, groups: Sequence[GroupLine], after: Sequence[str]) -> Iterator[str]:
    note = f"{count:,}, the one that is furthest behind first"
    return table("Groups", _GROUPS, groups, "No group has consumed anything yet.", note=note, after=after)


_MEMBERS: Columns = (
    ("Member", "", lambda one: shown(one.client_id)),
    ("Address", "s", lambda one: shown(one.address)),
    ("Language", "s", lambda one: shown(one.language)),
    ("Last heartbeat", "s", lambda one: f"{duration(one.silent)} ago"),
)


def _members(console: BrokerConsole, _state: BrokerState, query: Query) -> Iterator[str]:
    name = query.get("name", "")
    members, subscriptions = console.read(lambda facts: (facts.members(name), facts.subscriptions(name)))
    takes = ", ".join(f"{_link('/topic', topic, name=topic)} ({shown(tags)})" for topic, tags in subscriptions)
    after = [f"<p>It subscribes {takes}.</p>"] if takes else []
    yield from table(f"Group {shown(name)}", _MEMBERS, members, "Nobody consumes in this group now.", after=after)


_PROGRESS: Columns = (
    ("Queue", "", lambda one: f"{_link('/topic', one.topic, name=one.topic)} queue {one.queue_id}"),
    ("Committed", "n", lambda one: "none" if one.committed_offset is None else f"{one.committed_offset:,}"),
    ("End offset", "n", lambda one: f"{one.end_offset:,}"),
    ("Lag", "n", lambda one: f"{one.lag:,}"),
)


def _progress(console: BrokerConsole, _state: BrokerState, query: Query) -> Iterator[str]:
    name = query.get("name", "")
    queues = console.progress(name)
    some = sorted(queues, key=lambda one: -one.lag)[_from(query) :][:MOST_QUEUES]
    note, empty = f"lag {sum(one.lag for one in queues):,}", "It has neither subscribed nor committed anything."
    after = [
        _pages("/group", query, len(queues), MOST_QUEUES, name=name),
        f"<p>{_link('/dead-letters', 'its dead letters', group=name)}</p>",
    ]
    yield from table("Queues", _PROGRESS, some, empty, note=note, after=after)


# What waits.

_WAITING: Columns = (
    ("Topic", "", lambda one: _link("/topic", one.topic, name=one.topic) if one.topic else _NOT_READABLE),
    ("Id", "", lambda one: f"{shown(one.message_id)}{f'<small>{shown(one.keys)}</small>' if one.keys else ''}"),
)
_NOT_READABLE: Final = '<span class="bad">not readable</span>'


def _delayed(console: BrokerConsole, state: BrokerState, _query: Query) -> Iterator[str]:
    found = console.listed(lambda facts: facts.delayed(MOST_WAITING))
    columns: Columns = (("Due (UTC)", "s", lambda one: _time_ms(one.at_ms)), *_WAITING)
    yield from table("Delayed", columns, found, "No message is delayed.", note=_of_all(len(found), state.delayed))


def _transactions(console: BrokerConsole, state: BrokerState, _query: Query) -> Iterator[str]:
    found = console.listed(lambda facts: facts.open_transactions(MOST_WAITING))
    columns: Columns = (
        ("Since (UTC)", "s", lambda one: _time_ms(one.at_ms)),
        *_WAITING,
        ("Producer group", "", lambda one: shown(one.group)),
        ("Asked", "n", lambda one: f"{one.checks}"),
    )
    note = _of_all(len(found), state.open_transactions)
    yield from table("Open transactions", columns, found, "No transaction is open.", note=note)


def _of_all(count: int, whole: int) -> str:
    return f"{whole:,}" if whole <= count else f"the first {count:,} of {whole:,}"


# Messages.

_MESSAGES: Columns = (
    ("Stored (UTC)", "s", lambda one: _time_ms(one.stored_ms)),
    ("Place", "s", lambda one: f"queue {one.queue_id} at {one.offset:,}"),
    ("Id", "", lambda one: _link_to(one, one.message_id or one.offset_message_id)),
    ("Key and tag", "", lambda one: f"{shown(' '.join(one.keys))}<small>{shown(one.tag or '')}</small>"),
    ("Body", "", lambda one: f"<code>{shown(_beginning(one))}</code>"),
)


def _messages(console: BrokerConsole, _state: BrokerState, query: Query) -> Iterator[str]:
    topic, by, value = query.get("topic", ""), query.get("by", "newest"), query.get("value", "")
    title, found = "Messages", list[Message]()
    if topic or by == "id":
        title, found = f"Messages of {shown(topic)}" if topic else title, console.look(_search(topic, by, value))
    note = "" if len(found) <= MOST_MESSAGES else f"{MOST_MESSAGES} of {len(found)}"
    if topic or value:
        yield from table(title, _MESSAGES, found[:MOST_MESSAGES], "No message was found.", note=note)
    chosen = "".join(
        f'<option value="{name}"{" selected" if name == by else ""}>{words}</option>' for name, words in _BY.items()
    )
    yield '<section class="card"><h2>Find</h2><form action="/messages" method="get">'
    yield f'<label>Topic <input name="topic" value="{escape(topic)}"></label>'
    yield f'<label>Messages <select name="by">{chosen}</select></label>'
    yield f'<label>Key, id or time (UTC) <input name="value" value="{escape(value)}"></label><button>Find</button>'
    yield "</form><p class=idle>A key and the id of a producer need the topic; the id of a broker needs none. A time is"
    yield "written as 2026-11-18 11:06:40.</p></section>"


_BY: Final = {"newest": "the newest", "key": "with this key", "id": "with this id", "time": "stored then or later"}


def _search(topic: str, by: str, value: str) -> Callable[[AdminCluster], Coroutine[Any, Any, list[Message]]]:
    async def work(cluster: AdminCluster) -> list[Message]:
        if by == "id":
            return (await find_by_id(cluster, value, topic=topic))[::-1]
        if by == "key":
            return (await find_by_key(cluster, value, topic=topic))[::-1]
        held = await limits(cluster, (await cluster.queues(topic))[:MOST_SEARCHED])
        if by == "time":
            return await stored_since(cluster, held, _timestamp(value), MOST_MESSAGES)
        return await newest(cluster, held, MOST_MESSAGES)

    return work


def _timestamp(text: str) -> float:
    """Raises AdminError for what is not a time."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise AdminError("write a time as 2026-11-18 11:06:40") from None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def _beginning(one: Message) -> str:
    try:
        body = one.body
    except ProtocolError as error:
        return str(error)
    text = body[: 4 * LONGEST_BEGINNING].decode("utf-8", "replace")
    return text if len(text) <= LONGEST_BEGINNING else f"{text[:LONGEST_BEGINNING]}..."


def _message(console: BrokerConsole, _state: BrokerState, query: Query) -> Iterator[str]:
    at = query.get("at", "")
    is_position = at.isascii() and at.isdigit() and len(at) < _LONGEST_POSITION
    data = console.read(lambda facts: facts.record(int(at))) if is_position else None
    if data is None:
        yield from table("Message", (), [], "No message begins there.")
        return
    (one,) = decode_records(data, None)
    rows = [
        ("Topic", _link("/topic", one.topic, name=one.topic)),
        ("Queue and offset", f"{one.queue_id} at {one.offset:,}"),
        ("Stored (UTC)", _time_ms(one.stored_ms)),
        ("Sent (UTC)", _time_ms(one.born_ms)),
        ("Sent from", shown(one.born_host)),
        ("Attempt", f"{one.attempt:,}"),
        ("Id", shown(one.message_id)),
        *((shown(name), shown(value)) for name, value in sorted(one.properties.items())),
    ]
    columns: Columns = (("Name", "", lambda row: f"<b>{row[0]}</b>"), ("Value", "", lambda row: row[1]))
    yield from table("Message", columns, rows, "")
    yield f'<section class="card"><h2 id="body">Body <small>{len(one.body):,} bytes</small></h2>'
    yield f'<pre class="body">{escape(_body(one.body))}</pre></section>'


def _body(body: bytes) -> str:
    """As text where it is text; otherwise its first bytes in hexadecimal."""
    beginning = body[:LONGEST_BODY]
    try:
        # A character may be cut at the end.
        text = beginning.decode("utf-8") if len(beginning) == len(body) else beginning.decode("utf-8", "ignore")
    except UnicodeDecodeError:
        text = beginning[: LONGEST_BODY // 16].hex(" ")
    return text if len(beginning) == len(body) else f"{text}\n... the rest is not shown"


# Dead letters.


def _dead_letters(console: BrokerConsole, state: BrokerState, query: Query) -> Iterator[str]:
    group = query.get("group", "")
    found = console.look(lambda cluster: dead_letters.newest(cluster, group, MOST_MESSAGES))

    def replay(one: dead_letters.StoredDeadLetter) -> str:  # which is a send: its master takes those
        is_slave = state.copies_from is not None
        return "" if is_slave else button("Replay", one.place, token=console.token, group=group, id=one.place)

    columns: Columns = (
        ("Stored (UTC)", "s", lambda one: _time_ms(one.message.stored_ms)),
        ("", "", replay),
        ("Id", "", lambda one: f"{_link_to(one.message)}<small>{shown(' '.join(one.message.keys))}</small>"),
        ("Reason", "", _reason),
    )
    note = f"of group {shown(group)}, the newest {MOST_MESSAGES} at most"
    yield from table("Dead letters", columns, found, "There is none.", note=note)


def _reason(one: dead_letters.StoredDeadLetter) -> str:
    about = f"{one.topic or 'topic unknown'}, {counted(one.attempts, 'attempt')}"
    return f"<b>{shown(one.reason or 'no reason is stored')}</b><small>{shown(about)}</small>"


# Links and figures.


def _from(query: Query) -> int:
    """The first row that is wanted."""
    given = query.get("from", "")[:9]
    return int(given) if given.isascii() and given.isdigit() else 0


def _pages(path: str, query: Query, count: int, most: int, **fields: str) -> str:
    """Links to the rows before and behind those that are shown; nothing where all are."""
    begin = _from(query)
    links = []
    if begin:
        links.append(_link(path, "before", **fields, **{"from": str(max(0, begin - most))}))
    if begin + most < count:
        links.append(_link(path, "more", **fields, **{"from": str(begin + most)}))
    last = min(begin + most, count)
    return f"<p>{begin + 1:,} to {last:,} of {count:,}: {' &middot; '.join(links)}</p>" if links else ""


def _link_to(one: Message, text: str = "") -> str:
    return _link("/message", text or one.message_id, at=str(one.physical_offset))


def _link(path: str, text: str, **fields: str) -> str:
    query = f"?{urlencode(fields, errors='replace')}" if fields else ""
    return f'<a href="{escape(path + query)}">{shown(text)}</a>'


def _bytes(count: float) -> str:
    for unit in _UNITS[:-1]:
        if count < 1024:
            return f"{count:,.0f} {unit}" if unit == "B" else f"{count:,.1f} {unit}"
        count /= 1024
    return f"{count:,.1f} {_UNITS[-1]}"


def _time_ms(at_ms: int) -> str:
    return time_of(at_ms / 1000) if 0 < at_ms < END_MS else ""


Part = Callable[[BrokerConsole, BrokerState, Query], Iterable[str]]
PAGES: Final[Mapping[str, Sequence[tuple[str, Part]]]] = {
    "/": (("The broker", _broker), ("Slaves", _slaves), ("Groups", _furthest_behind), ("Topics", _topics)),
    "/topics": (("Topics", _found_topics),),
    "/topic": (("Topic", _topic),),
    "/groups": (("Groups", _groups),),
    "/group": (("Group", _members), ("Queues", _progress)),
    "/messages": (("Messages", _messages),),
    "/message": (("Message", _message),),
    "/dead-letters": (("Dead letters", _dead_letters),),
    "/waiting": (("Delayed", _delayed), ("Open transactions", _transactions)),
}
"""By its path what a page consists of: titles, and what makes the cards."""
_ASKED_ONCE: Final = frozenset({"/topics", "/messages", "/message", "/dead-letters"})
"""Pages with a form, and those that look up messages."""
