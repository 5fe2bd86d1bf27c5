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
from rocketapp.broker.facts import BrokerState, WaitingMessage
from rocketapp.clock import SystemClock
from rocketapp.errors import ProtocolError, RocketAppError
from rocketapp.operate.broker_desk import BrokerDesk, GroupLine, TopicLine
from rocketapp.operate.parts import END, Cell, button, counted, duration, head, shown, small_page, table, time_of
from rocketapp.wire.record import Message, decode_records

Query = Mapping[str, str]
MOST_TOPICS, MOST_GROUPS, MOST_WAITING, MOST_QUEUES, MOST_MESSAGES = 100, 50, 50, 500, 32
"""Rows of one page."""
MOST_SEARCHED = 64
"""Queues of a topic in which messages are looked for by time, and the newest ones."""
LONGEST_BEGINNING, LONGEST_BODY = 80, 65_536
"""Characters of a body in a list, and bytes of one that are shown."""
_LONGEST_POSITION = 19
_log = logging.getLogger("rocketapp.http")
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")


def page(desk: BrokerDesk, query: Query) -> str:
    """The broker, its slaves, the groups that are furthest behind, and the first topics."""
    return _page(
        desk,
        lambda state: _part("The broker", lambda: _broker(desk, state)),
        lambda state: _part("Slaves", lambda: _slaves(state)),
        lambda _: _part("Groups", lambda: _groups(desk, query, most=10)),
        lambda _: _part("Topics", lambda: _topics(desk)),
    )


def topics_page(desk: BrokerDesk, query: Query) -> str:
    """Topics by a part of their names."""
    return _page(desk, lambda _: _part("Topics", lambda: _found_topics(desk, query)), asks_again=False)


def groups_page(desk: BrokerDesk, query: Query) -> str:
    """All groups, the one that is furthest behind first."""
    return _page(desk, lambda _: _part("Groups", lambda: _groups(desk, query)))


def topic_page(desk: BrokerDesk, query: Query) -> str:
    """One topic: its queues, and who consumes it."""
    name = query.get("name", "")
    return _page(desk, lambda _: _part(f"Topic {name}", lambda: _topic(desk, name, query)))


def group_page(desk: BrokerDesk, query: Query) -> str:
    """One group: its members, and how far it is."""
    name = query.get("name", "")
    return _page(
        desk,
        lambda _: _part(f"Group {name}", lambda: _members(desk, name)),
        lambda _: _part("Queues", lambda: _progress(desk, name, query)),
    )


def waiting_page(desk: BrokerDesk, query: Query) -> str:
    """What no consumer sees yet."""
    return _page(
        desk,
        lambda state: _part("Delayed", lambda: _delayed(desk, state)),
        lambda state: _part("Open transactions", lambda: _transactions(desk, state)),
    )


def messages_page(desk: BrokerDesk, query: Query) -> str:
    """The newest messages of a topic, or those with a key, an id, or of a time."""
    return _page(desk, lambda _: _part("Messages", lambda: _messages(desk, query)), asks_again=False)


def message_page(desk: BrokerDesk, query: Query) -> str:
    """One message with its properties and its body."""
    return _page(desk, lambda _: _part("Message", lambda: _message(desk, query.get("at", ""))), asks_again=False)


def dead_letters_page(desk: BrokerDesk, query: Query) -> str:
    """The newest dead letters of a group."""
    group = query.get("group", "")
    return _page(desk, lambda _: _part("Dead letters", lambda: _dead_letters(desk, group)), asks_again=False)


def outcome_page(desk: BrokerDesk, group: str, outcome: str) -> str:
    """What became of a replay."""
    back = _link("/dead-letters", "the dead letters of this group", group=group)
    return small_page(desk.state().name, "Replay of a dead letter", f"<pre>{escape(outcome)}</pre><p>{back}</p>")


def _page(desk: BrokerDesk, *parts: Callable[[BrokerState], Iterable[str]], asks_again: bool = True) -> str:
    state, at = desk.state(), SystemClock().now()
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
    lines = [*head(state.name, word, about, is_good=is_good, asks_again=asks_again)]
    for part in parts:
        lines += part(state)
    return "\n".join([*lines, END]) + "\n"


