"""Settings: the file, the flags, and refusals."""

from __future__ import annotations

import dataclasses
import re
import threading
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from penstock.broker_core import errors
from penstock.broker_core.quantities import KIB, MIB
from penstock.broker_core.service.broker import BrokerService
from penstock.broker_core.settings import declarations, keys, kinds
from penstock.broker_core.settings.keys import Settings, load
from penstock.broker_core.settings.listeners import Listener


def write(folder: Path, text: str) -> Path:
    path = folder / "penstock.toml"
    path.write_text(text)
    return path


def test_the_example_holds_every_key_at_its_default(repository: Path) -> None:
    example = repository / "conf" / "penstock.toml"
    assert load(example, {"data": "d"}) == load(None, {"data": "d"})
    text, *tables = re.split(r"^# (?=\[\[)", example.read_text(), flags=re.MULTILINE)
    named = set(re.findall(r"^(?:# )?(\w+) =", text, re.MULTILINE))
    in_tables: dict[str, set[str]] = {}
    for table in tables:
        names = re.findall(r"^# (\w+) =", table, re.MULTILINE)
        in_tables.setdefault(re.match(r"\[\[(\w+)\]\]", table)[1], set()).update(names)  # type: ignore[index]
    assert named | set(in_tables) == set(keys.KEYS)
    tables_of = {"listeners": Listener, **declarations.KINDS}
    assert in_tables == {name: {item.name for item in dataclasses.fields(kind)} for name, kind in tables_of.items()}


def test_the_example_s_commented_values_are_allowed(repository: Path, tmp_path: Path) -> None:
    text = (repository / "conf" / "penstock.toml").read_text()
    text, *tables = re.split(r"^# (?=\[\[)", text, flags=re.MULTILINE)
    live = re.sub(r"^# (\w+ =)", r"\1", text, flags=re.MULTILINE).replace("\namqp_port = 5672", "")
    for table in tables:
        live += table[: table.index("]]") + 2] + "\n" + "\n".join(re.findall(r"^# (\w+ = .*)", table, flags=re.MULTILINE)) + "\n"
    settings = load(write(tmp_path, live))
    assert [binding.queue for binding in settings.bindings] == ["orders", "audit"]
    assert [policy.create for policy in settings.policies] == [True, True]
    service = BrokerService(Settings(data=tmp_path / "d"))
    try:
        for _ in range(2):  # as at the next start
            service.declare(settings)
        assert sorted(service.state.queues) == ["audit", "orders"]
        assert service.state.exchanges.by_name["by-header"].bindings[0].arguments["urgent"] is True
    finally:
        service.close()
    assert settings.data == tmp_path / "data"
    assert settings.retention_age_s == 30 * 86400
    assert settings.retention_bytes == 100 * 1024 * MIB
    assert settings.tls_key_file == tmp_path / "server.key"
    assert [(item.scheme, item.port, item.without_sasl) for item in settings.amqp_listeners] == [
        ("amqps", 5671, False),
        ("wss", 443, False),
        ("amqp", 5672, True),
    ]


