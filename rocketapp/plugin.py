"""The one front door for authors of plugins: everything that a plugin needs, under stable names.

A plugin imports from here and from `rocketapp` alone: the rooms behind these names may move.
`docs/reference/hooks.md` says what each hook is for, `docs/reference/plugin-names.md` lists the names.
"""

from __future__ import annotations

from rocketapp.config.app import AppConfig
from rocketapp.config.client import ClientConfig
from rocketapp.config.consumer import ConsumerConfig
from rocketapp.config.option import option
from rocketapp.config.producer import ProducerConfig
from rocketapp.consumer.offsets.stores import OffsetStore, Taken
from rocketapp.consumer.ways.sink import NewWriter, QueueSession, QueueWriter, Sink
from rocketapp.errors import AllocationError, PluginError, RocketAppError
from rocketapp.hooks.answers import (
    Answered,
    AsyncCall,
    Calling,
    CheckedArgument,
    Codec,
    Predicate,
    PublishCall,
    PublishWrapper,
    ReadMetrics,
    RemoteAnswer,
    RemoteCall,
    Sending,
    SyncCall,
    Wrapper,
)
from rocketapp.hooks.idempotency import CLAIMED, DONE, Answer, Claim, IdempotencyStore, MarkState, SecondCopy
from rocketapp.hooks.judged import is_done, outcome_of, outcomes_of
from rocketapp.hooks.keys import MakeKey, keys_of
from rocketapp.hooks.markers import hookimpl
from rocketapp.hooks.surface import Surface
from rocketapp.model.event import (
    Adjusted,
    Assigned,
    CommitFailed,
    Connected,
    DeadLettered,
    Disconnected,
    DrainCut,
    Dropped,
    Event,
    Handled,
    HandlerSlow,
    LogCut,
    LoopBlocked,
    LoopFailed,
    Moving,
    Observe,
    OffsetsFile,
    OrderKeyMissing,
    ReadFromSlave,
    RecordDamaged,
    Released,
    Retried,
    RollOut,
    SendAttemptFailed,
    SendBackFailed,
    StandingStill,
    StoreReadOnly,
    StoreRecovered,
    SubscriptionsDiffer,
    TableRestored,
    TopicMissing,
    Unmatched,
)
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.metric import Metric
from rocketapp.model.outcome import DeadLetter, Outcomes, Retry, Skip, Stop
from rocketapp.model.outgoing import Outgoing, SendResult, SendStatus
from rocketapp.model.policy import Breaker, Override, Policy
from rocketapp.model.publish_options import PublishOptions, SendOptions
from rocketapp.model.queue_start import Begin, QueueStart
from rocketapp.model.snapshot import AppSnapshot, GroupSnapshot, HandlerSnapshot, LeaseState, QueueSnapshot
from rocketapp.model.stats import HandlerStats
from rocketapp.model.subscription import Start, Subscription
from rocketapp.producer.checks import RESERVED_PROPERTIES
from rocketapp.state.allocation import Allocation
from rocketapp.tasks import Tasks
from rocketapp.wire.record import Message
from rocketapp.wire.stored_records import StoredRecords

__all__ = [
    "CLAIMED",
    "DONE",
    "RESERVED_PROPERTIES",
    "Adjusted",
    "Allocation",
    "AllocationError",
    "Answer",
    "Answered",
    "AppConfig",
    "AppSnapshot",
    "Assigned",
    "AsyncCall",
    "Begin",
    "Breaker",
    "Calling",
    "CheckedArgument",
    "Claim",
    "ClientConfig",
    "Codec",
    "CommitFailed",
    "Connected",
    "ConsumerConfig",
    "DeadLetter",
    "DeadLettered",
    "Disconnected",
    "DrainCut",
    "Dropped",
    "Event",
    "GroupSnapshot",
    "Handled",
    "HandlerSlow",
    "HandlerSnapshot",
    "HandlerStats",
    "IdempotencyStore",
    "LeaseState",
    "LogCut",
    "LoopBlocked",
    "LoopFailed",
    "MakeKey",
    "MarkState",
    "Message",
    "MessageQueue",
    "Metric",
    "Moving",
    "NewWriter",
    "Observe",
    "OffsetStore",
    "OffsetsFile",
    "OrderKeyMissing",
    "Outcomes",
    "Outgoing",
    "Override",
    "PluginError",
    "Policy",
    "Predicate",
    "ProducerConfig",
    "PublishCall",
    "PublishOptions",
    "PublishWrapper",
    "QueueSession",
    "QueueSnapshot",
    "QueueStart",
    "QueueWriter",
    "ReadFromSlave",
    "ReadMetrics",
    "RecordDamaged",
    "Released",
    "RemoteAnswer",
    "RemoteCall",
    "Retried",
    "Retry",
    "RocketAppError",
    "RollOut",
    "SecondCopy",
    "SendAttemptFailed",
    "SendBackFailed",
    "SendOptions",
    "SendResult",
    "SendStatus",
    "Sending",
    "Sink",
    "Skip",
    "StandingStill",
    "Start",
    "Stop",
    "StoreReadOnly",
    "StoreRecovered",
    "StoredRecords",
    "Subscription",
    "SubscriptionsDiffer",
    "Surface",
    "SyncCall",
    "TableRestored",
    "Taken",
    "Tasks",
    "TopicMissing",
    "Unmatched",
    "Wrapper",
    "hookimpl",
    "is_done",
    "keys_of",
    "option",
    "outcome_of",
    "outcomes_of",
]
