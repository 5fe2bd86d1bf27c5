"""Certificates for tests of TLS: an authority of our own, made by openssl, and what it issues."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate and its key, as PEM files. The key is PKCS#8, which Java reads too."""

    cert: Path
    key: Path


class Authority:
    """Issues certificates into one folder."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self._folder = folder
        self.cert, self._key = folder / f"{name}.pem", folder / f"{name}.key"
        request = ("req", "-x509", *_NEW_KEY, "-days", "2", "-subj", f"/CN={name}")
        _openssl(*request, "-keyout", str(self._key), "-out", str(self.cert))

    def issue(self, name: str, *, names: str, expired: bool = False) -> Issued:
        """A certificate for these subject alternative names, such as `DNS:broker.example,IP:127.0.0.1`."""
        issued = Issued(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        request, extensions = self._folder / f"{name}.csr", self._folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName={names}\n")
        _openssl("req", *_NEW_KEY, "-subj", f"/CN={name}", "-keyout", str(issued.key), "-out", str(request))
        days = "-1" if expired else "2"
        signing = ("-CA", str(self.cert), "-CAkey", str(self._key), "-CAcreateserial", "-days", days)
        _openssl("x509", "-req", "-in", str(request), *signing, "-extfile", str(extensions), "-out", str(issued.cert))
        return issued


_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=300)
