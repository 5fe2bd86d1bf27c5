"""TLS of clients: what they trust, which certificate they show, and handshake failures in plain words.

The context is made once and reads its files then. A server's certificate must lead to a trusted authority and name the
server: the host of its address, or `server_name` for all servers.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import NamedTuple

from rocketapp.config.client import ClientConfig
from rocketapp.errors import ConfigError

_EXPIRED, _NOT_YET_VALID, _OTHER_HOST, _OTHER_ADDRESS = 10, 9, 62, 64
"""OpenSSL's numbers of what is wrong with a certificate (X509_V_ERR_...)."""


class Tls(NamedTuple):
    """The TLS context of a client, shared by all its connections."""

    context: ssl.SSLContext
    server_name: str
    """The name that servers' certificates must carry; empty: the host of the address."""


def make_tls(config: ClientConfig) -> Tls:
    """Reads the files, which are PEM. Raises ConfigError that names the option and the file.

    Without `ca_file` the authorities of the system are trusted; without `key_file` the key is in `cert_file`.
    """
    # With a file only its authorities: a public authority must not be able to name a server of this cluster.
    ca_file = config.ca_file
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if ca_file else ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if ca_file:
        _check_file("client.ca_file", ca_file)
        try:
            context.load_verify_locations(ca_file)
        except ssl.SSLError as error:
            raise ConfigError("client.ca_file", f"{ca_file} holds no certificate in PEM: {_words(error)}") from None
    if config.cert_file:
        load_own(context, config.cert_file, config.key_file, config.key_password)
    if not config.tls_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return Tls(context, config.tls_server_name)


def load_own(context: ssl.SSLContext, cert_file: str, key_file: str, key_password: str, table: str = "client") -> None:
    """Read the certificate that this process shows, and its key. Raises ConfigError in the words of that table."""
    _check_file(f"{table}.cert_file", cert_file)
    if key_file:
        _check_file(f"{table}.key_file", key_file)
    try:
        # A password is always given, for OpenSSL asks at the terminal when none is.
        context.load_cert_chain(cert_file, key_file or None, password=key_password)
    except ssl.SSLError as error:
        where = key_file or cert_file
        if error.reason == "KEY_VALUES_MISMATCH":
            problem = f"{where} is not the key of the certificate in {cert_file}"
            raise ConfigError(f"{table}.key_file", problem) from None
        problem = f"{cert_file} with the key in {where} cannot be used: {_words(error)}"
        mend = f"both must be PEM, and {table}.key_password must open the key"
        raise ConfigError(f"{table}.cert_file", f"{problem}: {mend}") from None


def _check_file(option: str, file: str) -> None:
    try:
        with Path(file).open("rb"):
            pass
    except OSError as error:
        problem = (error.strerror or str(error)).lower()
        raise ConfigError(option, f"{file} cannot be read: {problem}") from None


def handshake_problem(error: OSError, tls: Tls, host: str) -> str:
    """Why no TLS connection could be made, and what mends it."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _certificate_problem(error, tls.server_name or host)
    if isinstance(error, ssl.SSLError) and error.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"):
        return "it answers without TLS: switch TLS on there (tls.server.mode), or leave out client.tls"
    if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError):
        return alert_problem(error)
    return "it ended the TLS handshake: switch TLS on there (tls.server.mode), or leave out client.tls"


def _certificate_problem(error: ssl.SSLCertVerificationError, expected: str) -> str:
    if error.verify_code in (_EXPIRED, _NOT_YET_VALID):
        return f"its {error.verify_message}: renew it there, or correct the clock here"
    if error.verify_code in (_OTHER_HOST, _OTHER_ADDRESS):
        return f"its certificate does not name {expected}: set client.tls_server_name to a name that it carries"
    return f"its certificate is not trusted, {error.verify_message}: set client.ca_file to the authority that issued it"


def alert_problem(error: ssl.SSLError) -> str:
    """What a server said when it refused us, also after the handshake."""
    said = _words(error)
    if "certificate" in said or "unknown ca" in said:
        return f"it refuses our certificate, {said}: set client.cert_file and client.key_file to what it trusts"
    return f"TLS failed: {said}"


def _words(error: ssl.SSLError) -> str:
    """OpenSSL's reason without its place in the C source."""
    return (error.reason or error.strerror or str(error)).replace("_", " ").lower()