def test_a_flag_wins_over_the_file_and_the_file_over_the_default(tmp_path: Path) -> None:
    path = write(tmp_path, 'fsync = "never"\nsegment_bytes = "8 MiB"\n')
    settings = load(path, {"data": "d", "fsync": "interval", "host": None})
    assert (settings.fsync, settings.segment_bytes, settings.host) == ("interval", 8 * MIB, "127.0.0.1")


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("segment_bytes", "64 MiB", 64 * MIB),
        ("segment_bytes", "1.5MiB", 3 * MIB // 2),
        ("segment_bytes", "2_097_152", 2 * MIB),
        ("segment_bytes", 2 * MIB, 2 * MIB),
        ("fsync_interval_s", "5 s", 5.0),
        ("retention_age_s", "12 h", 12 * 3600.0),
        ("retention_age_s", 7, 7.0),
        ("flight_port", "0", 0),
        ("amqp_port", "5673", 5673),
        ("amqp_port", "off", None),
        ("flight_tls", False, False),
        ("flight_tls", "False", False),
        ("amqp_max_frame_bytes", "1 KiB", KIB),
        ("amqp_max_links", "7", 7),
    ],
)
def test_values_are_numbers_or_texts_with_a_unit(name: str, text: object, value: object) -> None:
    assert getattr(load(None, {"data": "d", name: text}), name) == value


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("fsync", "sometimes"),
        ("flight_port", 70_000),
        ("flight_port", True),
        ("flight_port", "http"),
        ("amqp_port", -1),
        ("amqp_port", True),
        ("amqp_port", "of"),
        ("amqp_port", "٣"),  # a digit for int(), of another script
        ("amqp_max_sessions", "٣"),
        ("segment_bytes", "٣ MiB"),
        ("http_port", "none"),
        ("http_names", "a b"),
        ("http_names", [5]),
        ("http_host", "a b"),
        ("http_sessions", 0),
        ("http_sessions_per_user", 0),
        ("flight_tls", "yes"),
        ("flight_tls", 1),
        ("tls_cert_file", ""),
        ("tls_cert_file", 5),
        ("users_file", ""),
        ("amqp_max_frame_bytes", 511),
        ("amqp_max_frame_bytes", 17 * MIB),
        ("amqp_max_connections", 0),
        ("amqp_max_sessions", 65_537),
        ("amqp_credit", 1.5),
        ("amqp_credit", True),
        ("amqp_login_timeout_s", 0),
        ("amqp_idle_timeout_s", "0 s"),
        ("listeners", 5),
        ("listeners", "5672"),
        ("listeners", "[5672"),
        ("listeners", [5672]),
        ("listeners", {"port": 5672}),
        ("queues", "orders"),
        ("policies", {"pattern": "a"}),
        ("segment_bytes", "64 parsecs"),
        ("segment_bytes", 1),
        ("segment_bytes", -5),
        ("segment_bytes", None),
        ("segment_bytes", 1.5 * MIB + 0.5),
        ("retention_age_s", "for ever"),
        ("fsync_interval_s", float("nan")),
        ("fsync_interval_s", float("inf")),
        ("fsync_interval_s", "36526 d"),  # no wait of Python's is so long: it would end the journal's thread
        ("archive_retention_age_s", 1e300),
        ("amqp_idle_timeout_s", "50 d"),
        ("host", ""),
        ("host", "a b"),
    ],
)
def test_a_wrong_value_is_refused_with_the_key_and_what_is_allowed(name: str, value: object) -> None:
    with pytest.raises(errors.InvalidRequest) as refused:
        Settings(**{"data": Path("d"), name: value})  # type: ignore[arg-type]
    assert str(refused.value).startswith(f"{name} cannot be {value!r}; it must be ")
    assert keys.KEYS[name].allowed in str(refused.value)


