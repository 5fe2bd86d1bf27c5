"""How bodies of one content type become values, and values such bodies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class Codec(Protocol):
    """Encodes and decodes one content type. JSON and MessagePack are built in; a plugin adds others.

    A codec may also have `payload_schema(kind)`, for the AsyncAPI document: what readers in other languages have to
    know of the fields of such a body, as a Schema Object or a Multi Format Schema Object of AsyncAPI 3.
    """

    @property
    def content_type(self) -> str:
        """What the property `content-type` holds, in lower case: `application/protobuf`."""
        ...

    def claims(self, kind: type[Any]) -> bool:
        """Whether this codec is the usual one for this class.

        Such bodies are encoded by it without `content_type=` in `publish`, and bodies without the property are decoded
        by it for handlers of the class. Asked once per class. A codec for classes that have another form anyway claims
        none.
        """
        ...

    def decoder(self, kind: Any) -> Callable[[bytes], Any] | None:
        """The callable that makes a `kind` of a body, or None when this codec cannot.

        Asked while handlers are declared and when the app starts, never per message. What the callable raises makes
        a dead letter with the text of the exception: it names the field.
        """
        ...

    def encode(self, body: Any) -> bytes:
        """The body of a message. Raises TypeError or ValueError for what has no form."""
        ...
