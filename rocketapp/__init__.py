"""Flask for RocketMQ handlers: the public names and nothing else.

Each name is imported at its first use. A process that needs only a few of them (a broker, a
parent of workers) starts faster.
"""

from rocketapp.lazy_names import imported

# As typing.TYPE_CHECKING, without the import: until the command line is reached, Ctrl-C shows a traceback.
TYPE_CHECKING = False
if TYPE_CHECKING:
    import typing

    from rocketapp.app.app import RocketApp
    from rocketapp.app.call.context import Context, Pull, SyncPull
    from rocketapp.app.publishing import Publisher, TopicPublisher
    from rocketapp.app.router import Router
    from rocketapp.errors import (
        BrokerError,
        ConfigError,
        NoReply,
        NoRouteError,
        NotRecalled,
        RocketAppError,
        SendRefused,
        SendUnknown,
        SetupError,
        TransportError,
    )
    from rocketapp.model.message_queue import MessageQueue
    from rocketapp.model.outcome import DeadLetter, Outcomes, Pause, Retry, Skip
    from rocketapp.model.outgoing import SendResult
    from rocketapp.model.policy import Breaker, Policy
    from rocketapp.model.topic import Topic, TypeByProperty, TypeByTag
    from rocketapp.scripts.client import Client
    from rocketapp.scripts.sync_client import SyncClient
    from rocketapp.wire.record import Message

_HOMES = {
    "rocketapp.app.app": "RocketApp",
    "rocketapp.app.call.context": "Context Pull SyncPull",
    "rocketapp.app.publishing": "Publisher TopicPublisher",
    "rocketapp.app.router": "Router",
    "rocketapp.errors": "BrokerError ConfigError NoReply NoRouteError NotRecalled "
    "RocketAppError SendRefused SendUnknown SetupError TransportError",
    "rocketapp.model.message_queue": "MessageQueue",
    "rocketapp.model.outcome": "DeadLetter Outcomes Pause Retry Skip",
    "rocketapp.model.outgoing": "SendResult",
    "rocketapp.model.policy": "Breaker Policy",
    "rocketapp.model.topic": "Topic TypeByProperty TypeByTag",
    "rocketapp.scripts.client": "Client",
    "rocketapp.scripts.sync_client": "SyncClient",
    "rocketapp.wire.record": "Message",
}
"""By module the names that it is the home of."""

__all__ = [
    "Breaker",
    "BrokerError",
    "Client",
    "ConfigError",
    "Context",
    "DeadLetter",
    "Message",
    "MessageQueue",
    "NoReply",
    "NoRouteError",
    "NotRecalled",
    "Outcomes",
    "Pause",
    "Policy",
    "Publisher",
    "Pull",
    "Retry",
    "RocketApp",
    "RocketAppError",
    "Router",
    "SendRefused",
    "SendResult",
    "SendUnknown",
    "SetupError",
    "Skip",
    "SyncClient",
    "SyncPull",
    "Topic",
    "TopicPublisher",
    "TransportError",
    "TypeByProperty",
    "TypeByTag",
]


def __getattr__(name: str) -> "typing.Any":
    return imported(__name__, globals(), _HOMES, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
