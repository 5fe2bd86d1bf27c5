"""The members of a group as processes that come and go, and the one history that all of them write."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import NamedTuple

from tests.faults.checker import Event, Kill
from tests.faults.hand_overs import Change, Drop, Move
from tests.peers.running_app import RunningApp
from tests.peers.waiting import wait_until

SOURCE = """
from rocketapp import Context, Pull

app = RocketApp("{group}", plugins=[Moves()]{settings})

@app.on_startup
async def joined() -> None:
    mark("joined")

def seconds(number: int) -> float:
    return {seconds}

async def work(message: Message) -> None:
    brief("start", message)
    await asyncio.sleep(seconds(int(message.body.split(b" ", 1)[0])))
    brief("done", message)

{handler}
"""
"""The app of every storm: `seconds` is an expression of `number`, how long this message takes."""

TAKE = """
@app.subscribe("{topic}", start="first"{options})
async def take(message: Message) -> None:
    await work(message)
"""


def filled(
    topic: str, group: str, *, options: str = "", seconds: str = "0.0", settings: str = "", handler: str = TAKE
) -> str:
    """The source of the app: `options` of the handler's subscription, `settings` of the app."""
    source = SOURCE.replace("{handler}", handler)
    values = {"topic": topic, "group": group, "options": options, "seconds": seconds, "settings": settings}
    for name, value in values.items():
        source = source.replace(f"{{{name}}}", value)
    return source


class History(NamedTuple):
    """What the members wrote."""

    events: list[Event]
    moves: list[Move]
    drops: list[Drop]
    joined: dict[int, float]
    """By process id: when it had reached the cluster."""


def read(log: Path, topic: str) -> History:
    """The whole history; half a line at the end is a write that a kill cut off."""
    history = History([], [], [], {})
    for line in log.read_bytes().split(b"\n")[:-1]:
        facts = json.loads(line)
        kind, at, pid = facts["event"], facts["at"], facts["pid"]
        if kind in ("start", "done"):
            history.events.append(Event(**facts))
        elif kind in ("assigned", "released"):
            if facts["topic"] == topic:
                history.moves.append(Move(at, kind, pid, facts["queue"]))
        elif kind == "disconnected":
            history.drops.append(Drop(at, pid))
        elif kind == "joined":
            history.joined[pid] = at
    return history


class Members:
    """A number of places for members of one group. A place is running, leaving (SIGTERM was sent) or free."""

    def __init__(self, directory: Path, source: str, name_servers: list[str], *arguments: str) -> None:
        self._directory, self._source, self._arguments = directory, source, ("--connect-timeout", "60", *arguments)
        self._name_servers = name_servers
        self._apps: dict[int, RunningApp] = {}
        self._leaving: set[int] = set()
        self.log = directory / "history.jsonl"
        self.changes: list[Change] = []
        self.kills: list[Kill] = []
        self.ends: dict[int, float] = {}
        """By process id: when it was seen to have ended."""
        self.places: dict[int, int] = {}
        """By process id: its place."""
        self.unclean: list[tuple[float, str]] = []
        """Members that left and could not commit or unlock everything (exit code 1): when, and what they logged."""
        directory.mkdir(parents=True, exist_ok=True)

    def running(self) -> list[int]:
        """Places whose member runs and was not told to leave."""
        self._reap()
        return [place for place, app in self._apps.items() if app.process.poll() is None and place not in self._leaving]

    def oldest(self) -> int:
        """The running member that was started first: it surely owns queues."""
        return min(self.running(), key=lambda place: self._apps[place].started_at)

    def free(self) -> list[int]:
        self._reap()
        return [
            place
            for place in range(len(self._name_servers))
            if place not in self._apps or self._apps[place].process.poll() is not None
        ]

    def join(self, place: int) -> None:
        """Start a member here. The change counts from the moment when it has reached the cluster: see `all_changes`."""
        app = self._apps.get(place)
        if app is None:
            home = self._directory / f"member{place}"
            self._apps[place] = RunningApp(
                home, self._source, self._name_servers[place], *self._arguments, log=self.log
            )
        else:
            app.start()
        self.places[self.pid(place)] = place

    def pid(self, place: int) -> int:
        return self._apps[place].process.pid

    def leave(self, place: int) -> None:
        """SIGTERM, and nothing is awaited."""
        app = self._apps[place]
        self.changes.append(Change(time.monotonic(), "leave", app.process.pid))
        app.process.send_signal(signal.SIGTERM)
        self._leaving.add(place)

    def kill(self, place: int) -> None:
        app = self._apps[place]
        kill = Kill(time.monotonic(), app.process.pid)
        app.kill()
        self.kills.append(kill)
        self.ends[kill.pid] = kill.at
        self.changes.append(Change(kill.at, "kill", kill.pid))

    def _reap(self) -> None:
        for place in list(self._leaving):
            app = self._apps[place]
            if app.process.poll() is not None:
                self._leaving.discard(place)
                self.ends[app.process.pid] = time.monotonic()
                assert not app.complaints(), app.describe()
                # A process that was told to end before it had begun to listen to signals ends by the signal.
                if app.process.returncode not in (0, -signal.SIGTERM):
                    self.unclean.append((self.ends[app.process.pid], app.describe()))

    def wait_until_gone(self, place: int, *, within: float) -> None:
        """Wait for the end of a member that leaves."""
        wait_until(
            lambda: place not in self.running() and place in self.free(),
            within=within,
            what=lambda: f"member {place} ends\n{self._apps[place].describe()}",
        )

    def wait_until_joined(self, place: int, *, within: float) -> None:
        needle = f'"pid": {self.pid(place)}'.encode()
        wait_until(
            lambda: any(b'"joined"' in line and needle in line for line in self.log.read_bytes().split(b"\n")),
            within=within,
            what=lambda: f"member {place} reaches the cluster\n{self._apps[place].describe()}",
            every=0.1,
        )

    def wait_for_joins(self, count: int, *, within: float) -> None:
        """Wait until this number of processes, all places and restarts together, have reached the cluster."""
        wait_until(
            lambda: self.log.read_bytes().count(b'"joined"') >= count,
            within=within,
            what=lambda: f"{count} processes reach the cluster\n{self.describe()}",
            every=0.1,
        )

    def all_changes(self, history: History) -> list[Change]:
        """What was done to the members, in order; a join counts from when the member had reached the cluster."""
        joins = [Change(at, "join", pid) for pid, at in history.joined.items()]
        return sorted([*self.changes, *joins])

    def logs(self) -> str:
        """Everything that the members have logged."""
        return "".join(app.stderr for app in self._apps.values())

    def describe(self) -> str:
        return "\n".join(f"--- member {place}: {app.stderr[-1500:]}" for place, app in self._apps.items())

    def stop(self) -> None:
        """Let all of them leave, one after the other."""
        for place in self.running():
            self.leave(place)
            self.wait_until_gone(place, within=40)
        for place in list(self._leaving):
            self.wait_until_gone(place, within=40)

    def discard(self) -> None:
        for app in self._apps.values():
            app.discard()


def pause(seconds: float) -> None:
    """Let time pass: the damage has its own pace, whatever the members do."""
    end = time.monotonic() + seconds
    wait_until(lambda: time.monotonic() >= end, within=seconds + 5, what="time passes", every=0.05)
