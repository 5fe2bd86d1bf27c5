"""Who may ask what: the users of a broker and their permissions, as access control of Apache RocketMQ 5 has them.

Every request is signed with the keys of a user; the password is the secret key. A user of type Super may do
everything, any other what an entry of its policies allows. Refusals have Apache's code and remarks.

Users and policies are in `config/access.json`, in the words of Apache's admin tool:
`{"users": [{"username", "password", "userType", "userStatus"}], "acls": [{"subject", "policies"}]}`.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import ipaddress
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from itertools import chain
from typing import NoReturn

import msgspec

from rocketapp.broker.core import ip_of
from rocketapp.broker.store.config_files import ConfigFile
from rocketapp.config.broker import BrokerConfig
from rocketapp.errors import BrokerError, ConfigError, StoreError
from rocketapp.model.names import DLQ_PREFIX, RETRY_PREFIX
from rocketapp.transport.answers import FOR_EVERYBODY, Need, NeedRule, Needs, on_group, on_topic
from rocketapp.transport.connection import Connection
from rocketapp.transport.stream import split_address
from rocketapp.wire.codes import ResponseCode
from rocketapp.wire.command import Command
from rocketapp.wire.requests.clients import Heartbeat
from rocketapp.wire.requests.locks import LockBody
from rocketapp.wire.signing import ACCESS_KEY, SIGNATURE, Keys

ACCESS_FILE = "config/access.json"
_ACTIONS = frozenset({"All", "Pub", "Sub", "Create", "Update", "Delete", "Get", "List"})
_KINDS = frozenset({"Topic", "Group", "Cluster"})


class User(msgspec.Struct, frozen=True, rename="camel"):
    """A user, in the words of the admin tool."""

    username: str
    password: str
    user_type: str = "Normal"
    user_status: str = "enable"


class Entry(msgspec.Struct, frozen=True, rename="camel"):
    """What is allowed or denied on one resource."""

    resource: str = ""
    actions: list[str] = []
    source_ips: list[str] | msgspec.UnsetType = msgspec.UNSET
    decision: str = "Allow"


class AccessPolicy(msgspec.Struct, frozen=True, rename="camel"):
    """Entries of one type: Default ones count where no Custom one does."""

    entries: list[Entry] = []
    policy_type: str = "Custom"


class Acl(msgspec.Struct, frozen=True):
    """The policies of one user."""

    subject: str = ""
    policies: list[AccessPolicy] = []


class Saved(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The users and the policies of a broker."""

    users: list[User] = []
    acls: list[Acl] = []


class _Grant:
    """One entry of a policy, ready to be compared."""

    __slots__ = ("_actions", "_is_prefix", "_kind", "_name", "_networks", "is_allowed")

    def __init__(self, entry: Entry) -> None:
        kind, _, name = entry.resource.partition(":")
        if (not name or kind not in _KINDS) and entry.resource != "*":
            raise ValueError(f"{entry.resource!r} is no resource: write Topic:name, Group:name, Cluster:name or *")
        unknown = set(entry.actions) - _ACTIONS
        if unknown or not entry.actions:
            raise ValueError(f"actions of {entry.resource} are some of {', '.join(sorted(_ACTIONS))}")
        if entry.decision not in ("Allow", "Deny"):
            raise ValueError(f"the decision about {entry.resource} is Allow or Deny, not {entry.decision!r}")
        self._kind = kind
        self._is_prefix = not name or name.endswith("*")
        self._name = name.removesuffix("*")
        self._actions = frozenset(entry.actions)
        self._networks = [ipaddress.ip_network(text, strict=False) for text in entry.source_ips or ()]
        self.is_allowed: bool = entry.decision == "Allow"

    @property
    def order(self) -> tuple[bool, bool, int, bool]:
        """The narrowest first; of two alike the one that allows, as in Apache RocketMQ."""
        return self._kind == "*", self._is_prefix, -len(self._name), not self.is_allowed

    def matches(self, need: Need, ip: str) -> bool:
        if self._kind not in ("*", need.kind):
            return False
        if not (need.name.startswith(self._name) if self._is_prefix else need.name == self._name):
            return False
        return ("All" in self._actions or not self._actions.isdisjoint(need.actions)) and self._covers(ip)

    def _covers(self, ip: str) -> bool:
        if not self._networks:
            return True
        try:
            address = ip_of(ip)
        except ValueError:
            return False
        return any(address in network for network in self._networks)


