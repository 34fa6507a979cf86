"""Credentials of a client and the authorities that it trusts.

Files are read once, on the user's machine. Their content travels, so an executor on another machine needs no files. No secret is
in a repr or in the text of an error.
"""

from __future__ import annotations

import base64
import contextlib
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..errors import InvalidRequest
from .shared_access import SharedAccess

if TYPE_CHECKING:
    import ssl

#: Limit of a PEM file. A whole store of CAs is smaller.
MAX_PEM_BYTES = 4 << 20


@dataclass(frozen=True)
class Credentials:
    """`user` and `password` go together. `ca` (instead of the system's CAs), `cert` and `key` are PEM. `shared` is a key of Azure
    Service Bus, instead of a user and a certificate.
    """

    user: str | None = None
    password: str | None = field(default=None, repr=False)
    ca: bytes | None = field(default=None, repr=False)
    cert: bytes | None = field(default=None, repr=False)
    key: bytes | None = field(default=None, repr=False)
    shared: SharedAccess | None = None

    @classmethod
    def from_files(
        cls,
        user: str | None = None,
        password: str | None = None,
        ca_file: str | None = None,
        cert_file: str | None = None,
        key_file: str | None = None,
    ) -> Credentials:
        """Read and check the files. Raises InvalidRequest, which names the file."""
        if (user is None) != (password is None):
            raise InvalidRequest("a user needs a password and a password a user: give both, or neither")
        if key_file is not None and cert_file is None:
            raise InvalidRequest("a key file without a certificate file: give both")
        credentials = cls(
            user,
            password,
            None if ca_file is None else _read("CA file", ca_file),
            None if cert_file is None else _read("certificate file", cert_file),
            None if cert_file is None else _read("key file", key_file or cert_file),
        )
        if ca_file is not None:
            credentials._check(f"the CA file {ca_file} holds no certificate in PEM", ca=True)
        if cert_file is not None:
            credentials._check(
                f"the certificate {cert_file} and the key {key_file or cert_file} cannot be used: both must be PEM, belong"
                " together, and the key must not be encrypted",
                ca=False,
            )
        return credentials

    @property
    def certificates(self) -> bool:
        return self.ca is not None or self.cert is not None

    def tls_context(self) -> ssl.SSLContext:
        """Return a client's context. It verifies certificates and host names, against `ca` alone if set."""
        import ssl  # imported late: it takes longer than the rest that a task needs

        context = ssl.create_default_context(cadata=self.ca.decode("ascii", "replace") if self.ca is not None else None)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.cert is not None and self.key is not None:
            with _as_file(self.cert) as cert, _as_file(self.key) as key:
                context.load_cert_chain(cert, key, password=lambda: "")  # OpenSSL would ask on the terminal
        return context

    def _check(self, refusal: str, *, ca: bool) -> None:
        try:
            Credentials(ca=self.ca if ca else None, cert=None if ca else self.cert, key=self.key).tls_context()
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise InvalidRequest(refusal) from error

    def authorization(self) -> str | None:
        if self.user is None:
            return None
        return "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode()


NOBODY = Credentials()


def system_ca() -> bytes | None:
    """Return this machine's CAs as PEM, for a library that does not find them."""
    import ssl

    path = ssl.get_default_verify_paths().cafile
    try:
        return _read("CA file", path) if path else None
    except InvalidRequest:
        return None


def _read(kind: str, path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            content = file.read(MAX_PEM_BYTES + 1)
    except OSError as error:
        raise InvalidRequest(f"the {kind} {path} cannot be read: {error.strerror or error}") from error
    if len(content) > MAX_PEM_BYTES:
        raise InvalidRequest(f"the {kind} {path} has more than {MAX_PEM_BYTES:,} bytes: it is something else")
    return content


@contextlib.contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    """Yield a file for Python's ssl, which reads no key from memory: in memory, or private on other systems."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("penstock", os.MFD_CLOEXEC)
        try:
            with open(descriptor, "wb", closefd=False) as file:
                file.write(content)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    with tempfile.NamedTemporaryFile() as named:  # readable by this user only
        named.write(content)
        named.flush()
        yield named.name