def test_an_unknown_key_is_refused_with_the_file_and_the_keys(tmp_path: Path) -> None:
    path = write(tmp_path, "segment_byte = 5\n")
    with pytest.raises(
        errors.InvalidRequest,
        match=rf"{path}: segment_byte is not a key: did you mean 'segment_bytes'\?; allowed are data, host, .*segment_bytes",
    ):
        load(path, {"data": "d"})


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("[[queue]]", "queues"),
        ("log-level = 1", "log_level"),
        ("amqpPort = 1", "amqp_port"),
        ("[[queues]]\nname = 'q'\noption = {}", "options"),
        ("[[listeners]]\nport = 0\nmechanism = []", "mechanisms"),
        ("unlike = 1", None),
        (f"{'k' * 100_000} = 1", None),
    ],
    ids=lambda value: str(value)[:20],
)
def test_an_unknown_key_is_answered_with_the_key_that_is_most_similar(tmp_path: Path, text: str, meant: str | None) -> None:
    with pytest.raises(errors.InvalidRequest) as refused:
        load(write(tmp_path, text), {"data": "d"})
    assert "is not a key" in str(refused.value)
    assert len(str(refused.value)) < 5000
    assert (f"did you mean {meant!r}?" in str(refused.value)) == (meant is not None)
    assert ("did you mean" in str(refused.value)) == (meant is not None)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("= 5", "is not TOML"),
        ("host = 5", "host cannot be 5"),
        ("[host]\na = 1", "host cannot be"),
        (f"segment_bytes = {'9' * 5000}", "is not TOML"),
        (f"queues = {'[' * 5000}{']' * 5000}", "nested too deep"),
    ],
)
def test_a_wrong_file_is_refused_by_name(tmp_path: Path, text: str, reason: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(errors.InvalidRequest) as refused:
        load(path, {"data": "d"})
    assert str(path) in str(refused.value)
    assert reason in str(refused.value)


def test_the_longest_times_can_be_waited_for(tmp_path: Path) -> None:
    """A century, which is for ever; in milliseconds that AMQP can say for a client's silence."""
    times = {name: "36525 d" for name, kind in keys.KEYS.items() if kind.allowed.startswith("a time")}
    settings = Settings(data=tmp_path, **{**times, "amqp_idle_timeout_s": 4_294_967})  # type: ignore[arg-type]
    assert int(settings.amqp_idle_timeout_s * 1000) < 1 << 32
    for name in set(times) - {"amqp_idle_timeout_s"}:
        seconds = getattr(settings, name)
        assert seconds <= threading.TIMEOUT_MAX
        assert datetime.now() - timedelta(seconds=seconds)


def test_a_message_that_could_never_travel_is_refused() -> None:
    with pytest.raises(errors.InvalidRequest, match=r"max_message_bytes .* is more than max_batch_bytes"):
        Settings(data=Path("d"), max_message_bytes=2 * MIB, max_batch_bytes=MIB)


def test_a_copy_that_is_to_be_waited_for_needs_a_place() -> None:
    """Otherwise an operator would rely on a copy that does not exist."""
    with pytest.raises(errors.InvalidRequest, match="set copy_url, or leave copy out"):
        Settings(data=Path("d"), copy="sync")
    assert Settings(data=Path("d"), copy="sync", copy_url="s3://bucket/copy").copy == "sync"


def test_without_a_data_directory_nothing_starts() -> None:
    with pytest.raises(errors.InvalidRequest, match="--data DIR"):
        load()


@pytest.mark.parametrize("name", ["amqp_max_unsettled_per_session", "amqp_max_unsettled_per_connection"])
def test_a_link_cannot_have_more_unsettled_than_its_session_or_connection(name: str) -> None:
    with pytest.raises(errors.InvalidRequest, match=rf"amqp_max_unsettled .* is more than {name}"):
        Settings(data=Path("d"), amqp_max_unsettled=11, **{name: 10})  # type: ignore[arg-type]


def test_users_are_beside_the_data_unless_named() -> None:
    assert Settings(data=Path("/d")).users_file == Path("/d/users.json")
    assert Settings(data=Path("/d"), users_file=Path("/u")).users_file == Path("/u")


#: Every key that may hold a path. Of `archive` a relative one counts from `data`, which is absolute.
PATHS = [name for name, kind in keys.KEYS.items() if kind in (kinds.PATH, kinds.FILE, kinds.STORE)]


@pytest.mark.parametrize("name", PATHS)
def test_relative_paths_are_resolved_where_they_are_read(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path in a file counts from the file's folder, and one of a flag or a program from the working directory."""
    others = {"data": "data", "tls_cert_file": "c", "tls_key_file": "k"}
    (tmp_path / "etc").mkdir()
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "etc", "".join(f'{key} = "{value}"\n' for key, value in {**others, name: "there"}.items()))
    read = load(Path("etc/penstock.toml"))
    passed = load(None, {**others, name: "there"})
    built = Settings(**{**others, name: "there"})  # type: ignore[arg-type]
    flagged = load(Path("etc/penstock.toml"), {name: "there"})
    monkeypatch.chdir("/")
    kind = str if keys.KEYS[name] is kinds.STORE else Path
    assert getattr(read, name) == kind(tmp_path / "etc" / "there")
    assert {getattr(settings, name) for settings in (passed, built, flagged)} == {kind(tmp_path / "there")}


def test_the_url_of_a_store_is_no_path() -> None:
    assert Settings(data=Path("/d"), copy_url="s3://bucket/copy").copy_url == "s3://bucket/copy"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"tls_cert_file": "c"}, "tls_key_file is missing"),
        ({"tls_key_file": "k"}, "tls_cert_file is missing"),
        ({"tls_client_ca_file": "a"}, "tls_client_ca_file needs a certificate"),
        ({"flight_tls": True}, "flight_tls needs a certificate"),
    ],
)
def test_half_of_a_certificate_is_refused_by_what_is_missing(options: dict[str, object], reason: str) -> None:
    """W2: TLS that was asked for and cannot be is never left out quietly."""
    with pytest.raises(errors.InvalidRequest, match=reason):
        load(None, {"data": "d", **options})


@pytest.mark.parametrize(
    "value", ["127.0.0.1", 0, "64 MiB", True, Path("/cert.pem"), None, (Listener("::1", 5, True, True, ("PLAIN",), False),)]
)
def test_a_value_as_a_flag_is_the_same_value(value: object) -> None:
    name = {str: "host", bool: "flight_tls", tuple: "listeners"}.get(type(value), "amqp_port")
    if isinstance(value, Path):
        assert kinds.FILE.parse(keys.as_text(value)) == value
    elif value == "64 MiB":
        assert keys.KEYS["segment_bytes"].parse(keys.as_text(value)) == 64 * MIB
    else:
        assert keys.KEYS[name].parse(keys.as_text(value)) == value