def _part(title: str, make: Callable[[], Iterable[str]]) -> list[str]:
    """A card, or what kept it from being made."""
    try:
        return list(make())
    except (RocketAppError, TimeoutError) as error:
        problem = str(error) or "the event loop of the broker does not answer"
    except Exception:
        _log.exception("a part of the page failed")
        problem = "this part failed: the log has the traceback"
    return [f'<section class="card"><h2>{shown(title)}</h2><p class="bad">{shown(problem)}</p></section>']


# The broker.


def _broker(desk: BrokerDesk, state: BrokerState) -> Iterator[str]:
    disk, unflushed = desk.disk(), state.log_end - state.durable_end
    on_disk = f"{_bytes(unflushed)} of it not on disk yet" if unflushed else "all of it on disk"
    facts = [
        ("Up", duration(state.seconds)),
        ("Role", escape(state.role.replace("_", " "))),
        ("Stored", f"{state.stored:,}<small>{state.stored_rate:,.1f} a second</small>"),
        ("Served", f"{state.served:,}<small>{state.served_rate:,.1f} a second</small>"),
        ("Log", f"{_bytes(state.log_end - state.log_begin)}<small>{on_disk}; flush {escape(state.flush)}</small>"),
        ("Disk", "in memory" if disk is None else f"{_bytes(disk.free)} free<small>of {_bytes(disk.size)}</small>"),
        ("Delayed", f'<a href="/waiting#delayed">{state.delayed:,}</a>'),
        ("Open transactions", f'<a href="/waiting#open-transactions">{state.open_transactions:,}</a>'),
    ]
    yield '<section class="card"><h2 id="broker">The broker</h2>'
    if state.problem:
        yield f'<ul class="findings"><li class="bad">{shown(state.problem)}<small>it stores nothing any more: see the'
        yield "log, mend the disk, and start it again</small></li></ul>"
    yield '<dl class="facts">'
    yield "".join(f"<div><dt>{name}</dt><dd>{html}</dd></div>" for name, html in facts)
    yield "</dl></section>"


def _slaves(state: BrokerState) -> Iterator[str]:
    if state.slaves is None:
        return
    rows = [
        [
            Cell(f"<b>{shown(one.host)}</b>"),
            Cell(f"{one.confirmed:,}", "n"),
            Cell(f"{state.log_end - one.confirmed:,}", "n"),
        ]
        for one in state.slaves
    ]
    heads = ("Slave", "Its log ends at", "Bytes behind")
    yield from table("Slaves", heads, rows, "No slave copies the log now.", note=f"our log ends at {state.log_end:,}")


# Topics.


def _topics(desk: BrokerDesk) -> Iterator[str]:
    names = _normal(desk, desk.topic_names())
    rows = [_topic_row(one) for one in desk.topics(names[:MOST_TOPICS])]
    link = f"<p>{_link('/topics', 'find a topic')}</p>"
    yield from table("Topics", _TOPIC_HEADS, rows, "No topic.", note=_of_all(len(rows), len(names)), after=[link])


def _found_topics(desk: BrokerDesk, query: Query) -> Iterator[str]:
    find, every = query.get("find", ""), "every" in query
    names = desk.topic_names()
    names = [one for one in (names if every else _normal(desk, names)) if find in one]
    rows = [_topic_row(one) for one in desk.topics(names[_from(query) :][:MOST_TOPICS])]
    asked = {name: value for name, value in query.items() if name in ("find", "every")}
    ticked = " checked" if every else ""
    yield from table("Topics", _TOPIC_HEADS, rows, "No topic has this in its name.", note=f"{len(names):,}")
    yield _pages("/topics", query, len(names), MOST_TOPICS, **asked)
    yield '<section class="card"><h2>Find</h2><form action="/topics" method="get">'
    yield f'<label>In its name <input name="find" value="{escape(find)}"></label>'
    yield f'<label><input type="checkbox" name="every" value="1"{ticked}> those of retries, dead letters and the broker'
    yield "too</label><button>Find</button></form></section>"


_TOPIC_HEADS: Final = ("Topic", "Queues", "Messages", "Last message (UTC)")


def _normal(desk: BrokerDesk, names: Sequence[str]) -> list[str]:
    state = desk.state()
    return [name for name in names if kind_of(name, {state.name, state.cluster}) == "normal"]


def _topic_row(one: TopicLine) -> list[Cell]:
    return [
        Cell(f"<b>{_link('/topic', one.name, name=one.name)}</b>"),
        Cell(f"{one.queues:,}", "n"),
        Cell(f"{one.messages:,}", "n"),
        Cell(_time_ms(one.last_ms), "s"),
    ]


