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
    "Breaker": "rocketapp.model.policy",
    "BrokerError": "rocketapp.errors",
    "Client": "rocketapp.scripts.client",
    "ConfigError": "rocketapp.errors",
    "Context": "rocketapp.app.call.context",
    "DeadLetter": "rocketapp.model.outcome",
    "Message": "rocketapp.wire.record",
    "MessageQueue": "rocketapp.model.message_queue",
    "NoReply": "rocketapp.errors",
    "NoRouteError": "rocketapp.errors",
    "NotRecalled": "rocketapp.errors",
    "Outcomes": "rocketapp.model.outcome",
    "Policy": "rocketapp.model.policy",
    "Publisher": "rocketapp.app.publishing",
    "Pull": "rocketapp.app.call.context",
    "Retry": "rocketapp.model.outcome",
    "RocketApp": "rocketapp.app.app",
    "RocketAppError": "rocketapp.errors",
    "Router": "rocketapp.app.router",
    "SendRefused": "rocketapp.errors",
    "SendResult": "rocketapp.model.outgoing",
    "SendUnknown": "rocketapp.errors",
    "SetupError": "rocketapp.errors",
    "Skip": "rocketapp.model.outcome",
    "Pause": "rocketapp.model.outcome",
    "SyncClient": "rocketapp.scripts.sync_client",
    "SyncPull": "rocketapp.app.call.context",
    "Topic": "rocketapp.model.topic",
    "TopicPublisher": "rocketapp.app.publishing",
    "TransportError": "rocketapp.errors",
    "TypeByProperty": "rocketapp.model.topic",
    "TypeByTag": "rocketapp.model.topic",
}

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
    return sorted({*globals(), *_HOMES})
