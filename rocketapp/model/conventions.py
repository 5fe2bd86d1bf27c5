"""The names of OpenTelemetry's semantic conventions for messaging, and of our own attributes.

They follow schema 1.44.0. A later schema calls RocketMQ's own names `rocketmq.*`: that change is one word here.
"""

from __future__ import annotations

from typing import Final

SCHEMA: Final = "https://opentelemetry.io/schemas/1.44.0"
_ROCKETMQ: Final = "messaging.rocketmq"

SYSTEM: Final = "messaging.system"
ROCKETMQ: Final = "rocketmq"
"""The value of `SYSTEM`."""
OPERATION_NAME: Final = "messaging.operation.name"
OPERATION_TYPE: Final = "messaging.operation.type"
CLIENT_ID: Final = "messaging.client.id"
DESTINATION: Final = "messaging.destination.name"
PARTITION: Final = "messaging.destination.partition.id"
GROUP: Final = "messaging.consumer.group.name"
MESSAGE_ID: Final = "messaging.message.id"
BODY_SIZE: Final = "messaging.message.body.size"
COUNT: Final = "messaging.batch.message_count"
SERVER: Final = "server.address"
PORT: Final = "server.port"
ERROR: Final = "error.type"
HANDLER: Final = "rocketapp.handler"
LEASE: Final = "rocketapp.lease.state"
CLUSTER: Final = "rocketapp.cluster"

NAMESPACE: Final = f"{_ROCKETMQ}.namespace"
MODEL: Final = f"{_ROCKETMQ}.consumption_model"
TYPE: Final = f"{_ROCKETMQ}.message.type"
TAG: Final = f"{_ROCKETMQ}.message.tag"
KEYS: Final = f"{_ROCKETMQ}.message.keys"
ORDER_KEY: Final = f"{_ROCKETMQ}.message.group"
DELAY_LEVEL: Final = f"{_ROCKETMQ}.message.delay_time_level"
DELIVERY_MS: Final = f"{_ROCKETMQ}.message.delivery_timestamp"

CONSUMED_MESSAGES: Final = "messaging.client.consumed.messages"
SENT_MESSAGES: Final = "messaging.client.sent.messages"
OPERATION_DURATION: Final = "messaging.client.operation.duration"
PROCESS_DURATION: Final = "messaging.process.duration"

OF_PROCESS: Final = {SYSTEM: ROCKETMQ, OPERATION_NAME: "process", OPERATION_TYPE: "process"}
"""What every span and metric of handling says."""
OF_SEND: Final = {SYSTEM: ROCKETMQ, OPERATION_NAME: "send", OPERATION_TYPE: "send"}
"""What every span and metric of publishing says."""
OF_RECEIVE: Final = {SYSTEM: ROCKETMQ, OPERATION_NAME: "receive", OPERATION_TYPE: "receive"}
"""What every span says of messages that a loop of a `Client` gets."""
OF_NACK: Final = {SYSTEM: ROCKETMQ, OPERATION_NAME: "nack", OPERATION_TYPE: "settle"}
"""What the span of a failed message says that the broker has back."""
OF_DEAD_LETTER: Final = {SYSTEM: ROCKETMQ, OPERATION_NAME: "dead_letter", OPERATION_TYPE: "settle"}
"""What the span of a message says that became a dead letter."""