def _topic(desk: BrokerDesk, name: str, query: Query) -> Iterator[str]:
    queues = desk.queues(name)
    rows = [
        [
            Cell(f"queue {one.queue_id}", "s"),
            Cell(f"{one.first_offset:,}", "n"),
            Cell(f"{one.end_offset:,}", "n"),
            Cell(f"{one.end_offset - one.first_offset:,}", "n"),
            Cell(_time_ms(one.last_ms), "s"),
        ]
        for one in queues[_from(query) :][:MOST_QUEUES]
    ]
    readers = ", ".join(_link("/group", group, name=group) for group in desk.readers(name)[:MOST_GROUPS])
    yield from table(
        f"Topic {shown(name)}",
        ("Queue", "First offset", "End offset", "Messages", "Last message (UTC)"),
        rows,
        "There is no such topic.",
        after=[
            _pages("/topic", query, len(queues), MOST_QUEUES, name=name),
            f"<p>Groups: {readers or 'none'}</p>",
            f"<p>{_link('/messages', 'its messages', topic=name)}</p>",
        ],
    )


# Groups.


def _groups(desk: BrokerDesk, query: Query, *, most: int = MOST_GROUPS) -> Iterator[str]:
    groups = desk.groups()
    rows = [_group_row(one) for one in groups[_from(query) if most == MOST_GROUPS else 0 :][:most]]
    all_of_them = f"<p>{_link('/groups', 'all groups')}</p>" if len(groups) > most else ""
    yield from table(
        "Groups",
        ("Group", "Members", "Topics", "Lag", "Dead letters"),
        rows,
        "No group has consumed anything yet.",
        note=f"{len(groups):,}, the one that is furthest behind first",
        after=[_pages("/groups", query, len(groups), most) if most == MOST_GROUPS else all_of_them],
    )


def _group_row(one: GroupLine) -> list[Cell]:
    dead = _link("/dead-letters", f"{one.dead_letters:,}", group=one.name) if one.dead_letters else "0"
    lag = f"{one.whole_lag:,}"
    return [
        Cell(f"<b>{_link('/group', one.name, name=one.name)}</b>"),
        Cell(f"{one.members:,}" if one.members or not one.whole_lag else '<span class="warn">0</span>', "n"),
        Cell(f"{len(one.lag):,}", "n"),
        Cell(lag, "n"),
        Cell(dead, "n"),
    ]


def _members(desk: BrokerDesk, name: str) -> Iterator[str]:
    members, subscriptions = desk.members(name)
    rows = [
        [
            Cell(shown(one.client_id)),
            Cell(shown(one.address), "s"),
            Cell(shown(one.language), "s"),
            Cell(f"{duration(one.silent)} ago", "s"),
        ]
        for one in members
    ]
    takes = ", ".join(f"{_link('/topic', topic, name=topic)} ({shown(tags)})" for topic, tags in subscriptions)
    yield from table(
        f"Group {shown(name)}",
        ("Member", "Address", "Language", "Last heartbeat"),
        rows,
        "Nobody consumes in this group now.",
        after=[f"<p>It subscribes {takes}.</p>"] if takes else [],
    )


def _progress(desk: BrokerDesk, name: str, query: Query) -> Iterator[str]:
    queues = desk.progress(name)
    rows = [
        [
            Cell(f"{_link('/topic', one.topic, name=one.topic)} queue {one.queue_id}"),
            Cell("none" if one.committed_offset is None else f"{one.committed_offset:,}", "n"),
            Cell(f"{one.end_offset:,}", "n"),
            Cell(f"{one.lag:,}", "n"),
        ]
        for one in sorted(queues, key=lambda one: -one.lag)[_from(query) :][:MOST_QUEUES]
    ]
    yield from table(
        "Queues",
        ("Queue", "Committed", "End offset", "Lag"),
        rows,
        "It has neither subscribed nor committed anything.",
        note=f"lag {sum(one.lag for one in queues):,}",
        after=[
            _pages("/group", query, len(queues), MOST_QUEUES, name=name),
            f"<p>{_link('/dead-letters', 'its dead letters', group=name)}</p>",
        ],
    )


# What waits.


def _delayed(desk: BrokerDesk, state: BrokerState) -> Iterator[str]:
    rows = [[Cell(_time_ms(one.at_ms), "s"), *_waiting(one)] for one in desk.delayed(MOST_WAITING)]
    heads = ("Due (UTC)", "Topic", "Id")
    yield from table("Delayed", heads, rows, "No message is delayed.", note=_of_all(len(rows), state.delayed))


