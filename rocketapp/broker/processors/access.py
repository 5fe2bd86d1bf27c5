"""Requests of administrators about users and their policies, which are changed while the broker runs.

Codes AUTH_CREATE_USER 3001, AUTH_UPDATE_USER 3002, AUTH_DELETE_USER 3003, AUTH_GET_USER 3004, AUTH_LIST_USER 3005,
AUTH_CREATE_ACL 3006, AUTH_UPDATE_ACL 3007, AUTH_DELETE_ACL 3008, AUTH_GET_ACL 3009, AUTH_LIST_ACL 3010 (Java:
AdminBrokerProcessor, AuthorizationMetadataManagerImpl). A change is answered when it is written, and counts from then
on; one change is made after the other. One that cannot be written does not count: what was before is written again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from rocketapp.broker.permissions import AccessPolicy, Acl, Entry, Permissions, Saved, User, refuse
from rocketapp.errors import BrokerError
from rocketapp.transport.answers import CHANGE_CLUSTER, DONE, SEE_CLUSTER, Answer, answers
from rocketapp.transport.connection import Connection
from rocketapp.wire import fields as read
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import Command

_Body = TypeVar("_Body")


class _UserInfo(msgspec.Struct, frozen=True, rename="camel"):
    password: str | None = None
    user_type: str | None = None
    user_status: str | None = None


def _changes(change: Callable[[AccessProcessor, Command], Saved]) -> Callable[..., Coroutine[Any, Any, bytes]]:
    """Makes the change that a method finds, when the one before it is made."""

    async def process(self: AccessProcessor, connection: Connection, command: Command) -> bytes:
        try:
            await self._permissions.change(partial(change, self, command), self._run)
        except ValueError as error:
            refuse(str(error))
        return DONE

    return process


class AccessProcessor:
    """Shows and changes users and their policies."""

    def __init__(self, permissions: Permissions, run: Callable[[Callable[[], object]], Awaitable[None]]) -> None:
        self._permissions, self._run = permissions, run

    # What is shown.

    @answers(RequestCode.AUTH_GET_USER, needs=SEE_CLUSTER)
    def user(self, connection: Connection, command: Command) -> Answer:
        return _shown(self._user(read.text(command.fields, "username")))

    @answers(RequestCode.AUTH_LIST_USER, needs=SEE_CLUSTER)
    def users(self, connection: Connection, command: Command) -> Answer:
        part = read.text(command.fields, "filter", "")
        found = [user for user in self._permissions.saved.users if part in user.username]
        return _shown(sorted(found, key=lambda user: user.username))

    @answers(RequestCode.AUTH_GET_ACL, needs=SEE_CLUSTER)
    def acl(self, connection: Connection, command: Command) -> Answer:
        return _shown(self._acl(read.text(command.fields, "subject")))

    @answers(RequestCode.AUTH_LIST_ACL, needs=SEE_CLUSTER)
    def acls(self, connection: Connection, command: Command) -> Answer:
        subject, resource = (read.text(command.fields, name, "") for name in ("subjectFilter", "resourceFilter"))
        acls = (acl for acl in self._permissions.saved.acls if subject in acl.subject)
        found = [_only(acl, lambda policy, entry: resource in entry.resource) for acl in acls]
        return _shown(sorted((acl for acl in found if acl.policies), key=lambda acl: acl.subject))

    # What is changed.

    @answers(RequestCode.AUTH_CREATE_USER, needs=CHANGE_CLUSTER)
    @_changes
    def create_user(self, command: Command) -> Saved:
        name, info = read.text(command.fields, "username", ""), _body(command, _UserInfo)
        if not name.strip():
            raise BrokerError(ResponseCode.INVALID_PARAMETER, "The username is blank")
        if self._user(name) is not None:
            refuse("The user is existed")
        user = _with(User(name, info.password or ""), info)
        self._check_super(command, "create", user)
        saved = self._permissions.saved
        return replace(saved, users=[*saved.users, user])

    @answers(RequestCode.AUTH_UPDATE_USER, needs=CHANGE_CLUSTER)
    @_changes
    def update_user(self, command: Command) -> Saved:
        user = self._user(read.text(command.fields, "username"))
        if user is None:
            refuse("The user is not exist")
        changed = _with(user, _body(command, _UserInfo))
        self._check_super(command, "update", user, changed)
        saved = self._permissions.saved
        return replace(saved, users=[changed if each is user else each for each in saved.users])

    @answers(RequestCode.AUTH_DELETE_USER, needs=CHANGE_CLUSTER)
    @_changes
    def delete_user(self, command: Command) -> Saved:
        name, saved = read.text(command.fields, "username"), self._permissions.saved
        user = self._user(name)
        if user is not None:
            self._check_super(command, "delete", user, code=ResponseCode.NO_PERMISSION)
        users = [each for each in saved.users if each.username != name]
        return Saved(users, [acl for acl in saved.acls if acl.subject != f"User:{name}"])

    @answers(RequestCode.AUTH_CREATE_ACL, RequestCode.AUTH_UPDATE_ACL, needs=CHANGE_CLUSTER)
    @_changes
    def update_acl(self, command: Command) -> Saved:
        """Entries about the same resource are replaced, others stay."""
        subject, saved = read.text(command.fields, "subject"), self._permissions.saved
        if self._user(subject.removeprefix("User:")) is None:
            refuse(f"The subject of {subject} is not exist.")
        policies = {} if (acl := self._acl(subject)) is None else {each.policy_type: each for each in acl.policies}
        for given in _body(command, Acl).policies:
            kind = given.policy_type.capitalize()
            before = policies.get(kind, AccessPolicy([], kind)).entries
            entries = {entry.resource: entry for entry in (*before, *map(_entry, given.entries))}
            policies[kind] = AccessPolicy(list(entries.values()), kind)
        others = [each for each in saved.acls if each.subject != subject]
        return replace(saved, acls=[*others, Acl(subject, list(policies.values()))])

    @answers(RequestCode.AUTH_DELETE_ACL, needs=CHANGE_CLUSTER)
    @_changes
    def delete_acl(self, command: Command) -> Saved:
        """Without a resource, all policies of the subject."""
        subject, saved = read.text(command.fields, "subject"), self._permissions.saved
        kind, resource = (read.text(command.fields, name, "") for name in ("policyType", "resource"))
        acl = self._acl(subject)
        if acl is None:
            refuse("The acl is not exist.")
        kind = (kind or "Custom").capitalize()
        left = _only(acl, lambda policy, entry: policy.policy_type != kind or entry.resource != resource)
        others = [each for each in saved.acls if each.subject != subject]
        return replace(saved, acls=[*others, left] if left.policies and resource else others)

    def _user(self, name: str) -> User | None:
        return next((user for user in self._permissions.saved.users if user.username == name), None)

    def _acl(self, subject: str) -> Acl | None:
        return next((acl for acl in self._permissions.saved.acls if acl.subject == subject), None)

    def _check_super(
        self, command: Command, what: str, *users: User, code: ResponseCode = ResponseCode.SYSTEM_ERROR
    ) -> None:
        if any(user.user_type == "Super" for user in users) and not self._permissions.is_super(command):
            raise BrokerError(code, f"The super user can only be {what} by super user")


def _shown(found: User | Acl | list[User] | list[Acl] | None) -> bytes:
    """The JSON body; empty when there is nothing, as Apache RocketMQ answers."""
    return msgspec.json.encode(found) if found else b""


def _body(command: Command, kind: type[_Body]) -> _Body:
    try:
        return msgspec.json.decode(command.body, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise BrokerError(ResponseCode.INVALID_PARAMETER, str(error)) from None


def _with(user: User, info: _UserInfo) -> User:
    """The user with the given fields changed."""
    return User(
        user.username,
        info.password or user.password,
        (info.user_type or user.user_type).capitalize(),
        (info.user_status or user.user_status).lower(),
    )


def _entry(given: Entry) -> Entry:
    actions = [action.strip().capitalize() for action in given.actions]
    return replace(given, actions=actions, decision=given.decision.capitalize())


def _only(acl: Acl, keeps: Callable[[AccessPolicy, Entry], bool]) -> Acl:
    """The policies without entries for which `keeps` is False."""
    policies = [replace(each, entries=[one for one in each.entries if keeps(each, one)]) for each in acl.policies]
    return Acl(acl.subject, [each for each in policies if each.entries])
