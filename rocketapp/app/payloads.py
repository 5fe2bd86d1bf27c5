"""The payloads of one app: which codec reads and writes a body, and how old versions become the present one.

A message without a content type, for a type without upcasters, is decoded from JSON by one call. Everything else is
looked at only where its property is there: `MARK` is searched in the raw properties, cheaper than decoding them.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, NoReturn, Protocol, get_args, is_typeddict

import msgspec

from rocketapp.app.codecs import (
    ANY,
    BUILT_IN,
    JSON,
    Choice,
    Decode,
    UnfitTypeError,
    canonical,
    charset_of,
    choice_in,
    class_of,
    convert_other,
    decoder_of,
    is_union,
    name_of_type,
    without_none,
)
from rocketapp.app.places import function_problem
from rocketapp.errors import PluginError, SetupError
from rocketapp.hooks.hook_types import Codec
from rocketapp.model.numbers import is_whole
from rocketapp.model.topic import CONTENT_TYPE, PAYLOAD_VERSION, TypeByTag
from rocketapp.wire.body import encode_body
from rocketapp.wire.record import Message

Upcaster = Callable[[dict[str, Any]], dict[str, Any]]


class Versions:
    """The upcasters of one payload type."""

    def __init__(self, kind: Any) -> None:
        self._kind = kind
        self._steps: dict[int, tuple[Upcaster, str]] = {}

    @property
    def present(self) -> int:
        """The current version of the type: one above its last upcaster."""
        return max(self._steps, default=0) + 1

    def add(self, version: int, upcast: Upcaster, place: str) -> None:
        if version in self._steps:
            other = self._steps[version][1]
            raise SetupError(
                place, f"version {version} of {self._kind.__qualname__} has an upcaster already, at {other}"
            )
        self._steps[version] = (upcast, place)

    def check(self, codec: Codec | None) -> None:
        """Raises SetupError for a version between others that no upcaster begins with, and for the codec of the type
        when it has no members that a function could turn into others.
        """
        name = self._kind.__qualname__
        for version in range(1, self.present):
            if version not in self._steps:
                place = self._steps[max(self._steps)][1]
                raise SetupError(place, f"version {version} of {name} has no upcaster: add it")
        if codec is not None and codec.decoder(dict) is None:
            self.refuse(
                f"{name} is read as {codec.content_type}, which an upcaster cannot change: it is for JSON and "
                "MessagePack; use the versions that the schema has"
            )

    def refuse(self, problem: str) -> NoReturn:
        """Raises SetupError with the line of the first upcaster."""
        raise SetupError(next(iter(self._steps.values()))[1], problem)

    def convert(self, members: dict[str, Any], version: int, kind: Any) -> Any:
        """The payload of this type, from the members of an older version.

        Raises ValidationError, or ValueError with the upcaster's place for what an upcaster raises.
        """
        for step in range(version, self.present):
            upcast, place = self._steps[step]
            try:
                members = upcast(members)
            except Exception as error:
                raise ValueError(f"the upcaster at {place} raised {type(error).__name__}: {error}") from error
            if not isinstance(members, dict):
                raise ValueError(f"the upcaster at {place} returned a {type(members).__name__}: return the new members")
        return convert_other(members, kind)


MARK = CONTENT_TYPE.encode()


class Encoded(Protocol):
    """Something with a body that can be decoded: a received message, or a record of a published one."""

    @property
    def body(self) -> bytes: ...

    @property
    def tag(self) -> str | None: ...

    @property
    def properties(self) -> Mapping[str, str]: ...


_LONGEST = 2_000
"""Characters of a reason."""
_MOST_PARTS = 100
"""Wrong fields of one body that are told one by one."""

Read = Callable[[Encoded, bytes], Any]
"""A message and its body -> the payload. What it raises says why there is none."""


class Reader(NamedTuple):
    """How a payload is read.

    decode: the body of a message without MARK; None when every message is to be read by `read`.
    """

    decode: Decode | None
    read: Read


class Form(NamedTuple):
    """What readers of other programs have to know of a body.

    schema: what the codec says of its fields; None leaves that to the type.
    """

    content_type: str
    schema: Mapping[str, Any] | None = None


def _read_text(message: Encoded, body: bytes) -> str:
    return body.decode(charset_of(message.properties.get(CONTENT_TYPE)) or "utf-8")


class PluginCodec:
    """The codec of a plugin, which is named when it gives no bytes."""

    def __init__(self, codec: Codec, plugin: str) -> None:
        self._codec, self._plugin = codec, plugin
        self.content_type: str = codec.content_type

    def __getattr__(self, name: str) -> Any:
        return getattr(self._codec, name)

    def encode(self, body: Any) -> bytes:
        found: Any = self._codec.encode(body)
        if not isinstance(found, bytes):
            kind, other = type(body).__qualname__, type(found).__qualname__
            problem = f"its codec of {self.content_type} made {other} of a {kind}: encode() returns bytes"
            raise PluginError(self._plugin, problem)
        return found


class Payloads:
    """Codecs and upcasters of one app."""

    def __init__(self, of_plugins: Callable[[], Sequence[Codec]] = tuple) -> None:
        """`of_plugins`: asked whenever a type is looked at that JSON does not know, and by each `publish`."""
        self._of_plugins = of_plugins
        self._claimed: dict[type[Any], Codec | None] = {}
        self._versions: dict[Any, Versions] = {}
        """By type, for types with upcasters."""

    def forget_plugins(self) -> None:
        """The settings have chosen other plugins."""
        self._claimed.clear()

    def add_upcaster(self, kind: Any, version: int, upcast: Upcaster, place: str) -> None:
        """Raises SetupError unless it gets a class, a version and a function."""
        if not isinstance(kind, type):
            raise SetupError(place, f"upcaster({kind!r}): give the class of the payload")
        if is_typeddict(kind):
            mend = "make it a msgspec Struct or a dataclass"
            raise SetupError(place, f"upcaster({kind.__qualname__}): a dict that is published has no version: {mend}")
        if not is_whole(version) or version < 1:
            raise SetupError(place, f"upcaster: version={version!r}: give the old version, a whole number from 1")
        if (problem := function_problem(upcast, "members", wanted="def")) is not None:
            wanted = "an upcaster is a plain function of the old members that returns the new ones"
            raise SetupError(place, f"{wanted}: {problem}")
        self._versions.setdefault(kind, Versions(kind)).add(version, upcast, place)

    def present_version(self, kind: type[Any]) -> int | None:
        """The present version of a type with upcasters, else None."""
        versions = self._versions_for(kind)
        return None if versions is None else versions.present

    def encode(self, body: Any, content_type: str | None = None) -> tuple[bytes, Mapping[str, str]]:
        """The bytes of a body, and the properties that say what they are.

        Raises TypeError or ValueError, naming what is possible. bytes and str are sent as they are.
        """
        version = self.present_version(type(body))
        marks = {} if version is None else {PAYLOAD_VERSION: str(version)}
        codec = self._codec_for(body, content_type)
        if codec is None:
            if content_type is not None:
                marks[CONTENT_TYPE] = content_type
            return encode_body(body), marks
        marks[CONTENT_TYPE] = content_type or codec.content_type
        return codec.encode(body), marks

    def form_of(self, kind: Any) -> Form:
        """How bodies of this type are written when nothing else is said, and what their codec tells of their fields.

        Raises what a codec raises for a type that it cannot take.
        """
        if kind is bytes or kind is str:
            return Form(ANY if kind is bytes else "text/plain")
        codec = self._claiming(kind, self._of_plugins()) if isinstance(kind, type) else None
        if codec is None:
            return Form(JSON)
        tell = getattr(codec, "payload_schema", None)
        return Form(codec.content_type, None if tell is None else tell(kind))

    def takes(self, kind: Any) -> bool:
        """Whether some codec makes this type of a body.

        Raises UnfitTypeError for one that looks like a payload and cannot be one, NameError as `decoder_of`.
        """
        choice = choice_in(kind)
        if choice is not None:
            for one in choice.types.values():
                if not self.takes(one):
                    raise UnfitTypeError(f"{name_of_type(one)} is not one of the types that a body can become")
            return True
        if decoder_of(kind) is not None:
            return True
        return any(codec.decoder(kind) is not None for codec in self._of_plugins())

    def reading(self, kind: Any, content_type: str | None = None) -> Callable[[Message], Any]:
        """What makes a payload of a message; ValueError says why it cannot. `content_type`: of bodies without one.

        Raises TypeError for a type that no body becomes, ValueError for a content type without a codec for it.
        """
        if not self.takes(kind):
            raise TypeError(f"{name_of_type(kind)} is not one of the types that a body can become")
        return self.getter(kind, content_type)

    def getter(
        self,
        kind: Any,
        content_type: str | None = None,
        *,
        wrong: Callable[[Exception], Exception] = lambda error: ValueError(problem_of(error)),
        then: Callable[[Any], Any] | None = None,
    ) -> Callable[[Message], Any]:
        """What makes a payload of a message, and calls `then` with it. `wrong`: makes the exception for a wrong body.

        Asked once per handler, when all codecs and upcasters are there.
        """
        decode, read = self.reader(kind, content_type)

        def behind_mark(message: Message, error: Exception) -> Any:
            """Some writers of JSON put a UTF-8 byte order mark in front."""
            with suppress(Exception):  # what the body itself raises is known already
                if message.body.startswith(BOM_UTF8):
                    return read(message, message.body.removeprefix(BOM_UTF8))
            raise wrong(error) from cause_of(error)

        def get(message: Message) -> Any:
            try:
                # `partition` finds MARK in a third of the time of `in`, which tries it as a number first.
                if decode is None or message.raw_properties.partition(MARK)[1]:
                    return read(message, message.body)
                return decode(message.body)
            except MemoryError:
                raise
            except Exception as error:
                return behind_mark(message, error)

        if then is None:
            return get
        if decode is None:
            return lambda message: then(get(message))

        def call(message: Message) -> Any:  # the commonest typed shape, without a call between
            try:
                if message.raw_properties.partition(MARK)[1]:
                    payload = read(message, message.body)
                else:
                    payload = decode(message.body)
            except MemoryError:
                raise
            except Exception as error:
                payload = behind_mark(message, error)
            return then(payload)

        return call

    def reader(self, kind: Any, content_type: str | None = None) -> Reader:
        """How to read this type. `content_type`: of bodies without one; None leaves that to the codecs.

        Raises ValueError for a content type without a codec for it.
        """
        choice = choice_in(kind)
        if choice is not None:
            reads = {said: self.reader(one, content_type).read for said, one in choice.types.items()}
            return Reader(None, _by_choice(choice, reads))
        if kind is bytes or kind is str:
            decode = decoder_of(kind)
            return Reader(decode, _read_text if kind is str else lambda message, body: body)
        decoders, versions = self._decoders(kind), self._versions_of(kind)
        unmarked = decoders.get(ANY) if content_type is None else _decoder(decoders, content_type)

        def read(message: Encoded, body: bytes) -> Any:
            return _decoder(decoders, message.properties.get(CONTENT_TYPE, content_type))(body)

        if versions is None:
            return Reader(unmarked, read)
        one = without_none(kind)
        of_members = self._decoders(dict if one is kind else dict | None)

        def read_any_version(message: Encoded, body: bytes) -> Any:
            version = _version(message.properties.get(PAYLOAD_VERSION))
            if version >= versions.present:
                return read(message, body)
            members = _decoder(of_members, message.properties.get(CONTENT_TYPE, content_type))(body)
            return None if members is None else versions.convert(members, version, one)

        return Reader(None, read_any_version)

    def _versions_for(self, kind: Any) -> Versions | None:
        """The upcasters of the type, or of the nearest class that it derives from: it has the members of that."""
        classes = getattr(class_of(kind), "__mro__", ()) if self._versions else ()
        return next((self._versions[one] for one in classes if one in self._versions), None)

    def _versions_of(self, kind: Any) -> Versions | None:
        """The type's versions. Raises SetupError where one is missing, for a codec that gives no members to upcasters,
        and for a part of a union that has some: none would be used.
        """
        versions = self._versions_for(kind)
        if versions is not None:
            versions.check(self._claiming(class_of(kind), self._of_plugins()))
            return versions
        for one in get_args(kind) if is_union(kind) else ():
            if (versions := self._versions_for(one)) is not None:
                mend = "tell the types apart by TypeByTag or TypeByProperty"
                versions.refuse(f"no upcaster is used for a part of {name_of_type(kind)}: {mend}")
        return None

    def _decoders(self, kind: Any) -> dict[str, Decode]:
        """By content type; a plugin's codec stands before a built-in one for the same.

        ANY reads bodies without one: the codec that claims the type, else JSON, else the only one.
        """
        codecs = {canonical(codec.content_type): codec for codec in (*BUILT_IN, *self._of_plugins())}
        found: dict[str, Decode] = {}
        for name, codec in codecs.items():
            try:
                decode = codec.decoder(kind)
            except UnfitTypeError:
                continue  # another codec knows it, or the handler would have been refused
            if decode is not None:
                found[name] = decode
        claiming = self._claiming(kind, self._of_plugins()) if isinstance(kind, type) else None
        usual = JSON if claiming is None else canonical(claiming.content_type)
        if unmarked := found.get(usual) or found.get(JSON) or (next(iter(found.values())) if len(found) == 1 else None):
            found.setdefault(ANY, unmarked)
        return found

    def _codec_for(self, body: Any, content_type: str | None) -> Codec | None:
        """The codec that encodes this body; None for JSON, text and bytes without more."""
        kind = type(body)
        if content_type is None:
            return self._claimed[kind] if kind in self._claimed else self._claiming(kind, self._of_plugins())
        if issubclass(kind, bytes | bytearray | memoryview | str):
            return None  # encoded by the caller
        name, plugins = canonical(content_type), self._of_plugins()
        if name == ANY:
            return self._claiming(kind, plugins)
        known = {canonical(codec.content_type): codec for codec in (*BUILT_IN, *plugins)}
        if name not in known:
            raise ValueError(f"content_type={content_type!r} has no codec: known are {', '.join(sorted(known))}")
        return known[name]

    def _claiming(self, kind: type[Any], plugins: Sequence[Codec]) -> Codec | None:
        if kind not in self._claimed:
            self._claimed[kind] = next((codec for codec in reversed(plugins) if codec.claims(kind)), None)
        return self._claimed[kind]


def _decoder(decoders: Mapping[str, Decode], content_type: str | None) -> Decode:
    """What decodes bodies of this content type. Raises ValueError when nothing does."""
    found = decoders.get(ANY if content_type is None else canonical(content_type))
    if found is None:
        known = ", ".join(sorted(decoders.keys() - {ANY}))
        raise ValueError(f"{CONTENT_TYPE} {content_type!r} has no codec for it: known are {known}")
    charset = charset_of(content_type)
    return found if charset is None else lambda body: found(body.decode(charset).encode())


def _by_choice(choice: Choice, reads: Mapping[str, Read]) -> Read:
    def read(message: Encoded, body: bytes) -> Any:
        if isinstance(choice, TypeByTag):
            said, what = message.tag, "tag "
        else:
            said, what = message.properties.get(choice.name), f"property {choice.name}="
        read_one = reads.get(said or "")
        if read_one is None:
            raise ValueError(f"{what}{said!r} stands for none of its types: known are {', '.join(sorted(reads))}")
        return read_one(message, body)

    return read


def _version(text: str | None) -> int:
    if text is None:
        return 1
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise ValueError(f"{PAYLOAD_VERSION} {text!r} is not a whole number from 1")
    return int(text)


def problem_of(error: Exception) -> str:
    """Why a body is not of its type, beginning with the field where it is known; at most some thousand characters."""
    said = _said(error)
    return said if len(said) <= _LONGEST else f"{said[:_LONGEST]}..."


def cause_of(error: Exception) -> Exception:
    """What an error about a body carries as its cause: one of a hundred thousand parts would cost seconds to print."""
    return ValueError(_said(error)) if _has_many_parts(error) else error


def _has_many_parts(error: Exception) -> bool:
    """Whether this is an error of pydantic that lists many problems."""
    count = getattr(error, "error_count", None)
    return callable(count) and count() > _MOST_PARTS


def _said(error: Exception) -> str:
    if isinstance(error, msgspec.ValidationError):
        said, found, path = str(error).rpartition(" - at `$")
        return f"field {path.rstrip('`').lstrip('.')}: {said}" if found and path != "`" else str(error)
    of_pydantic = getattr(error, "errors", None)
    if _has_many_parts(error):
        return f"{error.error_count()} fields are wrong"  # type: ignore[attr-defined]
    if callable(of_pydantic) and hasattr(error, "error_count"):
        parts = of_pydantic(include_url=False, include_input=False)
        return "; ".join(f"field {'.'.join(map(str, one['loc']))}: {one['msg']}" for one in parts)
    return str(error)


def described(kind: Any) -> str:
    """The type's name in messages."""
    return name_of_type(get_args(kind)[0] if choice_in(kind) is not None else kind)
