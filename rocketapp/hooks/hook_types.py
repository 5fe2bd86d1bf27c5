"""The types that hooks return: wrappers, codecs, arguments, metrics and publish wrappers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

from rocketapp.model.outgoing import Outgoing, SendResult
from rocketapp.model.snapshot import AppSnapshot, Metric
from rocketapp.model.subscription import Subscription
from rocketapp.wire.message import Message

SyncCall = Callable[[Any], Any]
"""Takes one Message (a list of them for a batch and for a polled call), blocks, and returns the outcome."""
AsyncCall = Callable[[Any], Awaitable[Any]]
"""The same, awaited."""
Predicate = Callable[[Message], bool]
"""Takes one Message; False means: done, and not for this handler."""


Where = Literal["telemetry", "idempotency", "database", "middleware"]
"""The layers of a handler that wrappers stand in, outermost first."""
Write = Callable[[str, Any, Mapping[str, Any]], None]
"""Takes topic, body and options of one message, and writes it into the transaction that runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrapper:
    """Builds the callable that stands in front of the next one.

    Each half receives the next callable once, at start, and returns the one that is
    called per message. What it raises or returns counts as a handler's does.

    `layer`: where it stands. "telemetry" sees every message, filtered ones and copies too. "idempotency" lets one copy
    through, and what it calls has published and answered. "database" is a transaction: it commits when what it calls
    returns a plain value, and nothing else; without `write`, a handler with `@app.publishes` cannot have it.
    "middleware" stands around the app's middlewares and sees exceptions before they are mapped.
    `write`: of "database", writes what such a handler publishes into its outbox.
    `polled`: it also stands around polled handlers. They are called with a list of messages that is empty when the call
    begins and grows as the handler pulls; the next callable needs the same object. Otherwise it is left out there.
    """

    for_sync: Callable[[SyncCall], SyncCall] | None = None
    for_async: Callable[[AsyncCall], AsyncCall] | None = None
    layer: Where = "middleware"
    write: Write | None = None
    polled: bool = False

    def __post_init__(self) -> None:
        if self.layer not in get_args(Where):
            raise ValueError(f"a Wrapper stands in one of the layers {', '.join(get_args(Where))}, not {self.layer!r}")
        if self.for_sync is None and self.for_async is None:
            raise ValueError("a Wrapper needs for_sync=, for_async= or both; return None from the hook to decline")

    def kinds(self) -> str:
        """Which handlers it can stand in front of, in words."""
        if self.for_sync is None:
            return "async"
        return "sync" if self.for_async is None else "sync and async"


@dataclass(frozen=True, slots=True)
class CheckedArgument:
    """An answer to `argument_provider` that not every handler can have.

    provide: gives the value, per message. problem: called once per handler while the app starts; returns why this one
    cannot have the argument, with what to write instead, or None. A problem refuses the start.
    """

    provide: Callable[[], Any]
    problem: Callable[[Subscription], str | None]

    def __call__(self) -> Any:
        return self.provide()


class Codec(Protocol):
    """Encodes and decodes one content type. JSON and MessagePack are built in; a plugin adds others.

    A codec may also have `payload_schema(kind)`, for the AsyncAPI document: what readers in other languages have to
    know of the fields of such a body, as a Schema Object or a Multi Format Schema Object of AsyncAPI 3.
    """

    @property
    def content_type(self) -> str:
        """What the property `content-type` holds, in lower case: `application/protobuf`."""

    def claims(self, kind: type[Any]) -> bool:
        """Whether this codec is the usual one for this class.

        Such bodies are encoded by it without `content_type=` in `publish`, and bodies without the property are decoded
        by it for handlers of the class. Asked once per class. A codec for classes that have another form anyway claims
        none.
        """

    def decoder(self, kind: Any) -> Callable[[bytes], Any] | None:
        """The callable that makes a `kind` of a body, or None when this codec cannot.

        Asked while handlers are declared and when the app starts, never per message. What the callable raises makes
        a dead letter with the text of the exception: it names the field.
        """

    def encode(self, body: Any) -> bytes:
        """The body of a message. Raises TypeError or ValueError for what has no form."""


ReadMetrics = Callable[[AppSnapshot], Sequence[Metric]]
"""Says where the metrics of a plugin stand, beside what the app does at that moment."""


@dataclass(frozen=True, slots=True)
class Sending:
    """One call that publishes; `dataclasses.replace` makes a changed one for the next callable."""

    messages: Sequence[Outgoing]
    """One for "send" and "one_way". Their bodies are encoded and their arguments checked."""
    kind: Literal["send", "many", "one_way"]
    """`publish` and `publish_sync`, `publish_many`, or `publish_one_way`."""
    cluster: str
    """The cluster that receives them; empty for the unnamed one."""
    timeout: float | None
    """Seconds in total; None is `producer.send_timeout`. Only "send" has one."""


PublishCall = Callable[[Sending], Awaitable[Sequence[SendResult]]]
"""Sends the messages. Returns one result for each, in their order; none of "one_way"."""
PublishWrapper = Callable[[PublishCall], PublishCall]
"""Receives the next callable once, at start, and returns the one that is called per publish."""
