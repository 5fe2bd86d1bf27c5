"""Cut a stream into commands, however its bytes arrive.

The rule: no byte is looked at twice. While a frame is incomplete, bytes are only
collected; a length is judged as soon as it is seen and never allocated in advance.
"""

from __future__ import annotations

from rocketapp.errors import FrameTooLargeError, ProtocolError
from rocketapp.wire.command import Command, decode

_SMALLEST = 4  # the word of serializer and header length


class FrameReader:
    """Bytes in, commands out. After an error it is dead: the stream has lost its beat."""

    def __init__(self, max_frame_bytes: int) -> None:
        self._limit = max_frame_bytes
        self._waiting = bytearray()
        self._needed = 4
        self._dead: ProtocolError | None = None

    def feed(self, data: bytes) -> list[Command]:
        """The commands that these bytes complete, each with a body of its own.

        Raises ProtocolError for what is no frame, FrameTooLargeError for one that is
        longer than the limit; commands that came with those very bytes are lost with
        the connection, as they would be had it ended a moment before.
        """
        if self._dead is not None:
            raise self._dead
        waiting = self._waiting
        if waiting:
            waiting += data
            if len(waiting) < self._needed:
                return []
            data = bytes(waiting)
            waiting.clear()
        try:
            return self._cut(data)
        except ProtocolError as error:
            self._dead = error
            raise

    def _cut(self, data: bytes) -> list[Command]:
        commands = []
        at, end = 0, len(data)
        while end - at >= 4:
            length = int.from_bytes(data[at : at + 4], "big", signed=True)
            self._check(length)
            frame_end = at + 4 + length
            if frame_end > end:
                self._needed = 4 + length
                break
            body = at + 8 + int.from_bytes(data[at + 5 : at + 8], "big")
            if body > frame_end:
                raise ProtocolError(f"command header of {body - at - 8} bytes in a frame of {length}")
            commands.append(decode(data[at + 4], data[at + 8 : body], data[body:frame_end]))
            at = frame_end
        else:
            self._needed = 4
        if at < end:
            self._waiting += data[at:] if at else data
        return commands

    def _check(self, length: int) -> None:
        if length < _SMALLEST:
            raise ProtocolError(f"frame of {length} bytes is shorter than its own header word")
        if length > self._limit:
            raise FrameTooLargeError(length, self._limit)
