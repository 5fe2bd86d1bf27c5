"""The broker's tables on disk: `config/*.json` in Apache RocketMQ's form.

Apache writes fastjson: tab-indented, and integers as keys without quotes. Each save keeps the
content before as `.bak`, and a file that cannot be read is replaced by it.

Rule: after a crash there is one whole content, the old or the new; a `.bak` is never overwritten
by something unreadable; and if neither can be read the start fails, because empty tables
would make every group begin anew.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from rocketapp.broker.store.files import Files, directory_of, read_whole, write_new
from rocketapp.errors import ConfigError, ProtocolError
from rocketapp.wire import lenient_json

TOPICS, GROUPS = "config/topics.json", "config/subscriptionGroup.json"
CONSUMER_OFFSETS, DELAY_OFFSETS = "config/consumerOffset.json", "config/delayOffset.json"
QUEUE_LOCKS = "config/queueLocks.json"
"""Our own file: Apache RocketMQ reads only the files that it knows, and leaves this one alone."""


def encode(value: Mapping[str, Any]) -> bytes:
    """A table as Apache writes it. Half characters, which a client may send in a name, become question marks."""
    return _render(value, "").encode("utf-8", "replace")


def decode(data: bytes) -> dict[str, Any]:
    """A table as Apache or we wrote it; ProtocolError for what is none, or only a part of one."""
    value = lenient_json.loads(data)
    if not isinstance(value, dict):
        raise ProtocolError(f"a table was expected, found {type(value).__name__}")
    return value


def _render(value: object, indent: str) -> str:
    if isinstance(value, list | tuple):
        return f"[{','.join(_render(item, indent) for item in value)}]"
    if not isinstance(value, Mapping):
        return json.dumps(value, ensure_ascii=False)
    if not value:
        return "{}"
    inner = indent + "\t"
    members = [
        f"{key if isinstance(key, int) else json.dumps(str(key), ensure_ascii=False)}:{_render(member, inner)}"
        for key, member in value.items()
    ]
    return "{\n" + ",\n".join(inner + member for member in members) + f"\n{indent}}}"


class ConfigFile:
    """One of these files, with the content before beside it."""

    def __init__(self, files: Files, path: str) -> None:
        self._files, self._path = files, path
        self._is_readable: bool | None = None
        """Whether what stands in the main file may become the `.bak`; None: nobody has looked yet."""

    def __repr__(self) -> str:
        return f"<ConfigFile {self.place}>"

    @property
    def place(self) -> str:
        """What to call it in an error."""
        return self._files.place(self._path)

    def load(self) -> dict[str, Any] | None:
        """The content, or that before if it is damaged; None if there never was one.

        ConfigError if something is there and nothing of it can be read.
        """
        content, problem = self._read(self._path)
        self._is_readable = content is not None
        if content is not None:
            return content
        older, older_problem = self._read(f"{self._path}.bak")
        if older is None and (problem or older_problem):
            found = "; ".join(filter(None, (problem, older_problem and f".bak: {older_problem}")))
            raise ConfigError(
                self.place,
                f"cannot be read ({found}): put back a good copy, or move it and its .bak away to begin without",
            )
        return older

    def save(self, value: Mapping[str, Any]) -> None:
        """Write the content durably. OSError leaves the one before."""
        if self._is_readable is None:
            self._is_readable = self._read(self._path)[0] is not None
        new = write_new(self._files, self._path, encode(value))
        if self._is_readable:
            self._files.rename(self._path, f"{self._path}.bak")
            self._is_readable = False
        self._files.rename(new, self._path)
        self._is_readable = True
        self._files.sync_directory(directory_of(self._path))

    def _read(self, path: str) -> tuple[dict[str, Any] | None, str]:
        """The content, or why there is none: an empty text if there is no such file."""
        data = read_whole(self._files, path)
        if data is None:
            return None, ""
        try:
            return decode(data), ""
        except ProtocolError as error:
            return None, str(error) if data else "empty"
