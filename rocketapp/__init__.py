"""Flask for RocketMQ handlers: the public names and nothing else."""

from rocketapp.app.app import RocketApp
from rocketapp.app.context import Context
from rocketapp.app.router import Router
from rocketapp.errors import (
    BrokerError,
    ConfigError,
    NoRouteError,
    PluginError,
    ProtocolError,
    RocketAppError,
    SendRefused,
    SendUnknown,
    SetupError,
    TransportError,
)
from rocketapp.hooks.markers import hookimpl
from rocketapp.hooks.wrapper import Wrapper
from rocketapp.model.outcome import DeadLetter, Outcomes, Retry, Skip
from rocketapp.model.outgoing import SendResult
from rocketapp.wire.record import Message

__all__ = [
    "BrokerError",
    "ConfigError",
    "Context",
    "DeadLetter",
    "Message",
    "NoRouteError",
    "Outcomes",
    "PluginError",
    "ProtocolError",
    "Retry",
    "RocketApp",
    "RocketAppError",
    "Router",
    "SendRefused",
    "SendResult",
    "SendUnknown",
    "SetupError",
    "Skip",
    "TransportError",
    "Wrapper",
    "hookimpl",
]
