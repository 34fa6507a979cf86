"""Settings of a broker, each with its unit, its limits and the reason for its default.

One table, the fields of `Settings`, serves four readers: the program (`Settings(data=…)`), the file (`--config`), the command
line (a flag for each key) and `conf/penstock.toml`, which a test compares with it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from .. import errors
from ..quantities import KIB, MIB
from . import listeners
from .declarations import DeclaredBinding, DeclaredExchange, DeclaredPolicy, DeclaredQueue
from .kinds import (
    ARCHIVE,
    BINDINGS,
    EXCHANGES,
    FILE,
    HOST,
    HOST_OR_UNSET,
    LISTENERS,
    NAMES,
    PATH,
    POLICIES,
    PORT,
    PORT_OR_OFF,
    QUEUES,
    STORE,
    SWITCH,
    Kind,
    choice,
    count,
    seconds,
    seconds_or_off,
    size,
)
from .listeners import Listener

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

#: Where `penstock serve` listens and the other commands look, unless told otherwise.
DEFAULT_FLIGHT_PORT = 8815
DEFAULT_AMQP_PORT = 5672
DEFAULT_HTTP_PORT = 8816
DEFAULT_URL = f"grpc://127.0.0.1:{DEFAULT_FLIGHT_PORT}"


def key(default: Any, kind: Kind, why: str) -> Any:
    """Declare a field of `Settings`: its default, its kind, and why the default is what it is."""
    return field(default=default, metadata={"kind": kind, "why": why})


@dataclass(frozen=True)
class Settings:
    """Everything a broker is started with. Values are checked, texts such as "64 MiB" turned into numbers, and relative paths
    made absolute, here."""

    data: Path = field(metadata={"kind": PATH, "why": "The journal, its snapshots and the lock; one broker at a time."})
    host: str = key(
        "127.0.0.1", HOST, "The address to listen on: this machine alone, until you change it. Before you do, add users and TLS."
    )
    log_level: str = key("info", choice("debug", "info", "warning", "error"), "How much the log says.")
    log_format: str = key("text", choice("text", "json"), "Lines of the log: text for people, or JSON for programs.")
    # A program gets free ports; `penstock serve` the documented ones (`load`).
    flight_port: int = key(0, PORT, f"Arrow Flight, which Spark speaks. `penstock serve` takes {DEFAULT_FLIGHT_PORT}.")
    amqp_port: int | None = key(
        0,
        PORT_OR_OFF,
        f"AMQP 1.0 at `host`, without TLS, when there are no listeners. `penstock serve` takes {DEFAULT_AMQP_PORT}.",
    )
    # Also with tls_cert_file set, the one listener without `listeners` has no TLS: amqps has a port of its own, 5671, and clients
    # that know only the plain one must not find something else there. TLS is asked for, listener by listener.
    listeners: tuple[Listener, ...] = key(
        (), LISTENERS, "Several AMQP addresses, each with its own TLS, WebSocket and mechanisms, instead of amqp_port."
    )
    http_port: int | None = key(
        0,
        PORT_OR_OFF,
        f"HTTP: the page, metrics, health and the API in JSON. `penstock serve` takes {DEFAULT_HTTP_PORT}.",
    )
    http_host: str | None = key(None, HOST_OR_UNSET, "The address to listen on for HTTP. Left out: `host`.")
    http_names: tuple[str, ...] = key(
        (),
        NAMES,
        "Host names under which HTTP is reached, beside http_host, localhost and addresses in digits. Any other is refused: a"
        " page of somebody else's could have its own name lead here (DNS rebinding).",
    )
    http_tls: bool = key(False, SWITCH, "HTTP with the broker's certificate: https instead of http.")
    http_max_connections: int = key(
        512,
        count(1, 100_000),
        "Open HTTP connections: a browser keeps up to six. Clients that have not logged in have at most half of them, and at"
        " most 256. With one more, the connection that has waited longest for its client is closed.",
    )
    http_request_timeout_s: float = key(
        10.0,
        seconds(0.1),
        "From connecting, or a request's first byte, until the request is complete. Then its connection is closed.",
    )
    http_sessions: int = key(
        1000, count(1, 100_000), "Logins of the page at once, 1 KiB each. With one more, the one idle for the longest ends."
    )
    http_sessions_per_user: int = key(
        20,
        count(1, 100_000),
        "Logins of the page of one user at once. With one more, the one of this user that was idle for the longest ends: who logs"
        " in again and again logs nobody else out.",
    )
    http_session_idle_s: float = key(
        1800.0, seconds(1), "How long a login of the page holds without a request; an hour at most, as its token."
    )
    http_session_s: float = key(43_200.0, seconds(1), "How long a login of the page holds at most: a working day.")
    http_metrics_queues: int = key(
        1000,
        count(0, 100_000),
        "Queues with metrics of their own, those with the most messages first; the others are one sum. Each is some twenty"
        " time series for Prometheus.",
    )
    tls_cert_file: Path | None = key(None, FILE, "The broker's certificate and its chain, PEM. Read again when it changes.")
    tls_key_file: Path | None = key(None, FILE, "The key of tls_cert_file, PEM, without a password.")
    tls_client_ca_file: Path | None = key(
        None,
        FILE,
        "The authority that signs clients' certificates, PEM. With it a client may show one, and log in by its name (EXTERNAL).",
    )
    flight_tls: bool = key(False, SWITCH, "Arrow Flight with the same certificate: grpc+tls instead of grpc.")
    # Declared at each start: the same again changes nothing.
    queues: tuple[DeclaredQueue, ...] = key((), QUEUES, "Queues that the broker declares at each start.")
    exchanges: tuple[DeclaredExchange, ...] = key((), EXCHANGES, "Exchanges that the broker declares at each start.")
    bindings: tuple[DeclaredBinding, ...] = key((), BINDINGS, "Bindings that the broker makes at each start.")
    policies: tuple[DeclaredPolicy, ...] = key(
        (),
        POLICIES,
        "For names that match a pattern: options that a declaration leaves out and, with create, what a first use makes.",
    )
    users_file: Path = key(None, FILE, "Users and what they may do, written by `penstock user`. Left out: users.json in `data`.")
    allow_anonymous: bool = key(
        False,
        SWITCH,
        "Lets clients in from a network without a user name: AMQP offers ANONYMOUS there, and a broker without users starts "
        "there, open to everybody. On loopback such clients are let in anyway.",
    )
    fsync: str = key(
        "always",
        choice("always", "interval", "never"),
        "When a confirmed message is on the disk: at once (group commit), every fsync_interval_s, or when the system writes it. "
        "With interval and never a confirmed message survives kill -9, but not a power cut.",
    )
    fsync_interval_s: float = key(
        1.0, seconds(0.001), "With fsync = interval: a power cut takes at most what was confirmed in this time."
    )
    copy_url: str | None = key(
        None, STORE, "Where a copy of the data directory is kept while the broker runs. Left out: there is none."
    )
    copy: str = key(
        "async",
        choice("async", "sync"),
        "async: the copy follows, and losing the machine loses its lag. sync: nothing is confirmed before the copy has it.",
    )
    copy_interval_s: float = key(
        1.0, seconds(0.01), "With copy = async: how long what is new waits for more. Each second costs a request to the store."
    )
    copy_bandwidth: int = key(
        100 * MIB,
        size(8 * MIB),
        "With copy = async: bytes a second that are put into the copy over time. More would take the machine from producers.",
    )
    segment_bytes: int = key(
        256 * MIB,
        size(MIB),
        "The journal's files: large enough that few are open, small enough for retention, which removes whole files.",
    )
    snapshot_every_bytes: int = key(
        256 * MIB,
        size(MIB),
        "Journal bytes between two snapshots: a restart reads at most so much, half a second on a slow disk.",
    )
    retention_age_s: float | None = key(
        None, seconds(1, unset=True), "How long settled messages stay in the journal without an archive. Left out: for ever."
    )
    retention_bytes: int | None = key(
        None,
        size(MIB, unset=True),
        "How much journal is kept; the oldest segments with nothing unsettled go first. Left out: no limit.",
    )
    clean_bandwidth: int | None = key(None, size(MIB, unset=True), "Bytes a second for cleaning. Left out: a quarter.")
    archive: str = key(
        "archive",
        ARCHIVE,
        "Where settled messages are recorded: a Delta table for each queue. A relative path counts from `data`. off: nowhere.",
    )
    archive_after_s: float = key(
        60.0,
        seconds(0.1),
        "How long a settled message waits for others at most before it is recorded: a file a minute of a queue that is used.",
    )
    archive_file_bytes: int = key(
        128 * MIB,
        size(64 * KIB),
        "Stored bytes of settled messages for which nothing waits any longer, and about the size of a table's file.",
    )
    archive_retention_age_s: float | None = key(
        30 * 86400.0,
        seconds_or_off(1),
        "How long messages stay recorded, by the day of their arrival: so that a broker nobody looks after fills no disk.",
    )
    archive_compact_files: int = key(
        60,
        count(2, 1_000_000),
        "Small files of a table that are put together: an hour's, of a queue that is used.",
    )
    archive_vacuum_after_s: float = key(
        86400.0,
        seconds(0),
        "How long a file stays on the disk that the newest version of its table does not have: running readers may.",
    )
    free_space_mark_bytes: int = key(
        256 * MIB,
        size(MIB),
        "Below this much free disk the broker refuses new messages. Settling, purging and retention go on from what is left.",
    )
    free_space_low_bytes: int = key(
        1024 * MIB, size(MIB), "Below this much free disk the alarm disk-low is raised: some time before messages are refused."
    )
    max_batch_bytes: int = key(
        64 * MIB, size(KIB), "One record batch on the wire and one record in the journal; bounds memory for each client."
    )
    max_message_bytes: int = key(
        32 * MIB, size(KIB), "One message, body and properties: it must fit a batch, with room for the batch's own bytes."
    )

    max_batch_rows: int = key(
        1 << 20,
        count(1, 1 << 24),
        "Messages of one record batch: empty ones weigh next to nothing on the wire. A hundred times what Spark sends at once.",
    )
    flight_max_connections: int = key(
        1024,
        count(1, 100_000),
        "Arrow Flight connections at once, each a thread and 100 KiB when idle. One more is closed at once.",
    )
    flight_max_connections_per_user: int = key(
        512,
        count(1, 100_000),
        "Connections of one user: by default half of all, so that nobody takes them all. All clients without a user name count "
        "as one user.",
    )
    flight_max_calls: int = key(
        512, count(1, 100_000), "Arrow Flight calls at once, each a thread; Spark's tasks make one each. One more is refused."
    )
    flight_max_calls_per_user: int = key(
        384,
        count(1, 100_000),
        "Calls of one user: by default three quarters of all, so that nobody takes them all. All clients without a user name "
        "count as one user.",
    )
    flight_login_timeout_s: float = key(
        10.0,
        seconds(0.1),
        "From connecting to the first call that is let in, TLS included. Then a silent connection is closed.",
    )
    flight_receive_bytes: int = key(
        96 * MIB,
        size(MIB),
        "Memory for record batches that are being received, over all connections; more batches wait. A larger one is received "
        "alone.",
    )

    max_publish_keys_per_user: int = key(
        100_000,
        count(1, 1_000_000),
        "Publish keys of one user (a txnAppId or a query's id for each queue), known for a year after the last write: a tenth "
        "of what the broker keeps, so that nobody takes them all. All clients without a user name count as one user.",
    )

    amqp_max_frame_bytes: int = key(
        64 * KIB,
        size(512, most=16 * MIB),
        "The largest AMQP frame taken: each connection may hold one that is not complete. Larger messages come in several.",
    )
    amqp_max_connections: int = key(
        4096,
        count(1, 1_000_000),
        "AMQP connections at once, each 100 KiB at most when idle: 400 MiB. One more is closed at once.",
    )
    amqp_max_connections_per_user: int = key(
        2048,
        count(1, 1_000_000),
        "Connections of one user: by default half of all, so that nobody takes them all. All clients without a user name count "
        "as one user.",
    )
    amqp_max_sessions: int = key(
        256, count(1, 65_536), "Sessions on one connection, some KiB each. JMS makes one for each JMS session."
    )
    amqp_max_links: int = key(
        1024,
        count(1, 65_536),
        "Links on one connection, over all its sessions, some KiB each: more than pools of consumers need.",
    )
    amqp_max_nodes_per_user: int = key(
        5000,
        count(1, 10_000),
        "Queues and exchanges made by one user and not gone yet (dynamic nodes, subscriptions, first uses): half of the queues "
        "that a broker may have, so that nobody takes them all. All clients without a user name count as one user.",
    )
    amqp_check_user_id: bool = key(
        True,
        SWITCH,
        "Where there are users, refuses a message whose user-id names another user than its sender. Turn it off for a bridge, "
        "which sends messages of other users.",
    )
    amqp_max_detached_links_per_user: int = key(
        1000,
        count(0, 1_000_000),
        "Detached links of one user that live on for their unsettled deliveries, some KiB each: about as many as a connection "
        "may have attached. One more ends when it is detached, and what it held returns. All clients without a user name count "
        "as one user.",
    )
    amqp_max_detached_deliveries_per_user: int = key(
        100_000,
        count(0, 10_000_000),
        "Unsettled deliveries of one user's detached links whose session has ended: as many as a living connection may have.",
    )
    amqp_max_expiry_timeout_s: int = key(
        300,
        count(0, 86_400),
        "The longest time for which a terminus without a link is kept, whatever its client asks for: long enough to come back "
        "after a network failure, short enough for consumers that wait for what it holds.",
    )
    amqp_login_timeout_s: float = key(
        10.0,
        seconds(0.1),
        "From connecting to AMQP's open, TLS, WebSocket and SASL included. A slow network needs a second; then a silent "
        "connection is closed.",
    )
    amqp_idle_timeout_s: float = key(
        120.0,
        seconds(1, most=4_294_967),  # AMQP has 32 bits for milliseconds
        "After this silence a client counts as gone, and what it held returns. The broker asks it to send something in half "
        "this time.",
    )
    amqp_max_unsettled: int = key(
        10_000,
        count(1, 10_000_000),
        "Deliveries sent on one link that wait for their outcome: ten times a usual prefetch. Credit beyond that waits.",
    )
    amqp_max_unsettled_per_session: int = key(
        100_000,
        count(1, 10_000_000),
        "The same, over all links of a session: by default all that its connection may have.",
    )
    amqp_max_unsettled_per_connection: int = key(
        100_000,
        count(1, 10_000_000),
        "The same, over all links of a connection: bounds the memory that one client takes. As many messages that it has sent "
        "may wait until it settles them (receiver-settles-second).",
    )
    amqp_credit: int = key(
        1000,
        count(1, 1_000_000),
        "Unconfirmed messages of a sender on one link: enough to hide an fsync, few enough to hold in memory.",
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
                " message could never travel; lower the first or raise the second"
            )
        for name in ("amqp_max_unsettled_per_session", "amqp_max_unsettled_per_connection"):
            if self.amqp_max_unsettled > getattr(self, name):
                raise errors.InvalidRequest(
                    f"amqp_max_unsettled ({self.amqp_max_unsettled:,}) is more than {name} ({getattr(self, name):,}), so no link"
                    " could have so many; lower the first or raise the second"
                )

    @property
    def http_listener(self) -> Listener | None:
        """Address of HTTP; None where it is off."""
        return None if self.http_port is None else Listener(self.http_host or self.host, self.http_port, tls=self.http_tls)

    @property
    def amqp_listeners(self) -> tuple[Listener, ...]:
        """Listeners for AMQP: `listeners`, or the one at `host` and `amqp_port`, or none. Mechanisms are filled in."""
        if self.amqp_port is None:
            return ()
        return self.listeners or self._complete((Listener(self.host, self.amqp_port),))

    def _complete(self, given: tuple[Listener, ...]) -> tuple[Listener, ...]:
        return listeners.complete(
            given,
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


KEYS: dict[str, Kind] = {item.name: item.metadata["kind"] for item in fields(Settings)}
REASONS: dict[str, str] = {item.name: item.metadata["why"] for item in fields(Settings)}


def _checked(name: str, value: object) -> Any:
    try:
        return KEYS[name].parse(value)
    except (ValueError, TypeError, OverflowError):
        raise errors.InvalidRequest(f"{name} cannot be {value!r}; it must be {KEYS[name].allowed}") from None


def load(config: Path | None = None, flags: Mapping[str, object] | None = None) -> Settings:
    """The settings from a file, then the flags that were given (those that are not None); `data` must be among them."""
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
    """The checked keys of one TOML file. A relative path counts from the file's own folder."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise errors.InvalidRequest(f"the config file {path} cannot be read: {error.strerror or error}") from error
    except ValueError as error:  # of TOML, of UTF-8, or of a number with too many digits
        raise errors.InvalidRequest(f"the config file {path} is not TOML: {error}") from error
    except RecursionError as error:
        raise errors.InvalidRequest(f"the config file {path} cannot be read: it is nested too deep") from error
    for name, value in table.items():
        if name not in KEYS:
            raise errors.InvalidRequest(f"{path}: {name} is not a key; allowed are {', '.join(KEYS)}")
        try:
            table[name] = _checked(name, value)
        except errors.InvalidRequest as error:
            raise errors.InvalidRequest(f"{path}: {error}") from None
    return {name: _from_folder(path.parent, name, value) for name, value in table.items()}


def _from_folder(folder: Path, name: str, value: Any) -> Any:
    """Return a checked value, with a path in it made absolute. A relative one counts from `folder`.

    Paths are resolved where they are read, because the broker's processes run in other directories. Symbolic links stay: a
    renewed certificate may be behind a link that changes.
    """
    if isinstance(value, Path):
        return (folder / value).absolute()
    if KEYS[name] is STORE and value is not None and "://" not in value:
        return str((folder / value).absolute())
    return value


def as_text(value: object) -> str:
    """Return a value of `Settings` as a flag of `penstock serve` takes it."""
    if value is None:
        return "off"
    if isinstance(value, tuple) and value and all(isinstance(each, str) for each in value):
        return ",".join(value)
    return listeners.to_json(value) if isinstance(value, tuple) else str(value)
