"""The broker's tables on disk: `config/*.json`, which Apache RocketMQ reads.

Each save keeps the previous content as `.bak`, the first save its own, which is used when the file cannot be read. A
small change of a large table is a line in `.changes`, until the next save.

Rule: after a crash there is one whole content, the old or the new one. A `.bak` is never overwritten
by unreadable content. If neither can be read the start fails, because with empty tables every group
would begin anew.

Rule: each line begins with the version of the content that it changes. What belongs to another one is never applied,
so that nobody has to remove a line in time, and Apache RocketMQ may have written the file meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Any

import msgspec

from rocketapp.broker.store.files import OWN_STATE, Files, directory_of, read_whole, replace_whole, write_new
from rocketapp.errors import ConfigError, ProtocolError
from rocketapp.model.event import Observe, TableRestored, unobserved
from rocketapp.wire import lenient_json

TOPICS, GROUPS = "config/topics.json", "config/subscriptionGroup.json"
CONSUMER_OFFSETS, DELAY_OFFSETS = "config/consumerOffset.json", "config/delayOffset.json"
REQUEST_MODES, POP_ORDER = "config/messageRequestMode.json", "config/consumerOrderInfo.json"
QUEUE_LOCKS = OWN_STATE
"""Apache RocketMQ reads only the files that it knows, and leaves this one alone."""


def encode(value: Mapping[str, Any]) -> bytes:
    """A table as Apache RocketMQ reads it, and people do. Raises ValueError when it cannot be written."""
    return msgspec.json.format(msgspec.json.encode(value), indent=1)


def decode(data: bytes) -> dict[str, Any]:
    """A table that Apache RocketMQ or this broker wrote. Raises ProtocolError when it is damaged or incomplete."""
    value = lenient_json.loads(data)
    if not isinstance(value, dict):
        raise ProtocolError(f"a table was expected, found {type(value).__name__}")
    return value


def _change(content: dict[str, Any], change: Mapping[str, Mapping[str, Any]]) -> None:
    for name, members in change.items():
        held = content.setdefault(name, {})
        held.update(members)
        for gone in [key for key, member in members.items() if member is None]:
            del held[gone]


class DataVersion(msgspec.Struct, rename="camel"):
    """A counter of changes and the time of the last one, in milliseconds since 1970."""

    counter: int = 0
    state_version: int = 0
    timestamp: int = 0

    def changed(self, now: float) -> None:
        """Count one more change."""
        self.counter += 1
        self.timestamp = int(now * 1000)

    def to_json(self) -> dict[str, int]:
        return dict(msgspec.to_builtins(self))

    @classmethod
    def from_json(cls, saved: object, fallback: DataVersion) -> DataVersion:
        """The saved version; the fallback when the file has none."""
        try:
            return msgspec.convert(saved, cls, strict=False)
        except msgspec.ValidationError:
            return fallback


class ConfigFile:
    """One of these files, its `.bak`, and the `.changes` since it was written."""

    def __init__(self, files: Files, path: str, observe: Observe = unobserved) -> None:
        self._files, self._path, self._observe, self._is_first = files, path, observe, False
        self._changes = f"{path}.changes"
        self.place: str = files.place(path)
        """The name of the file in errors."""
        self.is_readable: bool = False
        """Whether the content of the main file may become the `.bak`."""
        self.changes_end: int | None = None
        """Where the next change is appended; None when the main file has to be written before, 0 when it has all."""
        self._version: object = None
        """The version of what is on disk, with the changes."""

    def __repr__(self) -> str:
        return f"<ConfigFile {self.place}>"

    def load(self) -> dict[str, Any] | None:
        """The content, or the previous one if it is damaged; None if the file does not exist.

        Raises ConfigError if the file or its `.bak` exists, but neither can be read.
        """
        content, problem = self._read(self._path)
        self.is_readable = content is not None
        if content is None:
            content, older_problem = self._read(f"{self._path}.bak")
            if content is None and (problem or older_problem):
                found = "; ".join(filter(None, (problem, older_problem and f".bak: {older_problem}")))
                raise ConfigError(
                    self.place,
                    f"cannot be read ({found}): put back a good copy, or move it and its .bak away to begin without",
                )
            if content is not None:
                self._observe(TableRestored(self.place, problem or "it is missing"))
        self._is_first = content is None  # the next save is its own backup
        changes = read_whole(self._files, self._changes)
        if content is not None:
            self._apply(content, changes or b"")
            self._version = content.get("dataVersion")
        self.changes_end = 0 if changes is None else None
        return content

    def save(self, value: Mapping[str, Any]) -> None:
        """Write the content durably; `load` was called before. After an OSError the previous content is still there."""
        self.changes_end = None
        data, older = encode(value), f"{self._path}.bak"
        new = write_new(self._files, self._path, data)
        if self.is_readable:
            self._files.rename(self._path, older)
            self.is_readable = False
        self._files.rename(new, self._path)
        self.is_readable = True
        self._files.sync_directory(directory_of(self._path))
        if self._is_first:
            replace_whole(self._files, older, data)
            self._is_first = False
        self._files.remove(self._changes)
        self.changes_end, self._version = 0, value.get("dataVersion")

    def append(self, change: Mapping[str, Any]) -> None:
        """Write a change of the content durably: members of its tables, which are None when they are gone.

        It costs the same however large the tables are. After an OSError `save` is next.
        """
        end, self.changes_end = self.changes_end, None
        assert end is not None
        line = msgspec.json.encode((self._version, change)) + b"\n"
        with closing(self._files.open(self._changes, create=True)) as file:
            file.write(line, end)
            file.sync()
        if end == 0:
            self._files.sync_directory(directory_of(self._path))
        self.changes_end, self._version = end + len(line), change["dataVersion"]

    def distrust(self) -> None:
        """What was written is taken back: the next write is a whole one."""
        self.changes_end = None

    def _apply(self, content: dict[str, Any], lines: bytes) -> None:
        for line in lines.splitlines():
            try:
                before, change = msgspec.json.decode(line)
            except ValueError:  # the last one, which nobody was told of
                return
            if before != content.get("dataVersion"):  # older than the content, or of another one
                return
            _change(content, change)

    def _read(self, path: str) -> tuple[dict[str, Any] | None, str]:
        """The content, or the reason why it cannot be read. The reason is empty if the file does not exist."""
        data = read_whole(self._files, path)
        if data is None:
            return None, ""
        try:
            return decode(data), ""
        except ProtocolError as error:
            return None, str(error) if data else "empty"
