"""The one front door for authors of plugins: what a plugin needs beside `rocketapp` itself, under stable names.

A plugin imports from here and from `rocketapp` alone, and each name is in one of them: the rooms behind may move.
`docs/reference/hooks.md` says what each hook is for, `docs/reference/plugin-names.md` lists the names.
"""

from __future__ import annotations

from rocketapp.config.app import AppConfig
from rocketapp.config.client import ClientConfig
from rocketapp.config.consumer import ConsumerConfig
from rocketapp.config.option import option
from rocketapp.config.producer import ProducerConfig
from rocketapp.consumer.modes.sink import NewWriter, QueueSession, QueueWriter, Sink
from rocketapp.consumer.offsets.stores import OffsetStore, Taken
from rocketapp.errors import PluginError
from rocketapp.hooks.hook_types import (
    AsyncCall,
    CheckedArgument,
    Codec,
    Predicate,
    PublishCall,
    PublishWrapper,
    ReadMetrics,
    Sending,
    SyncCall,
    Wrapper,
)
from rocketapp.hooks.idempotency import (
    CLAIMED,
    DONE,
    Answer,
    Claim,
    IdempotencyStore,
    MakeKey,
    MarkState,
    keys_of,
)
from rocketapp.hooks.outcomes import is_done, outcome_of, outcomes_of
from rocketapp.hooks.specs import hookimpl
from rocketapp.hooks.surface import Surface
from rocketapp.model import conventions
from rocketapp.model import event as events
from rocketapp.model.message_queue import QueueStart
from rocketapp.model.metrics import metrics_of
from rocketapp.model.outcome import Park
from rocketapp.model.outgoing import Outgoing
from rocketapp.model.snapshot import (
    AppSnapshot,
    GroupSnapshot,
    HandlerSnapshot,
    HandlerStats,
    LeaseState,
    Metric,
    QueueSnapshot,
)
from rocketapp.model.subscription import Start, Subscription
from rocketapp.producer.checks import RESERVED_PROPERTIES
from rocketapp.state.allocation import Allocation
from rocketapp.tasks import Tasks
from rocketapp.wire.stored_records import StoredRecords

__all__ = [
    "CLAIMED",
    "DONE",
    "RESERVED_PROPERTIES",
    "Allocation",
    "Answer",
    "AppConfig",
    "AppSnapshot",
    "AsyncCall",
    "CheckedArgument",
    "Claim",
    "ClientConfig",
    "Codec",
    "ConsumerConfig",
    "GroupSnapshot",
    "HandlerSnapshot",
    "HandlerStats",
    "IdempotencyStore",
    "LeaseState",
    "MakeKey",
    "MarkState",
    "Metric",
    "NewWriter",
    "OffsetStore",
    "Outgoing",
    "Park",
    "PluginError",
    "Predicate",
    "ProducerConfig",
    "PublishCall",
    "PublishWrapper",
    "QueueSession",
    "QueueSnapshot",
    "QueueStart",
    "QueueWriter",
    "ReadMetrics",
    "Sending",
    "Sink",
    "Start",
    "StoredRecords",
    "Subscription",
    "Surface",
    "SyncCall",
    "Taken",
    "Tasks",
    "Wrapper",
    "conventions",
    "events",
    "hookimpl",
    "is_done",
    "keys_of",
    "metrics_of",
    "option",
    "outcome_of",
    "outcomes_of",
]
