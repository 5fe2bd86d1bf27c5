"""Access keys and TLS, as values. What is secret is in no `repr`. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """How servers are checked, and how this client names itself."""

    ca_file: str = ""
    """Certificates that are trusted; empty: those of the system."""
    cert_file: str = ""
    key_file: str = ""
    key_password: str = field(default="", repr=False)
    verify: bool = True
    """False: any certificate is accepted."""
    check_host: bool = True
    """Whether the certificate has to name the address that was dialled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """What every connection needs: keys and TLS."""

    access_key: str = ""
    secret_key: str = field(default="", repr=False)
    security_token: str = field(default="", repr=False)
    tls: Tls | None = None
