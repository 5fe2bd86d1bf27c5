"""Client credentials: namespace, request signature and TLS, made once from the settings of a client.

This is the only place that signs requests: every request passes a connection of this client. Responses are not signed,
because brokers do not check them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketapp.config.client import ClientConfig
from rocketapp.errors import ConfigError
from rocketapp.model.names import topic_problem
from rocketapp.transport.tls import Tls, make_tls
from rocketapp.wire.command import Command
from rocketapp.wire.signing import Keys

if TYPE_CHECKING:
    from rocketapp.wire.namespace import Namespace

ONLY_WITH_TLS = ("ca_file", "tls_server_name", "cert_file", "key_file", "key_password")


class Access:
    """Adds namespace and signature to requests, and removes the namespace from what is received."""

    __slots__ = ("_keys", "_namespace", "is_plain", "tls")

    def __init__(self, *, tls: Tls | None = None, namespace: Namespace | None = None, keys: Keys | None = None) -> None:
        self.tls: Tls | None = tls
        self._namespace, self._keys = namespace, keys
        self.is_plain: bool = namespace is None and keys is None
        """Whether requests and responses stay as they are."""

    def complete(self, request: Command) -> None:
        """Add the namespace to a request, then its signature, which covers everything else."""
        if self._namespace is not None:
            self._namespace.complete(request)
        if self._keys is not None:
            request.fields = self._keys.sign(request.fields, request.body)

    def restore(self, request: Command | None, received: Command) -> None:
        """Remove the namespace from a response (to `request`) or from a request of the peer, before it is read."""
        if self._namespace is not None:
            self._namespace.restore(request, received)

    def body(self, body: bytes) -> bytes:
        """The JSON body of a response of ours, with the namespace added."""
        return body if self._namespace is None else self._namespace.body(body)


def access_of(config: ClientConfig, tls: Tls | None = None) -> Access:
    """`tls`: what `tls_of` made of the same settings before, so that files are read once. Raises ConfigError."""
    tls = tls_of(config) if tls is None else tls
    return Access(tls=tls, namespace=namespace_of(config), keys=keys_of(config))


def keys_of(config: ClientConfig) -> Keys | None:
    """What signs requests; None without access keys. Raises ConfigError when one of the two is missing."""
    access_key, secret_key, token = config.access_key, config.secret_key, config.security_token
    if not access_key and not secret_key:
        if token:
            raise ConfigError("client.security_token", "belongs to access keys: set client.access_key and secret_key")
        return None
    if not access_key or not secret_key:
        missing, given = ("access_key", "secret_key") if not access_key else ("secret_key", "access_key")
        raise ConfigError(f"client.{missing}", f"is empty, and client.{given} is set: set both or none")
    return Keys(access_key, secret_key, token)


def namespace_of(config: ClientConfig) -> Namespace | None:
    """The namespace of topics and groups; None without one. Raises ConfigError for a name that topics cannot have."""
    if not config.namespace:
        return None
    if "%" in config.namespace or topic_problem(config.namespace) is not None:
        problem = f"{config.namespace!r}: only letters, digits and the signs | _ - are legal"
        raise ConfigError("client.namespace", problem)
    from rocketapp.wire.namespace import Namespace

    return Namespace(config.namespace)


def tls_of(config: ClientConfig) -> Tls | None:
    """How connections are encrypted; None when they are not.

    Raises ConfigError for files that cannot be used, and for options that say nothing without `client.tls`: who sets
    them expects encrypted connections.
    """
    if not config.tls:
        for name in ONLY_WITH_TLS:
            if getattr(config, name):
                raise ConfigError(f"client.{name}", "is set, and client.tls is not: set client.tls = true")
        return None
    if config.key_file and not config.cert_file:
        raise ConfigError("client.cert_file", "is empty, and client.key_file is set: name the certificate as well")
    return make_tls(config)
