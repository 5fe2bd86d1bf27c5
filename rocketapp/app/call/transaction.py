"""`@app.transaction(topic)`: a message that is seen when a function of yours has succeeded, and not otherwise."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar, Unpack

from rocketapp.app.call.arguments import Argument, Kind, read_signature
from rocketapp.app.call.provided import Providers
from rocketapp.app.places import function_problem, name_of_function, place_of_function
from rocketapp.app.publishing import PLAIN, Publisher
from rocketapp.errors import SendRefused, SetupError
from rocketapp.model.names import topic_problem
from rocketapp.model.outgoing import SendResult, SendStatus, TransactionOptions
from rocketapp.model.topic import Topic
from rocketapp.wire.record import Message

T = TypeVar("T")
C = TypeVar("C", bound=Callable[..., Awaitable[bool | None]])


class Transaction(Generic[T]):
    """What `@app.transaction` makes of a function. Calling it sends the message and calls the function."""

    __slots__ = ("_check", "_check_place", "_home", "_prefix", "cluster", "function", "name", "place", "topic")

    def __init__(
        self, topic: str | Topic[T], function: Callable[[T], Awaitable[bool]], *, cluster: str, place: str
    ) -> None:
        """`join` comes before the first call. Raises SetupError for a function that cannot work."""
        self.topic: str | Topic[T] = topic
        self.cluster: str = cluster
        self.name: str = name_of_function(function)
        self.place: str = place_of_function(function, place)
        if (problem := function_problem(function, "payload", wanted="async def")) is not None:
            raise SetupError(self.place, f"transaction decorates async functions of what is published: {problem}")
        self.function: Callable[[Any], Awaitable[bool]] = function
        self._prefix = ""
        self._home: Publisher | None = None
        self._check: Callable[..., Awaitable[bool | None]] | None = None
        self._check_place = ""

    def __repr__(self) -> str:
        return f"<Transaction {self.name} of {self.topic_name}>"

    @property
    def topic_name(self) -> str:
        return self.topic.name if isinstance(self.topic, Topic) else self._prefix + self.topic

    def join(self, home: Publisher, *, prefix: str = "") -> None:
        """Belong to the app that runs it. `prefix`: of the routers between, for a topic that is given by its name.

        Raises SetupError for a name that no topic has, and when it belongs to something already: a check could not say
        whose question it answers.
        """
        if self._home is not None:
            raise SetupError(self.place, f"{self.name} is in an app already: include its router once")
        self._home, self._prefix = home, prefix
        if (problem := topic_problem(self.topic_name)) is not None:
            raise SetupError(self.place, f"transaction: {problem}")

    async def __call__(self, payload: T, **options: Unpack[TransactionOptions]) -> SendResult | None:
        """Send the message so that no consumer sees it, call the function, then commit or roll back.

        The function says True: consumers get the message, and the result says where it was first stored. False: it is
        rolled back, and the result is None. What the function raises reaches the caller and leaves the transaction
        open: the broker asks the check, of this process or another one of the app. So it is when the process dies, or
        the broker is not told. The keywords are those of `publish` without `cluster`; a delay is refused.

        Raises SendRefused and SendUnknown, and does not call the function then.
        """
        if self._home is None:
            raise SetupError(self.place, f"{self.name} is in no app yet: include its router")
        topic = self.topic if isinstance(self.topic, Topic) else self.topic_name
        half, end, transactions = await self._home._through().to(self.cluster).begin(topic, payload, options)
        if half.status is not SendStatus.OK:
            # As Java does: a crash of the broker may lose it, so nothing else is changed because of it.
            await end(False)
            raise SendRefused(self.topic_name, f"it was stored with {half.status.name}, so it was rolled back")
        transactions.begin(half)
        try:
            commit = _checked(await self.function(payload), self.name, may_be_none=False)
        except BaseException:
            transactions.leave_open(half)
            raise
        await end(bool(commit))
        return half if commit else None

    def check(self, function: C) -> C:
        """Say how the transaction of a message has ended: True, False, or None when that is not known yet.

        An async function that takes the payload or the Message. Brokers ask it of any process of the app, some
        seconds after they have heard nothing, and again every 30 s as long as the answer is None or an exception: 15
        times, then they give the message up (Apache RocketMQ: transactionCheckInterval, transactionCheckMax). The
        function itself is returned.

        Raises SetupError for a second one, and for a function that cannot be asked.
        """
        place = place_of_function(function, self.place)
        if self._check is not None:
            raise SetupError(place, f"{self.name} has a check already, at {self._check_place}: one answers for all")
        if (problem := function_problem(function, wanted="async def")) is not None:
            raise SetupError(place, f"a check is an async function: {problem}")
        self._check, self._check_place = function, place
        return function

    def check_complete(self) -> None:
        """Raises SetupError for a check that cannot be asked, and without one."""
        if self._check is None:
            raise SetupError(
                self.place,
                f"{self.name} has no check: write @{self.name.rpartition(':')[2].rpartition('.')[2]}.check above a "
                "function that says how a transaction has ended",
            )
        self._argument(self._check)

    def ask(self) -> Callable[[Message], Awaitable[bool | None]]:
        """The check, for the message that a broker asks about. `check_complete` comes first. Raises SetupError."""
        check, name = self._check, self.name
        assert check is not None, "check_complete comes first"
        argument = self._argument(check)
        read = None if argument.getter is None else argument.getter()

        async def ask(message: Message) -> bool | None:
            return _checked(await check(message if read is None else read(message)), f"the check of {name}")

        return ask

    def _argument(self, check: Callable[..., Any]) -> Argument:
        place = self._check_place
        providers = Providers.none(PLAIN if self._home is None else self._home._through().payloads)
        arguments = read_signature(check, batch=False, place=place, providers=providers, names={})
        if len(arguments) != 1 or arguments[0].kind not in (Kind.MESSAGE, Kind.PAYLOAD) or arguments[0].by_name:
            raise SetupError(place, f"the check of {self.name} takes one argument: the payload, or the Message")
        return arguments[0]


def _checked(said: Any, who: str, *, may_be_none: bool = True) -> bool | None:
    if isinstance(said, bool) or (said is None and may_be_none):
        return said
    words = "True, False or None" if may_be_none else "True or False"
    raise TypeError(f"{who} returned {said!r}: return {words}; the transaction stays open")