class _Account:
    """A user with its keys and its permissions."""

    def __init__(self, user: User) -> None:
        if not user.username or not user.password:
            raise ValueError("a user has a username and a password")
        if user.user_type not in ("Super", "Normal") or user.user_status not in ("enable", "disable"):
            raise ValueError(f"{user.username} is Super or Normal, and enable or disable")
        self.keys: Keys = Keys(user.username, user.password)
        self.is_super: bool = user.user_type == "Super"
        self.is_enabled: bool = user.user_status == "enable"
        self.policies: dict[str, list[_Grant]] = {"Custom": [], "Default": []}

    def first(self, need: Need, ip: str) -> _Grant | None:
        """The entry that decides; None when none is about it."""
        grants = chain.from_iterable(self.policies.values())
        return next((grant for grant in grants if grant.matches(need, ip)), None)


class Permissions:
    """Checks each request before it is served."""

    def __init__(self, file: ConfigFile, saved: Saved, *, cluster: str, everything: bool) -> None:
        """Raises ValueError for what it cannot understand."""
        self._file, self._cluster, self._everything = file, cluster, everything
        self.saved: Saved = saved
        self._accounts = _accounts(saved)
        self._is_changing = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<Permissions of {len(self._accounts)} users>"

    @classmethod
    def load(cls, file: ConfigFile, config: BrokerConfig) -> Permissions | None:
        """None when the broker asks for no keys. Raises ConfigError for what it cannot understand."""
        if not config.authentication:
            if config.authorization:
                raise ConfigError("broker.authorization", "needs users that are known: set broker.authentication too")
            return None
        place, content = file.place, file.load() or {}
        try:
            saved = msgspec.convert(content, Saved)
            _accounts(saved)
            if config.admin_user:
                place = "broker.admin_user"
                admin = msgspec.json.decode(config.admin_user, type=User)
                if all(user.username != admin.username for user in saved.users):
                    admin = msgspec.structs.replace(admin, user_type="Super")
                    saved = msgspec.structs.replace(saved, users=[*saved.users, admin])
            permissions = cls(file, saved, cluster=config.cluster, everything=not config.authorization)
        except (msgspec.MsgspecError, ValueError) as error:
            raise ConfigError(place, str(error)) from None
        if not permissions._accounts:
            problem = f"there is no user: set broker.admin_user, or write {file.place}"
            raise ConfigError("broker.authentication", problem)
        return permissions

    async def change(self, make: Callable[[], Saved], run: Callable[[Callable[[], object]], Awaitable[None]]) -> None:
        """Let what this makes of the present users and policies be the present ones, one change after the other.

        They are written first, so that a start finds them, or those before. `run`: runs that where the event loop does
        not wait for the disk. Raises ValueError for what cannot be understood, StoreError for what cannot be written.
        """
        async with self._is_changing:
            saved = make()
            accounts = _accounts(saved)
            try:
                await run(partial(self._file.save, msgspec.to_builtins(saved)))
            except OSError as error:
                with contextlib.suppress(OSError):  # it may be in its place already, without surviving a loss of power
                    await run(partial(self._file.save, msgspec.to_builtins(self.saved)))
                raise StoreError(f"users cannot be written: {error}", is_unknown=True) from None
            self.saved, self._accounts = saved, accounts

    def operator_keys(self) -> tuple[str, str] | None:
        """The access key and the secret key of a user that may do everything; None when there is none."""
        found = (user for user in self.saved.users if self._accounts[user.username].is_super)
        user = next((user for user in found if self._accounts[user.username].is_enabled), None)
        return None if user is None else (user.username, user.password)

    def is_super(self, command: Command) -> bool:
        """Whether the user that has signed this request may do everything."""
        account = self._accounts.get((command.fields or {}).get(ACCESS_KEY, ""))
        return account is not None and account.is_super

    def check(self, connection: Connection, command: Command, needs: Needs) -> None:
        """Raises BrokerError 16 unless the request is signed by a user that may make it, or is one for everybody."""
        if needs is FOR_EVERYBODY:
            return
        account = self._signer(command)
        if account.is_super or self._everything:
            return
        ip = split_address(connection.peer)[0]
        for need in needs_of(needs, command, self._cluster):
            grant = account.first(need, ip)
            if grant is None or not grant.is_allowed:
                why = "no matched policies" if grant is None else "the decision is deny"
                name = (command.fields or {})[ACCESS_KEY]
                whom, what = f"User:{name}", f"{need.kind or 'Cluster'}:{need.name}"
                refuse(f"{whom} has no permission to access {what} from {ip}, {why}.")

    def _signer(self, command: Command) -> _Account:
        fields = command.fields or {}
        name = fields.get(ACCESS_KEY)
        if not name:
            refuse("username cannot be null.")
        account = self._accounts.get(name)
        if account is None:
            refuse(f"User:{name} is not found.")
        if not account.is_enabled:
            refuse(f"User:{name} is disabled.")
        given = fields.get(SIGNATURE, "").encode("utf-8", "replace")
        if not hmac.compare_digest(account.keys.signature(fields, command.body).encode(), given):
            refuse("check signature failed.")
        return account


