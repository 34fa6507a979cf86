"""`ServerTls`: the broker's TLS context, from the files of the settings, made anew when they change.

TLS 1.2 and later. A client's certificate is asked for when `tls_client_ca_file` says who may sign it, and verified when there is
one; a client without goes on, and logs in by another mechanism.
"""

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
from . import store

REFRESH_S = 1.0  # how often the files are looked at, at most

log = logging.getLogger("penstock.security")


class Held(NamedTuple):
    """Contents of the files of a context, when it was made."""

    cert: bytes
    key: bytes
    client_ca: bytes | None = None

    def __repr__(self) -> str:
        return "Held(…)"  # the key is for no log


class ServerTls:
    """Thread-safe. `protocols`: what is spoken inside (ALPN). `held`: what to begin with, where another process has read the
    files; whatever has become of them, it is good.

    InvalidRequest, naming the file, when one cannot be used at the start; later the last good context goes on.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        protocols: Sequence[str] = (),
        held: Held | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        if settings.tls_cert_file is None or settings.tls_key_file is None:
            raise errors.InvalidRequest("TLS needs a certificate of the broker: set tls_cert_file and tls_key_file")
        self._cert, self._key, self._client_ca = settings.tls_cert_file, settings.tls_key_file, settings.tls_client_ca_file
        self._protocols = list(protocols)
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._looked = monotonic()
        self._marks = self._marks_now() if held is None else []
        self._held = self._read() if held is None else held
        self._context = self._make(self._held)

    @property
    def held(self) -> Held:
        """The newest that are good, as `context`; the files are looked at now."""
        with self._lock:
            self._refresh()
            return self._held

    def context(self) -> ssl.SSLContext:
        """The one for the next connection; those that are open keep theirs."""
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
            held = self._read()
            if held != self._held:
                self._context, self._held = self._make(held), held
                log.info("the TLS certificate %s was read again", self._cert)
        except errors.ResourceLimit as error:
            self._marks = before
            log.error("%s; it is tried again, and the previous certificate stays in use", error)
        except errors.InvalidRequest as error:
            # Also between the replacement of the certificate and that of its key, when the two do not fit each other.
            log.error("%s; the previous certificate stays in use", error)

    def _marks_now(self) -> list[store.Mark | None]:
        return [store.mark_of(path) for path in (self._cert, self._key, self._client_ca) if path is not None]

    def _read(self) -> Held:
        # Once, so that what is checked is what is used. OpenSSL would not say which one cannot be read.
        cert, key = _read("tls_cert_file", self._cert), _read("tls_key_file", self._key)
        return Held(cert, key, None if self._client_ca is None else _read("tls_client_ca_file", self._client_ca))

    def _make(self, held: Held) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # Renegotiation is work for the broker at a client's word (OpenSSL refuses it from 3.0 on).
        context.options |= getattr(ssl, "OP_NO_RENEGOTIATION", 0)
        # TLS 1.3 does not resume: a resumed session shows a certificate without verifying it. TLS 1.2 may, with a ticket that it
        # keeps itself, and `Access.user_of_certificate` looks at the date.
        context.num_tickets = 0
        try:
            with _as_file(held.cert) as cert, _as_file(held.key) as key:
                context.load_cert_chain(cert, key, password=_no_password)
        except _Encrypted:
            raise errors.InvalidRequest(
                f"tls_key_file {self._key} is encrypted: a broker starts without anybody to ask"
            ) from None
        except (ssl.SSLError, OSError) as error:
            _check_shortage("tls_cert_file", self._cert, error)
            raise errors.InvalidRequest(
                f"tls_cert_file {self._cert} and tls_key_file {self._key} cannot be used together: {_reason(error)}; each is PEM,"
                " the certificate first in its chain, the key its own"
            ) from error
        if self._protocols:
            context.set_alpn_protocols(self._protocols)
        if held.client_ca is not None:
            try:
                with _as_file(held.client_ca) as client_ca:
                    context.load_verify_locations(client_ca)
            except (ssl.SSLError, OSError) as error:
                _check_shortage("tls_client_ca_file", self._client_ca, error)
                raise errors.InvalidRequest(
                    f"tls_client_ca_file {self._client_ca} cannot be used: {_reason(error)}; it is certificates in PEM"
                ) from error
            context.verify_mode = ssl.CERT_OPTIONAL
        return context


class _Encrypted(Exception):
    pass


def _no_password() -> str:
    """Without this OpenSSL would ask at the terminal, and the broker never start."""
    raise _Encrypted


def _read(name: str, path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        _check_shortage(name, path, error)
        raise errors.InvalidRequest(f"{name} {path} cannot be read: {error.strerror or error}") from error


@contextlib.contextmanager
def _as_file(data: bytes) -> Iterator[str]:
    """Give octets a path, which is all that OpenSSL takes for keys: in memory where the system can and lets us."""
    memory = _memory()
    if memory is not None:
        with os.fdopen(memory, "wb") as file:
            file.write(data)
            file.flush()
            yield f"/proc/self/fd/{memory}"
    else:
        with tempfile.NamedTemporaryFile() as named:  # for its owner alone
            named.write(data)
            named.flush()
            yield named.name


def _memory() -> int | None:
    """Open a file in memory; None where there is none, or a container may not have one."""
    if not hasattr(os, "memfd_create") or not os.path.isdir("/proc/self/fd"):
        return None
    try:
        return os.memfd_create("pem")
    except OSError as error:
        if error.errno in store.SHORTAGE:
            raise
        return None


def _check_shortage(name: str, path: Path | None, error: OSError) -> None:
    if error.errno in store.SHORTAGE:
        raise errors.ResourceLimit(f"{name} {path} cannot be read now: {error.strerror or error}") from error


def _reason(error: OSError) -> str:
    return getattr(error, "reason", None) or error.strerror or str(error)
