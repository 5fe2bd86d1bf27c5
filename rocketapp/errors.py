"""Every exception that rocketapp raises on purpose, as one tree.

An error stores facts and renders them in `__str__`, so that it survives pickling
into another process and a test may assert on a number. Its text names the option
or the call that mends it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class RocketAppError(Exception):
    """The base class of every exception that rocketapp raises on purpose."""


class ConfigError(RocketAppError):
    """A setting is unknown, has the wrong type or is out of bounds; the command line exits with 2."""

    def __init__(self, place: str, problem: str) -> None:
        super().__init__(place, problem)
        self.place: str = place
        self.problem: str = problem

    def __str__(self) -> str:
        return f"{self.place}: {self.problem}"


class SetupError(RocketAppError):
    """A declaration of the user cannot work. It is found at registration, before anything starts.

    `place` is the `file:line` of the declaration that has to be changed.
    """

    def __init__(self, place: str, problem: str) -> None:
        super().__init__(place, problem)
        self.place: str = place
        self.problem: str = problem

    def __str__(self) -> str:
        return f"{self.place}: {self.problem}" if self.place else self.problem


class PluginError(RocketAppError):
    """A plugin could not be loaded, or one of its hooks raised.

    `hook`: the one that raised; empty when it is another problem.
    """

    def __init__(self, plugin: str, problem: str, hook: str = "") -> None:
        super().__init__(plugin, problem, hook)
        self.plugin: str = plugin
        self.problem: str = problem
        self.hook: str = hook

    def __str__(self) -> str:
        return f"plugin {self.plugin}: {self.problem}"


class AllocationError(RocketAppError):
    """An allocation strategy cannot decide: the member keeps the queues that it has."""

    def __init__(self, strategy: str, problem: str) -> None:
        super().__init__(strategy, problem)
        self.strategy: str = strategy
        self.problem: str = problem

    def __str__(self) -> str:
        return f"allocation {self.strategy}: {self.problem}"


class ProtocolError(RocketAppError):
    """Received bytes are malformed, truncated or too large."""


class FrameTooLargeError(ProtocolError):
    """A frame is above `client.max_frame_bytes`. A received one closes the connection; one of ours is not sent."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(size, limit)
        self.size: int = size
        self.limit: int = limit

    def __str__(self) -> str:
        return f"frame of {self.size} bytes, limit {self.limit}: see client.max_frame_bytes"


class TransportError(RocketAppError):
    """A connection could not be made, was lost, or did not answer in time."""

    def __init__(self, address: str, problem: str) -> None:
        super().__init__(address, problem)
        self.address: str = address
        self.problem: str = problem

    def __str__(self) -> str:
        return f"{self.address}: {self.problem}"


class ConnectError(TransportError):
    """No connection could be made to that address. Nothing was sent."""


class TlsError(ConnectError):
    """There is a peer at that address, and no TLS with it. The problem says what mends that."""


class ConnectionLostError(TransportError):
    """The connection ended while a call was waiting. Whether the peer executed the request is unknown."""


class RequestTimeoutError(TransportError):
    """The peer did not answer in time. Whether it executed the request is unknown."""


class OvertakenError(RocketAppError):
    """Another member has begun a session of a queue: our later offset was not stored."""

    def __init__(self, queue: str, epoch: int) -> None:
        super().__init__(queue, epoch)
        self.queue: str = queue
        self.epoch: int = epoch

    def __str__(self) -> str:
        return f"{self.queue}: another member has taken it since epoch {self.epoch}"


class BrokerError(RocketAppError):
    """A broker or name server answered with a code other than success."""

    def __init__(self, code: int, remark: str, address: str = "") -> None:
        super().__init__(code, remark, address)
        self.code: int = code
        self.remark: str = remark
        self.address: str = address

    def __str__(self) -> str:
        where = f"{self.address}: " if self.address else ""
        return f"{where}code {self.code}: {self.remark or 'no remark'}"


class KeysRefused(BrokerError):  # noqa: N818 - a refusal, beside those of messages
    """A server does not know our access keys, or rejects our signature. Nothing was done."""

    def __str__(self) -> str:
        return f"{super().__str__().rstrip('.')}: check client.access_key and client.secret_key"


