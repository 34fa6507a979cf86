"""The fields of `Settings` define the arguments of a program, the keys of the file (`--config`) and the flags of the command
line. A test compares them with `conf/penstock.toml`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from .. import errors
from ..quantities import KIB, MIB
from . import kinds as k
from . import listeners, strict_json
from .declarations import DeclaredBinding, DeclaredExchange, DeclaredPolicy, DeclaredQueue
from .listeners import Listener

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

#: The ports of `penstock serve`, and the default broker of the other commands.
DEFAULT_FLIGHT_PORT = 8815
DEFAULT_AMQP_PORT = 5672
DEFAULT_HTTP_PORT = 8816
DEFAULT_URL = f"grpc://127.0.0.1:{DEFAULT_FLIGHT_PORT}"


def key(default: Any, kind: k.Kind, why: str) -> Any:
    return field(default=default, metadata={"kind": kind, "why": why})


@dataclass(frozen=True)
class Settings:
    """Settings of a broker. The constructor checks values, converts texts such as "64 MiB", and makes paths absolute."""

    data: Path = field(metadata={"kind": k.PATH, "why": "The journal, its snapshots and the lock; one broker at a time."})
    host: str = key(
        "127.0.0.1", k.HOST, "The address to listen on: only this machine by default. Before you change it, add users and TLS."
    )
    log_level: str = key("info", k.choice("debug", "info", "warning", "error"), "The least severe messages in the log.")
    log_format: str = key("text", k.choice("text", "json"), "Format of the log lines: text, or JSON for programs.")
    audit_bytes: int = key(
        64 * MIB, k.size(MIB), "Size of the audit log, the folder audit in `data`. Above it, the oldest entries are deleted."
    )
    audit_age_s: float | None = key(
        365 * 86400.0, k.or_off(k.seconds(3600)), "How long entries stay in the audit log. off: until it is too large."
    )
    # A program uses free ports by default, `penstock serve` the documented ones (see `load`).
    flight_port: int = key(
        0, k.PORT, f"Arrow Flight, for Spark and the command line. `penstock serve` uses {DEFAULT_FLIGHT_PORT}."
    )
    amqp_port: int | None = key(
        0, k.PORT_OR_OFF, f"AMQP 1.0 at `host`, without TLS, if `listeners` is empty. `penstock serve` uses {DEFAULT_AMQP_PORT}."
    )
    # The listener at amqp_port has no TLS even if tls_cert_file is set: amqps has its own port, 5671.
    listeners: tuple[Listener, ...] = key(
        (), k.LISTENERS, "Several AMQP addresses, each with its own TLS, WebSocket, mechanisms and dialect, instead of amqp_port."
    )
    http_port: int | None = key(
        0, k.PORT_OR_OFF, f"HTTP: the page, metrics, health and the JSON API. `penstock serve` uses {DEFAULT_HTTP_PORT}."
    )
    http_host: str | None = key(None, k.HOST_OR_UNSET, "The address of HTTP. Left out: `host`.")
    http_names: tuple[str, ...] = key(
        (),
        k.NAMES,
        "Host names under which HTTP is reached, besides http_host, localhost and IP addresses. Other names are refused, because"
        " the name of a malicious page can point here (DNS rebinding).",
    )
    http_tls: bool = key(False, k.SWITCH, "HTTP with the broker's certificate: https instead of http.")
    http_max_connections: int = key(
        512,
        k.count(1, 100_000),
        "Open HTTP connections; a browser keeps up to six. Clients before their login use at most half of them, and at most 256."
        " One more closes the connection that has waited longest for its client.",
    )
    http_request_timeout_s: float = key(
        10.0,
        k.seconds(0.1),
        "Time from the connection, or from a request's first byte, until the request is complete. Then the connection is closed.",
    )
    http_sessions: int = key(
        1000,
        k.count(1, 100_000),
        "Simultaneous logins of the page, 1 KiB each. One more ends the login that has been idle longest.",
    )
    http_sessions_per_user: int = key(
        20,
        k.count(1, 100_000),
        "Simultaneous logins of one user. One more ends this user's login that has been idle longest, so repeated logins do not"
        " end those of other users.",
    )
    http_session_idle_s: float = key(
        1800.0, k.seconds(1), "Lifetime of a login without a request; at most an hour, as its token."
    )
    http_session_s: float = key(43_200.0, k.seconds(1), "Longest lifetime of a login of the page: a working day.")
    http_metrics_queues: int = key(
        1000,
        k.count(0, 100_000),
        "Queues with their own metrics, beginning with the largest queues; the other queues are one sum. Each"
        " queue has about twenty time series.",
    )
    tls_cert_file: Path | None = key(None, k.FILE, "The broker's certificate and its chain, PEM. Read again when it changes.")
    tls_key_file: Path | None = key(None, k.FILE, "The key of tls_cert_file, PEM, without a password.")
    tls_client_ca_file: Path | None = key(
        None,
        k.FILE,
        "The authority that signs clients' certificates, PEM. A client logs in with one (EXTERNAL) as the user of that name.",
    )
    flight_tls: bool = key(False, k.SWITCH, "Arrow Flight with the same certificate: grpc+tls instead of grpc.")
    # A repeated declaration changes nothing.
    queues: tuple[DeclaredQueue, ...] = key((), k.QUEUES, "Queues that the broker declares at each start.")
    exchanges: tuple[DeclaredExchange, ...] = key((), k.EXCHANGES, "Exchanges that the broker declares at each start.")
    bindings: tuple[DeclaredBinding, ...] = key((), k.BINDINGS, "Bindings that the broker creates at each start.")
    policies: tuple[DeclaredPolicy, ...] = key(
        (),
        k.POLICIES,
        "For names that match a pattern: options that a declaration omits and, with create, the node that a first use creates.",
    )
    users_file: Path = key(None, k.FILE, "Users and permissions, written by `penstock user`. Left out: users.json in `data`.")
    allow_anonymous: bool = key(
        False,
        k.SWITCH,
        "Accepts clients without a user name from a network: AMQP offers ANONYMOUS there, and a broker without users starts "
        "there, open to every client. On loopback such clients are always accepted.",
    )
    fsync: str = key(
        "always",
        k.choice("always", "interval", "never"),
        "When a confirmed message is on the disk: always (before its confirmation, by group commit), within fsync_interval_s, or "
        "when the system writes it. With interval and never, a confirmed message survives kill -9 but not a power cut.",
    )
    fsync_interval_s: float = key(
        1.0, k.seconds(0.001), "With fsync = interval, a power cut loses at most the messages confirmed in this time."
    )
    copy_url: str | None = key(None, k.STORE, "A store for a copy of the data directory. Left out: no copy.")
    copy: str = key(
        "async",
        k.choice("async", "sync"),
        "async: the copy follows, and the loss of the machine loses its lag. sync: a message is confirmed after the copy has it.",
    )
    copy_interval_s: float = key(
        1.0, k.seconds(0.01), "With copy = async: seconds between two uploads. Each upload is a request to the store."
    )
    copy_bandwidth: int = key(
        100 * MIB, k.size(8 * MIB), "With copy = async: uploaded bytes per second, on average. More would slow down producers."
    )
    segment_bytes: int = key(
        256 * MIB,
        k.size(MIB),
        "Size of the journal's files: large enough that few are open, small enough for retention, which removes whole files.",
    )
    snapshot_every_bytes: int = key(
        256 * MIB,
        k.size(MIB),
        "Journal bytes between two snapshots. A restart reads at most this much, half a second on a slow disk.",
    )
    retention_age_s: float | None = key(
        None, k.or_unset(k.seconds(1)), "How long settled messages stay in the journal without an archive. Left out: unlimited."
    )
    retention_bytes: int | None = key(
        None,
        k.or_unset(k.size(MIB)),
        "Size of the journal, above which the oldest segments without unsettled messages are removed. Left out: no limit.",
    )
    clean_bandwidth: int | None = key(
        None, k.or_unset(k.size(MIB)), "Bytes per second for cleaning. Left out: a quarter of the disk's time."
    )
    archive: str = key(
        "archive",
        k.ARCHIVE,
        "Where settled messages are recorded: a Delta table for each queue. A relative path is in `data`. off: no archive.",
    )
    archive_message: str = key(
        "exact",
        k.choice("exact", "columns"),
        "Content of the tables for AMQP messages: columns and exact bytes, for a replay byte for byte, or columns only. The queue"
        " option archiveMessage overrides it.",
    )
    archive_after_s: float = key(
        60.0, k.seconds(0.1), "Longest time until a settled message is recorded: one file per minute for an active queue."
    )
    archive_file_bytes: int = key(
        128 * MIB,
        k.size(64 * KIB),
        "Stored bytes of settled messages that are recorded before that time, and about the size of a table's file.",
    )
    archive_retention_age_s: float | None = key(
        30 * 86400.0,
        k.or_off(k.seconds(1)),
        "How long messages stay recorded, by the day of their arrival, so that an unattended broker does not fill the disk.",
    )
    archive_compact_files: int = key(
        60, k.count(2, 1_000_000), "Number of small files of a table that are merged: those of an hour, for an active queue."
    )
    archive_vacuum_after_s: float = key(
        86400.0,
        k.seconds(0),
        "How long a file stays on the disk after its table's newest version omits it, for readers that still use it.",
    )
    free_space_mark_bytes: int = key(
        256 * MIB,
        k.size(MIB),
        "Below this much free disk the broker refuses new messages. Settling, purging and retention use the remaining space.",
    )
    free_space_low_bytes: int = key(
        1024 * MIB, k.size(MIB), "Below this much free disk the alarm disk-low is raised, some time before messages are refused."
    )
    max_batch_bytes: int = key(
        64 * MIB,
        k.size(KIB),
        "Size of one record batch on the wire and of one record in the journal; limits the memory of each client.",
    )
    max_message_bytes: int = key(
        32 * MIB, k.size(KIB), "Size of one message, body and properties. It must fit into a batch with the batch's own bytes."
    )

    max_batch_rows: int = key(
        1 << 20,
        k.count(1, 1 << 24),
        "Messages of one record batch, because empty messages need almost no bytes. A hundred times a batch of Spark.",
    )
    flight_max_connections: int = key(
        1024,
        k.count(1, 100_000),
        "Simultaneous Arrow Flight connections, each a thread and 100 KiB when idle. One more is closed immediately.",
    )
    flight_max_connections_per_user: int = key(
        512,
        k.count(1, 100_000),
        "Connections of one user, by default half of all, so that one user cannot use up all of them. Clients without a user "
        "name count as one user.",
    )
    flight_max_calls: int = key(
        512, k.count(1, 100_000), "Simultaneous Arrow Flight calls, each a thread; a Spark task makes one. One more is refused."
    )
    flight_max_calls_per_user: int = key(
        384,
        k.count(1, 100_000),
        "Calls of one user, by default three quarters of all, so that one user cannot use up all of them. Clients without a "
        "user name count as one user.",
    )
    flight_login_timeout_s: float = key(
        10.0,
        k.seconds(0.1),
        "Time from the connection to the first authenticated call, TLS included. Then a silent connection is closed.",
    )
    flight_receive_bytes: int = key(
        96 * MIB,
        k.size(MIB),
        "Memory for record batches while they are received, over all connections; more batches wait. A larger batch is received "
        "alone.",
    )

    max_publish_keys_per_user: int = key(
        100_000,
        k.count(1, 1_000_000),
        "Publish keys of one user (a txnAppId or a query's id for each queue), kept for a year after the last write. The default "
        "is a tenth of the broker's limit. Clients without a user name count as one user.",
    )

    amqp_max_frame_bytes: int = key(
        64 * KIB,
        k.size(512, most=16 * MIB),
        "Largest AMQP frame. Each connection can hold one incomplete frame. Larger messages use several frames.",
    )
    amqp_max_connections: int = key(
        4096,
        k.count(1, 1_000_000),
        "Simultaneous AMQP connections, each at most 100 KiB when idle: 400 MiB. One more is closed immediately.",
    )
    amqp_max_connections_per_user: int = key(
        2048,
        k.count(1, 1_000_000),
        "Connections of one user, by default half of all, so that one user cannot use up all of them. Clients without a user "
        "name count as one user.",
    )
    amqp_max_sessions: int = key(
        256, k.count(1, 65_536), "Sessions on one connection, a few KiB each. JMS uses one for each JMS session."
    )
    amqp_max_links: int = key(
        1024,
        k.count(1, 65_536),
        "Links on one connection, over all its sessions, a few KiB each: more than pools of consumers need.",
    )
    amqp_max_nodes_per_user: int = key(
        5000,
        k.count(1, 10_000),
        "Existing queues and exchanges that one user has created (dynamic nodes, subscriptions, first uses): half of the queues "
        "that a broker may have. Clients without a user name count as one user.",
    )
    amqp_check_user_id: bool = key(
        True,
        k.SWITCH,
        "If the broker has users, it refuses a message whose user-id is not its sender. Turn this off for a bridge, which sends "
        "messages of other users.",
    )
    amqp_max_detached_links_per_user: int = key(
        1000,
        k.count(0, 1_000_000),
        "Detached links of one user that keep their unsettled deliveries, a few KiB each: about as many as a connection may have "
        "attached. One more ends when it is detached, and its messages return. Clients without a user name count as one user.",
    )
    amqp_max_detached_deliveries_per_user: int = key(
        100_000,
        k.count(0, 10_000_000),
        "Unsettled deliveries of one user's detached links whose session has ended: as many as an open connection may have.",
    )
    amqp_max_expiry_timeout_s: int = key(
        300,
        k.count(0, 86_400),
        "Longest time for which a terminus without a link is kept: long enough for a reconnection after a network failure, short "
        "enough for consumers that wait for its messages. A client can request less.",
    )
    amqp_login_timeout_s: float = key(
        10.0,
        k.seconds(0.1),
        "Time from the connection to AMQP's open, with TLS, WebSocket and SASL; a slow network needs a second. Then a silent "
        "connection is closed.",
    )
    amqp_idle_timeout_s: float = key(
        120.0,
        k.seconds(1, most=4_294_967),  # AMQP has 32 bits for milliseconds
        "After this silence a client counts as lost, and its messages return. The broker asks clients to send a frame within "
        "half this time.",
    )
    amqp_max_unsettled: int = key(
        10_000,
        k.count(1, 10_000_000),
        "Deliveries on one link that wait for their outcome: ten times a usual prefetch. Credit beyond that waits.",
    )
    amqp_max_unsettled_per_session: int = key(
        100_000, k.count(1, 10_000_000), "The same over all links of a session: by default the limit of its connection."
    )
    amqp_max_unsettled_per_connection: int = key(
        100_000,
        k.count(1, 10_000_000),
        "The same over all links of a connection; limits the memory of one client. It is also the limit of sent messages that "
        "the client has not settled yet (receiver-settles-second).",
    )
    amqp_credit: int = key(
        1000,
        k.count(1, 1_000_000),
        "Unconfirmed messages of a sender on one link: enough to hide an fsync, few enough for memory.",
    )

    def __post_init__(self) -> None:
        for item in fields(self):
            value = _from_folder(Path(), item.name, _checked(item.name, getattr(self, item.name)))
            if value is None and item.name == "users_file":
                value = self.data / "users.json"
            object.__setattr__(self, item.name, value)
        if self.copy == "sync" and self.copy_url is None:
            raise errors.InvalidRequest("copy = sync needs a copy: set copy_url, or leave copy out")
        self._check_tls()
        self._complete_listeners()
        if self.max_message_bytes > self.max_batch_bytes:
            raise errors.InvalidRequest(
                f"max_message_bytes ({self.max_message_bytes:,}) is more than max_batch_bytes ({self.max_batch_bytes:,}): such a"
                " message could not be sent; lower the first or raise the second"
            )
        for name in ("amqp_max_unsettled_per_session", "amqp_max_unsettled_per_connection"):
            if self.amqp_max_unsettled > getattr(self, name):
                raise errors.InvalidRequest(
                    f"amqp_max_unsettled ({self.amqp_max_unsettled:,}) is more than {name} ({getattr(self, name):,}), so no link"
                    " could have that many; lower the first or raise the second"
                )

    @property
    def http_listener(self) -> Listener | None:
        return None if self.http_port is None else Listener(self.http_host or self.host, self.http_port, tls=self.http_tls)

    @property
    def amqp_listeners(self) -> tuple[Listener, ...]:
        """`listeners`, or the one at `host` and `amqp_port`."""
        if self.amqp_port is None:
            return ()
        return self.listeners or self._complete((Listener(self.host, self.amqp_port),))

    def _complete(self, declared: tuple[Listener, ...]) -> tuple[Listener, ...]:
        return listeners.complete(
            declared,
            certificate=self.tls_cert_file is not None,
            client_ca=self.tls_client_ca_file is not None,
            anonymous=self.allow_anonymous,
        )

    def _complete_listeners(self) -> None:
        if self.listeners and self.amqp_port:
            raise errors.InvalidRequest(
                f"amqp_port ({self.amqp_port}) is for a broker without listeners; leave it out, or make it a listener of its own"
            )
        object.__setattr__(self, "listeners", self._complete(self.listeners))

    def _check_tls(self) -> None:
        if (self.tls_cert_file is None) != (self.tls_key_file is None):
            missing = "tls_key_file" if self.tls_key_file is None else "tls_cert_file"
            raise errors.InvalidRequest(f"{missing} is missing: tls_cert_file and tls_key_file are a pair")
        for name in ("tls_client_ca_file", "flight_tls", "http_tls"):
            if getattr(self, name) and self.tls_cert_file is None:
                raise errors.InvalidRequest(f"{name} needs a certificate of the broker: set tls_cert_file and tls_key_file")


KEYS: dict[str, k.Kind] = {item.name: item.metadata["kind"] for item in fields(Settings)}
REASONS: dict[str, str] = {item.name: item.metadata["why"] for item in fields(Settings)}


def _checked(name: str, value: object) -> Any:
    try:
        return KEYS[name].parse(value)
    except (ValueError, TypeError, OverflowError):
        raise errors.InvalidRequest(f"{name} cannot be {value!r}; it must be {KEYS[name].allowed}") from None


def load(config: Path | None = None, flags: Mapping[str, object] | None = None) -> Settings:
    """Return the settings of a file, overridden by flags that are not None."""
    values: dict[str, Any] = {"flight_port": DEFAULT_FLIGHT_PORT, "http_port": DEFAULT_HTTP_PORT}
    if config is not None:
        values.update(read_file(config))
    values.update({name: value for name, value in (flags or {}).items() if value is not None})
    if not values.get("listeners"):
        values.setdefault("amqp_port", DEFAULT_AMQP_PORT)
    if "data" not in values:
        raise errors.InvalidRequest("no data directory is named: give --data DIR, or `data` in the config file")
    return Settings(**values)


def read_file(path: Path) -> dict[str, Any]:
    """Return the checked keys of a TOML file. Paths are relative to its folder."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise errors.InvalidRequest(f"the config file {path} cannot be read: {error.strerror or error}") from error
    except ValueError as error:  # TOML, UTF-8, or too many digits
        raise errors.InvalidRequest(f"the config file {path} is not TOML: {error}") from error
    except RecursionError as error:
        raise errors.InvalidRequest(f"the config file {path} cannot be read: it is nested too deep") from error
    strict_json.check_keys(str(path), table, KEYS)
    for name, value in table.items():
        try:
            table[name] = _checked(name, value)
        except errors.InvalidRequest as error:
            raise errors.InvalidRequest(f"{path}: {error}") from None
    return {name: _from_folder(path.parent, name, value) for name, value in table.items()}


def _from_folder(folder: Path, name: str, value: Any) -> Any:
    """Make a path absolute, because the broker's processes run in other directories. Symbolic links are kept: a renewed
    certificate may change the link."""
    if isinstance(value, Path):
        return (folder / value).absolute()
    if KEYS[name] is k.STORE and value is not None and "://" not in value:
        return str((folder / value).absolute())
    return value


def as_text(value: object) -> str:
    if value is None:
        return "off"
    if isinstance(value, tuple) and value and all(isinstance(item, str) for item in value):
        return ",".join(value)
    return listeners.to_json(value) if isinstance(value, tuple) else str(value)
