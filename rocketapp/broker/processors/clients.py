"""Members of groups: heartbeats, unregistration, member lists, and notifications of changes.

Codes HEART_BEAT 34, UNREGISTER_CLIENT 35, GET_CONSUMER_LIST_BY_GROUP 38, CHECK_CLIENT_CONFIG 46, and to
the clients NOTIFY_CONSUMER_IDS_CHANGED 40 (Java: ClientManageProcessor, DefaultConsumerIdsChangeListener).

The short form of the heartbeat (IS_SUPPORT_HEART_BEAT_V2) is not offered, so every heartbeat is complete.
"""

from __future__ import annotations

import contextlib

from rocketapp.broker.core import Core
from rocketapp.broker.filtering import filter_of
from rocketapp.broker.members import GroupMember
from rocketapp.broker.permissions import of_heartbeat
from rocketapp.errors import BrokerError, ConnectionLostError, ProtocolError
from rocketapp.model.event import Observe, SubscriptionsDiffer
from rocketapp.transport.answers import DONE, KEYS_ARE_ENOUGH, Answer, answers, on_group
from rocketapp.transport.connection import Connection
from rocketapp.wire import lenient_json
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import Command
from rocketapp.wire.requests.clients import (
    Heartbeat,
    OfGroup,
    UnregisterRequest,
    encode_members,
    subscription_of,
)

MOST_GROUPS = 1024
"""Most groups, of consumers and producers together, that one heartbeat may name. A heartbeat is served in one step of
the loop, and each new group creates a topic. A process usually has a few groups."""


class ClientProcessor:
    """Keeps the members of groups and notifies them of changes."""

    def __init__(self, core: Core, observe: Observe) -> None:
        self._core, self._observe = core, observe

    @answers(RequestCode.HEART_BEAT, needs=of_heartbeat)
    def heartbeat(self, connection: Connection, command: Command) -> Answer:
        core = self._core
        heartbeat = Heartbeat.decode(command.body)
        if len(heartbeat.producers) + len(heartbeat.consumers) > MOST_GROUPS:
            raise BrokerError(ResponseCode.INVALID_PARAMETER, f"a heartbeat may name {MOST_GROUPS} groups")
        for data in heartbeat.consumers:
            core.ensure_retry_topic(core.group(data.group))
        member = heartbeat.client_id, command.language, command.version, connection.peer, core.monotonic()
        for name in heartbeat.producers:
            core.producers.put(connection, GroupMember(*member), name)
        for data in heartbeat.consumers:
            before = core.consumers.group(data.group).difference
            if core.consumers.consumes(connection, GroupMember(*member), data):
                self._notify(data.group)
            group = core.consumers.group(data.group)
            # In a broadcast group each member gets what it subscribes to.
            if not group.is_broadcasting and group.difference not in ("", before):
                self._observe(SubscriptionsDiffer(data.group, group.difference))
        return DONE

    @answers(RequestCode.UNREGISTER_CLIENT, needs=(on_group("Sub", optional=True),))
    def unregister(self, connection: Connection, command: Command) -> Answer:
        core = self._core
        request = UnregisterRequest.from_fields(command.fields)
        if request.producer_group is not None:
            core.producers.unregister(connection, request.producer_group)
        group = request.consumer_group
        if group is not None:
            # More than Apache RocketMQ does: the client says that it is gone, so its queues need not wait.
            core.locks.client_left(group, request.client_id)
            core.save_locks(None)
        if group is not None and core.consumers.unregister(connection, group):
            self._notify(group)
        return DONE

    @answers(RequestCode.GET_CONSUMER_LIST_BY_GROUP, needs=(on_group("Sub", "Get"),), reads=OfGroup)
    def member_list(self, request: OfGroup) -> Answer:
        members = self._core.consumers.members(request.group)
        if not members:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {request.group}")
        return encode_members(member.client_id for member in members.values())

    @answers(RequestCode.CHECK_CLIENT_CONFIG, needs=KEYS_ARE_ENOUGH)
    def check_client_config(self, connection: Connection, command: Command) -> Answer:
        data = lenient_json.loads(command.body)
        try:
            filter_of(subscription_of(data["subscriptionData"]))
        except ValueError as error:
            raise BrokerError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from None
        except (AttributeError, KeyError, TypeError, OverflowError) as error:
            raise ProtocolError(f"client configuration: {type(error).__name__} {error}") from None
        return DONE

    def connection_lost(self, connection: Connection) -> None:
        """Remove the client from all its groups, and notify the other members at once."""
        self._core.producers.close(connection)
        for group in self._core.consumers.close(connection):
            self._notify(group)

    def topic_created(self, topic: str) -> None:
        """Notify groups that subscribe to a new topic, so that they need not wait for their next route poll.

        Apache RocketMQ does not do this. For a client it is a usual order to rebalance.
        """
        for name in [group.name for group in self._core.consumers if topic in group.subscriptions]:
            self._notify(name)

    def expire(self) -> None:
        """End the connections of clients without a heartbeat for `client_expiry` seconds."""
        core = self._core
        long_ago = core.monotonic() - core.config.client_expiry
        for channel in dict.fromkeys((*core.consumers.silent_since(long_ago), *core.producers.silent_since(long_ago))):
            channel.abort(f"no heartbeat for {core.config.client_expiry:g} s")
            self.connection_lost(channel)

    def _notify(self, name: str) -> None:
        group, config = self._core.consumers.group(name), self._core.groups.get(name)
        # Apache RocketMQ does not ask the configuration when a connection has ended.
        if group.is_broadcasting or (config is not None and not config.notify_enable):
            return
        fields = OfGroup(name).to_fields()
        for channel in list(group.members):
            with contextlib.suppress(ConnectionLostError):
                channel.send_one_way(Command(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, fields))
