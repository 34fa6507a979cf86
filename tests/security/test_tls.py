"""The broker's TLS context: accepted clients, and reloaded files (W1 W2)."""

from __future__ import annotations

import errno
import logging
import os
import ssl
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives import serialization

from penstock.broker_core import errors
from penstock.broker_core.security import ServerTls
from penstock.broker_core.security.tls import TlsFiles
from penstock.broker_core.settings.keys import Settings

from .helpers import Clock, access_of, user, write


@pytest.fixture(scope="module")
def ca() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def clients_ca() -> trustme.CA:
    return trustme.CA()


class Files:
    """Files with a broker's certificate, its key, and the CA of its clients."""

    def __init__(self, folder: Path, clients_ca: trustme.CA | None = None) -> None:
        self.cert, self.key = folder / "cert.pem", folder / "key.pem"
        self.client_ca = folder / "clients.pem" if clients_ca else None
        if clients_ca and self.client_ca:
            clients_ca.cert_pem.write_to_path(self.client_ca)
        self.folder = folder

    def put(self, issued: trustme.LeafCert) -> Files:
        self.cert.write_bytes(b"".join(pem.bytes() for pem in issued.cert_chain_pems))
        self.key.write_bytes(issued.private_key_pem.bytes())
        return self

    @property
    def settings(self) -> Settings:
        return Settings(
            data=self.folder / "data", tls_cert_file=self.cert, tls_key_file=self.key, tls_client_ca_file=self.client_ca
        )


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, name: str = "localhost") -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Both ends in memory, shaken; the first error of either is raised."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        server.wrap_bio(to_server, to_client, server_side=True),
        client.wrap_bio(to_client, to_server, server_hostname=name),
    ]
    for _ in range(10):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    for end in ends:
        end.do_handshake()
        with pytest.raises(ssl.SSLWantReadError):
            end.read(1)  # the last messages of TLS 1.3, such as a refused certificate
    return ends[0], ends[1]


