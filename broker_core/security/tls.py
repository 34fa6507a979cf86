"""The broker's TLS context, reloaded when its files change. With `tls_client_ca_file`, the broker asks for a client certificate
and verifies it. A client without one can log in by another mechanism."""

from __future__ import annotations

import contextlib
import logging
import os
import ssl
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from .. import errors
from ..settings.keys import Settings
from ..wrong_port import end_of
from . import users_file

REFRESH_S = 1.0  # between two checks of the files

log = logging.getLogger("penstock.security")


class TlsFiles(NamedTuple):
    """Contents of the files."""

    cert: bytes
    key: bytes
    client_ca: bytes | None = None

    def __repr__(self) -> str:
        return "TlsFiles(…)"  # keeps the key out of logs


class ServerTls:
    """Creates and reloads the TLS context. Thread-safe.

    `protocols`: for ALPN. `files`: valid contents that another process has read. Raises InvalidRequest if a file cannot be used
    at the start. Later the last valid context stays in use.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        protocols: Sequence[str] = (),
        files: TlsFiles | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        if settings.tls_cert_file is None or settings.tls_key_file is None:
            raise errors.InvalidRequest("TLS needs a certificate of the broker: set tls_cert_file and tls_key_file")
        self._cert, self._key, self._client_ca = settings.tls_cert_file, settings.tls_key_file, settings.tls_client_ca_file
        self._protocols = list(protocols)
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._looked = monotonic()
        self._marks = self._marks_now() if files is None else []
        self._files = self._read() if files is None else files
        self._context = self._make(self._files)

    @property
    def files(self) -> TlsFiles:
        """The newest valid contents, read again if necessary."""
        with self._lock:
            self._refresh()
            return self._files

    def context(self) -> ssl.SSLContext:
        with self._lock:
            if self._monotonic() - self._looked >= REFRESH_S:
                self._looked = self._monotonic()
                self._refresh()
            return self._context

    def _refresh(self) -> None:
        marks = self._marks_now()
        if marks == self._marks:
            return
        before, self._marks = self._marks, marks
        try:
            files = self._read()
            if files != self._files:
                self._context, self._files = self._make(files), files
                log.info("the TLS certificate %s was reloaded", self._cert)
        except errors.ResourceLimit as error:
            self._marks = before
            log.error("%s; the broker tries again, and the previous certificate stays in use", error)
        except errors.InvalidRequest as error:
            # Also between the replacements of a certificate and its key.
            log.error("%s; the previous certificate stays in use", error)

    def _marks_now(self) -> list[users_file.Mark | None]:
        return [users_file.mark_of(path) for path in (self._cert, self._key, self._client_ca) if path is not None]

    def _read(self) -> TlsFiles:
        # The checked bytes are those of the context, and an error names the file, unlike OpenSSL.
        cert, key = _read("tls_cert_file", self._cert), _read("tls_key_file", self._key)
        return TlsFiles(cert, key, None if self._client_ca is None else _read("tls_client_ca_file", self._client_ca))

    def _make(self, files: TlsFiles) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # With renegotiation, clients could cause work (OpenSSL 3.0 and later refuse it).
        context.options |= getattr(ssl, "OP_NO_RENEGOTIATION", 0)
        # No resumption in TLS 1.3: a resumed session presents a certificate without verification. TLS 1.2 can resume with a
        # ticket, and `Access.user_of_certificate` checks the date.
        context.num_tickets = 0
        try:
            with _as_file(files.cert) as cert, _as_file(files.key) as key:
                context.load_cert_chain(cert, key, password=_no_password)
        except _Encrypted:
            raise errors.InvalidRequest(f"tls_key_file {self._key} is encrypted: a broker cannot ask for its password") from None
        except (ssl.SSLError, OSError) as error:
            _check_shortage("tls_cert_file", self._cert, error)
            raise errors.InvalidRequest(
                f"tls_cert_file {self._cert} and tls_key_file {self._key} cannot be used together: {_reason(error)}; each is PEM,"
                " the certificate first in its chain, the key its own"
            ) from error
        if self._protocols:
            context.set_alpn_protocols(self._protocols)
        if files.client_ca is not None:
            try:
                with _as_file(files.client_ca) as client_ca:
                    context.load_verify_locations(client_ca)
            except (ssl.SSLError, OSError) as error:
                _check_shortage("tls_client_ca_file", self._client_ca, error)
                raise errors.InvalidRequest(
                    f"tls_client_ca_file {self._client_ca} cannot be used: {_reason(error)}; it must contain certificates in PEM"
                ) from error
            context.verify_mode = ssl.CERT_OPTIONAL
        return context


class _Encrypted(Exception):
    pass


def _no_password() -> str:
    """Without this, OpenSSL would ask at the terminal, and the broker would not start."""
    raise _Encrypted


def ends_at(path: Path) -> float:
    """Return the first certificate's expiry, in seconds since 1970. Raises OSError, ValueError."""
    text = path.read_text(encoding="ascii", errors="replace")
    begin = text.find(ssl.PEM_HEADER)
    end = text.find(ssl.PEM_FOOTER, begin)
    if begin < 0 or end < 0:
        raise ValueError(f"{path} contains no certificate in PEM")
    try:
        return end_of(ssl.PEM_cert_to_DER_cert(text[begin : end + len(ssl.PEM_FOOTER)])).timestamp()
    except (IndexError, ValueError) as error:
        raise ValueError(f"{path}: the certificate cannot be read: {error}") from None


def _read(name: str, path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        _check_shortage(name, path, error)
        raise errors.InvalidRequest(f"{name} {path} cannot be read: {error.strerror or error}") from error


@contextlib.contextmanager
def _as_file(data: bytes) -> Iterator[str]:
    """Give bytes a path, which OpenSSL needs for keys: in memory if the system supports it."""
    memory = _memory()
    if memory is not None:
        with os.fdopen(memory, "wb") as file:
            file.write(data)
            file.flush()
            yield f"/proc/self/fd/{memory}"
    else:
        with tempfile.NamedTemporaryFile() as named:  # only its owner can read it
            named.write(data)
            named.flush()
            yield named.name


def _memory() -> int | None:
    """Return None if the system does not allow it."""
    if not hasattr(os, "memfd_create") or not os.path.isdir("/proc/self/fd"):
        return None
    try:
        return os.memfd_create("pem")
    except OSError as error:
        if error.errno in users_file.SHORTAGE:
            raise
        return None


def _check_shortage(name: str, path: Path | None, error: OSError) -> None:
    if error.errno in users_file.SHORTAGE:
        raise errors.ResourceLimit(f"{name} {path} cannot be read now: {error.strerror or error}") from error


def _reason(error: OSError) -> str:
    return getattr(error, "reason", None) or error.strerror or str(error)