class NoRouteError(RocketAppError):
    """No known broker holds the topic, or none gives the needed permission."""

    def __init__(self, topic: str, problem: str = "no broker holds it") -> None:
        super().__init__(topic, problem)
        self.topic: str = topic
        self.problem: str = problem

    def __str__(self) -> str:
        return f"topic {self.topic}: {self.problem}"


class SendRefused(RocketAppError):  # noqa: N818 - an outcome, named in the public API
    """A message was certainly not stored. Sending it again cannot store it twice.

    `is_permanent`: it was refused for what it is, and will be refused again.
    """

    def __init__(self, topic: str, reason: str, is_permanent: bool = False) -> None:
        super().__init__(topic, reason, is_permanent)
        self.topic: str = topic
        self.reason: str = reason
        self.is_permanent: bool = is_permanent

    def __str__(self) -> str:
        return f"not stored in {self.topic}: {self.reason}"


class SendUnknown(RocketAppError):  # noqa: N818 - an outcome, named in the public API
    """A message was perhaps stored: no answer came. Sending it again may store it twice."""

    def __init__(self, topic: str, reason: str) -> None:
        super().__init__(topic, reason)
        self.topic: str = topic
        self.reason: str = reason

    def __str__(self) -> str:
        return f"perhaps stored in {self.topic}: {self.reason}"


class NoReply(RocketAppError):  # noqa: N818 - an outcome, named in the public API
    """A request was sent and not answered in time. Whether it was handled is unknown.

    `timeout`: seconds from the call on. `message_id` and `keys`: of the request, as its handler sees them.
    """

    def __init__(self, topic: str, timeout: float, message_id: str = "", keys: Sequence[str] = ()) -> None:
        super().__init__(topic, timeout, message_id, keys)
        self.topic: str = topic
        self.timeout: float = timeout
        self.message_id: str = message_id
        self.keys: Sequence[str] = keys

    def __str__(self) -> str:
        named = f" to {named_message(self.message_id, self.keys)}" if self.message_id else ""
        mend = "see that a handler of the topic runs and returns a value, or give a longer timeout="
        return f"no reply from {self.topic} within {self.timeout:g} s{named}: {mend}"


class NotRecalled(RocketAppError):  # noqa: N818 - an outcome, named in the public API
    """A delayed message was not taken back: it comes, or has come.

    `perhaps`: no answer came, so it may have been taken back all the same. Recalling twice does no harm.
    """

    def __init__(self, topic: str, reason: str, perhaps: bool = False) -> None:
        super().__init__(topic, reason, perhaps)
        self.topic: str = topic
        self.reason: str = reason
        self.perhaps: bool = perhaps

    def __str__(self) -> str:
        return f"{'perhaps ' if self.perhaps else ''}not recalled from {self.topic}: {self.reason}"


class StoreError(RocketAppError):
    """The embedded broker's store failed to store a message.

    `is_unknown`: the bytes may be on disk nevertheless. Otherwise they certainly are not.
    """

    def __init__(self, problem: str, is_unknown: bool = False) -> None:
        super().__init__(problem, is_unknown)
        self.problem: str = problem
        self.is_unknown: bool = is_unknown

    def __str__(self) -> str:
        return f"{'perhaps' if self.is_unknown else 'not'} stored: {self.problem}"


def safe_text(value: object) -> str:
    """The text of a value, also when its own `__str__` raises: that must not keep a message from its outcome."""
    try:
        return str(value)
    except (Exception, SystemExit) as error:
        return f"(its text raised {type(error).__name__})"


def named_message(message_id: str, keys: Sequence[str]) -> str:
    """A message as a line names it: `7F000001... (key 17)`."""
    return f"{message_id} ({'key' if len(keys) == 1 else 'keys'} {', '.join(keys)})" if keys else message_id


def did_you_mean(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """`: did you mean 'x'?` for the end of an error line; `otherwise` when no known name is near."""
    from difflib import get_close_matches

    names = list(known)
    close = [] if name in names else get_close_matches(name, names, n=1, cutoff=0.5)
    return f": did you mean {close[0]!r}?" if close else otherwise