def client_of(ca: trustme.CA, certificate: trustme.LeafCert | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context()
    ca.configure_trust(context)
    if certificate is not None:
        certificate.configure_cert(context)
    return context


def test_a_client_that_trusts_the_signer_is_served(tmp_path: Path, ca: trustme.CA) -> None:
    tls = ServerTls(Files(tmp_path).put(ca.issue_cert("localhost")).settings)
    _, client = handshake(tls.context(), client_of(ca))
    assert client.version() == "TLSv1.3"
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(tls.context(), client_of(trustme.CA()))
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(tls.context(), client_of(ca), name="elsewhere")


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_nothing_older_than_tls_1_2_is_spoken(tmp_path: Path, ca: trustme.CA) -> None:
    tls = ServerTls(Files(tmp_path).put(ca.issue_cert("localhost")).settings)
    client = client_of(ca)
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    assert handshake(tls.context(), client)[1].version() == "TLSv1.2"
    assert tls.context().minimum_version == ssl.TLSVersion.TLSv1_2
    client = client_of(ca)
    client.set_ciphers("ALL:@SECLEVEL=0")  # only the server may refuse TLS 1.1
    client.minimum_version, client.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    with pytest.raises(ssl.SSLError):
        handshake(tls.context(), client)


def test_a_clients_certificate_is_asked_for_verified_and_named(tmp_path: Path, ca: trustme.CA, clients_ca: trustme.CA) -> None:
    tls = ServerTls(Files(tmp_path, clients_ca).put(ca.issue_cert("localhost")).settings)
    access = access_of(write(tmp_path / "users.json", {"alice": user(None, "alice.example")}), Clock(0))

    def who(certificate: trustme.LeafCert | None) -> str | None:
        server, _ = handshake(tls.context(), client_of(ca, certificate))
        return access.user_of_certificate(server.getpeercert())

    assert who(clients_ca.issue_cert("x", common_name="alice.example")) == "alice"
    assert who(clients_ca.issue_cert("alice.example")) == "alice"
    assert who(clients_ca.issue_cert("mallory.example")) is None
    assert who(None) is None  # without one there are other mechanisms


def test_a_certificate_of_somebody_else_or_of_yesterday_is_refused(
    tmp_path: Path, ca: trustme.CA, clients_ca: trustme.CA
) -> None:
    tls = ServerTls(Files(tmp_path, clients_ca).put(ca.issue_cert("localhost")).settings)
    yesterday = datetime.now(timezone.utc) - timedelta(days=1)
    for wrong in (ca.issue_cert("alice.example"), clients_ca.issue_cert("alice.example", not_after=yesterday)):
        with pytest.raises(ssl.SSLError):
            handshake(tls.context(), client_of(ca, wrong))


def test_without_a_client_ca_nobody_is_asked_for_a_certificate(tmp_path: Path, ca: trustme.CA, clients_ca: trustme.CA) -> None:
    tls = ServerTls(Files(tmp_path).put(ca.issue_cert("localhost")).settings)
    server, _ = handshake(tls.context(), client_of(ca, clients_ca.issue_cert("alice.example")))
    assert not server.getpeercert()


def test_a_session_of_tls_1_3_is_not_resumed(tmp_path: Path, ca: trustme.CA, clients_ca: trustme.CA) -> None:
    """A resumed one shows the certificate of the first without verifying it. (One of TLS 1.2: see `user_of_certificate`.)"""
    tls = ServerTls(Files(tmp_path, clients_ca).put(ca.issue_cert("localhost")).settings)
    context = client_of(ca, clients_ca.issue_cert("alice.example"))
    _, first = handshake(tls.context(), context)
    assert first.session is None or not first.session.has_ticket


# --- files


def test_another_certificate_is_served_without_a_restart(tmp_path: Path, ca: trustme.CA) -> None:
    clock = Clock()
    files = Files(tmp_path).put(ca.issue_cert("old.example"))
    tls = ServerTls(files.settings, monotonic=clock)
    before = tls.context()
    files.put(ca.issue_cert("new.example"))
    assert tls.context() is before  # looked at a moment ago
    clock.pass_(1)
    handshake(tls.context(), client_of(ca), name="new.example")
    again = tls.context()
    clock.pass_(1)
    assert tls.context() is again


def test_a_certificate_without_its_key_keeps_the_one_before(
    tmp_path: Path, ca: trustme.CA, caplog: pytest.LogCaptureFixture
) -> None:
    """As between the two copies of a renewal; and both files are looked at again when the second is there."""
    clock = Clock()
    files = Files(tmp_path).put(ca.issue_cert("old.example"))
    tls = ServerTls(files.settings, monotonic=clock)
    issued = ca.issue_cert("new.example")
    files.cert.write_bytes(issued.cert_chain_pems[0].bytes())
    clock.pass_(1)
    with caplog.at_level(logging.ERROR):
        handshake(tls.context(), client_of(ca), name="old.example")
        clock.pass_(1)
        tls.context()
    assert [str(files.key) in record.getMessage() for record in caplog.records] == [True]
    files.key.write_bytes(issued.private_key_pem.bytes())
    clock.pass_(1)
    handshake(tls.context(), client_of(ca), name="new.example")


def test_what_is_checked_is_what_is_used(tmp_path: Path, ca: trustme.CA, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each file is read once. The next check finds a simultaneous change."""
    files = Files(tmp_path).put(ca.issue_cert("old.example"))
    real = Path.read_bytes

    def read_bytes(path: Path) -> bytes:
        data = real(path)
        if path == files.key:
            files.key.write_bytes(b"half of a ke")
        return data

    monkeypatch.setattr(Path, "read_bytes", read_bytes)
    handshake(ServerTls(files.settings).context(), client_of(ca), name="old.example")


def test_a_process_begins_with_what_another_holds(tmp_path: Path, ca: trustme.CA, caplog: pytest.LogCaptureFixture) -> None:
    """The process logs unusable files and loads good ones. Equal files change nothing."""
    clock = Clock()
    files = Files(tmp_path).put(ca.issue_cert("old.example"))
    contents = ServerTls(files.settings).files
    with caplog.at_level(logging.INFO):
        tls = ServerTls(files.settings, files=contents, monotonic=clock)
        before = tls.context()
        clock.pass_(1)
        assert tls.context() is before
        assert not caplog.records
        files.cert.write_bytes(b"not PEM")
        tls = ServerTls(files.settings, files=contents, monotonic=clock)
        clock.pass_(1)
        handshake(tls.context(), client_of(ca), name="old.example")
        assert ["stays in use" in record.getMessage() for record in caplog.records] == [True]
    files.put(ca.issue_cert("new.example"))
    clock.pass_(1)
    handshake(tls.context(), client_of(ca), name="new.example")


def test_a_key_that_is_held_is_not_printed() -> None:
    assert "secret" not in f"{TlsFiles(b'certificate', b'secret')!r} {TlsFiles(b'certificate', b'secret')}"


def test_where_a_system_lets_nobody_make_files_in_memory_the_certificate_is_used_all_the_same(
    tmp_path: Path, ca: trustme.CA, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container's filter, or vm.memfd_noexec."""

    def refused(name: str) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "memfd_create", refused, raising=False)
    files = Files(tmp_path).put(ca.issue_cert("localhost"))
    handshake(ServerTls(files.settings).context(), client_of(ca))


def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, ca: trustme.CA, clients_ca: trustme.CA) -> None:
    files = Files(tmp_path, clients_ca).put(ca.issue_cert("localhost"))
    assert files.client_ca is not None
    for path, name in ((files.cert, "tls_cert_file"), (files.key, "tls_key_file"), (files.client_ca, "tls_client_ca_file")):
        good = path.read_bytes()
        path.write_bytes(b"not PEM")
        with pytest.raises(errors.InvalidRequest, match=f"{name} {path}"):
            ServerTls(files.settings)
        path.unlink()
        with pytest.raises(errors.InvalidRequest, match=f"{name} {path} cannot be read: No such file"):
            ServerTls(files.settings)
        path.write_bytes(good)
    files.key.write_bytes(ca.issue_cert("another").private_key_pem.bytes())
    with pytest.raises(errors.InvalidRequest, match=f"{files.cert} and tls_key_file {files.key} cannot be used together"):
        ServerTls(files.settings)


def test_a_key_with_a_password_does_not_wait_for_somebody_at_a_terminal(tmp_path: Path, ca: trustme.CA) -> None:
    files = Files(tmp_path).put(ca.issue_cert("localhost"))
    key = serialization.load_pem_private_key(files.key.read_bytes(), None)
    files.key.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    with pytest.raises(errors.InvalidRequest, match="is encrypted"):
        ServerTls(files.settings)