def _accounts(saved: Saved) -> dict[str, _Account]:
    accounts: dict[str, _Account] = {}
    for user in saved.users:
        if user.username in accounts:
            raise ValueError(f"there are two users {user.username}")
        accounts[user.username] = _Account(user)
    for acl in saved.acls:
        kind, _, name = acl.subject.partition(":")
        account = accounts.get(name)
        if kind != "User" or account is None:
            raise ValueError(f"the subject {acl.subject} is not User: and the name of a user")
        for policy in acl.policies:
            if policy.policy_type not in account.policies:
                raise ValueError(f"a policy of {acl.subject} is Custom or Default, not {policy.policy_type!r}")
            account.policies[policy.policy_type] += map(_Grant, policy.entries)
            account.policies[policy.policy_type].sort(key=lambda grant: grant.order)
    return accounts


def refuse(remark: str) -> NoReturn:
    """With the code of Apache RocketMQ's access control."""
    raise BrokerError(ResponseCode.NO_PERMISSION, remark)


# What a request needs.


def needs_of(needs: Needs, command: Command, cluster: str) -> Iterable[Need]:
    """All that the request needs, as the line above its processor's method says. ProtocolError: a body is not legal.

    A request about a topic without a name needs the permission for the empty name, which only an entry for all gives.
    """
    if callable(needs):
        yield from needs(command.body)
        return
    fields = command.fields or {}
    for rule in needs or ():
        if rule.kind == "Cluster":
            yield Need("Cluster", cluster, rule.actions)
            continue
        names = [fields[name] for name in rule.fields if name in fields]
        yield from (_need(rule, name) for name in names or ([] if rule.is_optional else [""]))


def _need(rule: NeedRule, name: str) -> Need:
    """Who may consume as a group may use its retry topic and its dead letters."""
    for prefix in (RETRY_PREFIX, DLQ_PREFIX):
        if name.startswith(prefix):
            actions = ("Sub",) if rule.actions == ("Pub",) else rule.actions
            return Need("Group", name.removeprefix(prefix), actions)
    return Need(rule.kind, name, rule.actions)


def _consume(group: str, topics: Iterable[str]) -> Iterable[Need]:
    yield _need(on_group("Sub"), group)
    for topic in sorted(set(topics)):
        if not topic.startswith(RETRY_PREFIX):
            yield _need(on_topic("Sub"), topic)


def of_heartbeat(body: bytes) -> Iterable[Need]:
    for consumer in Heartbeat.decode(body).consumers:
        yield from _consume(consumer.group, (subscription.topic for subscription in consumer.subscriptions))


def of_locks(body: bytes) -> Iterable[Need]:
    asked = LockBody.decode(body)
    return _consume(asked.group, (queue.topic for queue in asked.queues))
