"""The broker's tables on disk: `config/*.json` in Apache RocketMQ's form.

Apache writes fastjson: indented by tabs, with unquoted integer keys. Each save keeps the previous
content as `.bak`, which is used when the file cannot be read.

Rule: after a crash there is one whole content, the old or the new one. A `.bak` is never overwritten
by unreadable content. If neither can be read the start fails, because with empty tables every group
would begin anew.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from rocketapp.broker.store.files import OWN_STATE, Files, directory_of, read_whole, write_new
from rocketapp.errors import ConfigError, ProtocolError
from rocketapp.model.event import Observe, TableRestored, unobserved
from rocketapp.wire import lenient_json

TOPICS, GROUPS = "config/topics.json", "config/subscriptionGroup.json"
CONSUMER_OFFSETS, DELAY_OFFSETS = "config/consumerOffset.json", "config/delayOffset.json"
REQUEST_MODES, POP_ORDER = "config/messageRequestMode.json", "config/consumerOrderInfo.json"
QUEUE_LOCKS = OWN_STATE
"""Apache RocketMQ reads only the files that it knows, and leaves this one alone."""


Rendered = dict[int, tuple[object, str]]
"""Members of a table as they were written, by identity: who changes a member replaces it."""
_MOST_PER_MEMBER = 4
"""Texts that are kept for one member: its own, those of what it holds, and of what it was."""


def encode(value: Mapping[str, Any], unchanged: Rendered | None = None) -> bytes:
    """A table in Apache's form. Lone surrogates, which a client may send in a name, become question marks.

    `unchanged`: what the last call left there; this one adds to it, and empties it when most of it is of no use.
    """
    known: Rendered = {} if unchanged is None else unchanged
    text = _render(value, "", known)
    if len(known) > _MOST_PER_MEMBER * sum(len(one) for one in value.values() if isinstance(one, Mapping)):
        known.clear()
    return text.encode("utf-8", "replace")


def decode(data: bytes) -> dict[str, Any]:
    """A table that Apache RocketMQ or this broker wrote. Raises ProtocolError when it is damaged or incomplete."""
    value = lenient_json.loads(data)
    if not isinstance(value, dict):
        raise ProtocolError(f"a table was expected, found {type(value).__name__}")
    return value


_text = json.JSONEncoder(ensure_ascii=False).encode


def _render(value: object, indent: str, known: Rendered) -> str:
    if isinstance(value, list | tuple):
        return f"[{','.join(_render(item, indent, known) for item in value)}]"
    if not isinstance(value, Mapping):
        return _text(value)
    if not value:
        return "{}"
    inner = indent + "\t"
    members = []
    for key, member in value.items():
        if indent and (written := known.get(id(member))) is not None:
            members.append(written[1])
            continue
        text = f"{inner}{key if isinstance(key, int) else _text(str(key))}:{_render(member, inner, known)}"
        if indent and isinstance(member, dict):
            known[id(member)] = (member, text)  # which keeps the member, and so its identity
        members.append(text)
    return "{\n" + ",\n".join(members) + f"\n{indent}}}"


class ConfigFile:
    """One of these files and its `.bak`."""

    def __init__(self, files: Files, path: str, observe: Observe = unobserved) -> None:
        self._files, self._path, self._observe = files, path, observe
        self._is_readable: bool | None = None
        """Whether the content of the main file may become the `.bak`; None: not checked yet."""
        self._unchanged: Rendered = {}

    def __repr__(self) -> str:
        return f"<ConfigFile {self.place}>"

    @property
    def place(self) -> str:
        """The name of the file in errors."""
        return self._files.place(self._path)

    def load(self) -> dict[str, Any] | None:
        """The content, or the previous one if it is damaged; None if the file does not exist.

        Raises ConfigError if the file or its `.bak` exists, but neither can be read.
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
        if older is not None:
            self._observe(TableRestored(self.place, problem or "it is missing"))
        return older

    def save(self, value: Mapping[str, Any]) -> None:
        """Write the content durably. After an OSError the previous content is still there.

        A member that is the same object as in the last call is not looked at again: with 1,000 topics, each new
        one would otherwise cost the rendering of all.
        """
        if self._is_readable is None:
            self._is_readable = self._read(self._path)[0] is not None
        new = write_new(self._files, self._path, encode(value, self._unchanged))
        if self._is_readable:
            self._files.rename(self._path, f"{self._path}.bak")
            self._is_readable = False
        self._files.rename(new, self._path)
        self._is_readable = True
        self._files.sync_directory(directory_of(self._path))

    def _read(self, path: str) -> tuple[dict[str, Any] | None, str]:
        """The content, or the reason why it cannot be read. The reason is empty if the file does not exist."""
        data = read_whole(self._files, path)
        if data is None:
            return None, ""
        try:
            return decode(data), ""
        except ProtocolError as error:
            return None, str(error) if data else "empty"