def _transactions(desk: BrokerDesk, state: BrokerState) -> Iterator[str]:
    rows = [
        [Cell(_time_ms(one.at_ms), "s"), *_waiting(one), Cell(shown(one.group)), Cell(f"{one.checks}", "n")]
        for one in desk.open_transactions(MOST_WAITING)
    ]
    heads = ("Since (UTC)", "Topic", "Id", "Producer group", "Asked")
    note = _of_all(len(rows), state.open_transactions)
    yield from table("Open transactions", heads, rows, "No transaction is open.", note=note)


def _waiting(one: WaitingMessage) -> list[Cell]:
    topic = _link("/topic", one.topic, name=one.topic) if one.topic else '<span class="bad">not readable</span>'
    keys = f"<small>{shown(one.keys)}</small>" if one.keys else ""
    return [Cell(topic), Cell(f"{shown(one.message_id)}{keys}")]


def _of_all(count: int, whole: int) -> str:
    return f"{whole:,}" if whole <= count else f"the first {count:,} of {whole:,}"


# Messages.


def _messages(desk: BrokerDesk, query: Query) -> Iterator[str]:
    topic, by, value = query.get("topic", ""), query.get("by", "newest"), query.get("value", "")
    title, found = "Messages", list[Message]()
    if topic or by == "id":
        title, found = f"Messages of {shown(topic)}" if topic else title, desk.look(_search(topic, by, value))
    rows = [_message_row(one) for one in found[:MOST_MESSAGES]]
    note = "" if len(found) <= MOST_MESSAGES else f"{MOST_MESSAGES} of {len(found)}"
    heads = ("Stored (UTC)", "Place", "Id", "Key and tag", "Body")
    if topic or value:
        yield from table(title, heads, rows, "No message was found.", note=note)
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


def _message_row(one: Message) -> list[Cell]:
    return [
        Cell(_time_ms(one.stored_ms), "s"),
        Cell(f"queue {one.queue_id} at {one.offset:,}", "s"),
        Cell(_link("/message", one.message_id or one.offset_message_id, at=str(one.physical_offset))),
        Cell(f"{shown(' '.join(one.keys))}<small>{shown(one.tag or '')}</small>"),
        Cell(f"<code>{shown(_beginning(one))}</code>"),
    ]


def _beginning(one: Message) -> str:
    try:
        body = one.body
    except ProtocolError as error:
        return str(error)
    text = body[: 4 * LONGEST_BEGINNING].decode("utf-8", "replace")
    return text if len(text) <= LONGEST_BEGINNING else f"{text[:LONGEST_BEGINNING]}..."


def _message(desk: BrokerDesk, at: str) -> Iterator[str]:
    data = desk.record(int(at)) if at.isascii() and at.isdigit() and len(at) < _LONGEST_POSITION else None
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
    cells = [[Cell(f"<b>{name}</b>"), Cell(html)] for name, html in rows]
    yield from table("Message", ("Name", "Value"), cells, "")
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


def _dead_letters(desk: BrokerDesk, group: str) -> Iterator[str]:
    rows = []
    for one in desk.look(lambda cluster: dead_letters.newest(cluster, group, MOST_MESSAGES)):
        replay = button("Replay", one.place, token=desk.token, group=group, id=one.place)
        about = f"{one.topic or 'topic unknown'}, {counted(one.attempts, 'attempt')}"
        link = _link("/message", one.message.message_id, at=str(one.message.physical_offset))
        rows.append(
            [
                Cell(_time_ms(one.message.stored_ms), "s"),
                Cell(replay),
                Cell(f"{link}<small>{shown(' '.join(one.message.keys))}</small>"),
                Cell(f"<b>{shown(one.reason or 'no reason is stored')}</b><small>{shown(about)}</small>"),
            ]
        )
    heads = ("Stored (UTC)", "", "Id", "Reason")
    note = f"of group {shown(group)}, the newest {MOST_MESSAGES} at most"
    yield from table("Dead letters", heads, rows, "There is none.", note=note)


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
    return time_of(at_ms / 1000) if 0 < at_ms < _LAST_MS else ""


_LAST_MS: Final = 253_402_300_800_000
"""The end of the year 9999, behind which there is no date."""
