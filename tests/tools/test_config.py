"""Settings: the file, the flags, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from broker_core import config, errors
from broker_core.config import MIB, Settings, load


def write(folder: Path, text: str) -> Path:
    path = folder / "penstock.toml"
    path.write_text(text)
    return path


def test_the_example_holds_every_key_at_its_default(repository: Path) -> None:
    example = repository / "conf" / "penstock.toml"
    assert load(example, {"data": "d"}) == load(None, {"data": "d"})
    named = set(re.findall(r"^(?:# )?(\w+) =", example.read_text(), re.MULTILINE))
    assert named == set(config.KEYS)


def test_the_example_s_commented_values_are_allowed(repository: Path, tmp_path: Path) -> None:
    text = (repository / "conf" / "penstock.toml").read_text()
    live = re.sub(r"^# (data|retention_age_s|retention_bytes) =", r"\1 =", text, flags=re.MULTILINE)
    settings = load(write(tmp_path, live))
    assert settings.data == tmp_path / "data"
    assert settings.retention_age_s == 30 * 86400
    assert settings.retention_bytes == 100 * 1024 * MIB


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
        ("amqp_port", 5672),
        ("http_port", 0),
        ("segment_bytes", "64 parsecs"),
        ("segment_bytes", 1),
        ("segment_bytes", -5),
        ("segment_bytes", None),
        ("segment_bytes", 1.5 * MIB + 0.5),
        ("retention_age_s", "for ever"),
        ("fsync_interval_s", float("nan")),
        ("fsync_interval_s", float("inf")),
        ("host", ""),
        ("host", "a b"),
    ],
)
def test_a_wrong_value_is_refused_with_the_key_and_what_is_allowed(name: str, value: object) -> None:
    with pytest.raises(errors.InvalidRequest) as refused:
        Settings(**{"data": Path("d"), name: value})  # type: ignore[arg-type]
    assert str(refused.value).startswith(f"{name} cannot be {value!r}; it must be ")
    assert config.KEYS[name].allowed in str(refused.value)


def test_an_unknown_key_is_refused_with_the_file_and_the_keys(tmp_path: Path) -> None:
    path = write(tmp_path, "segment_byte = 5\n")
    with pytest.raises(
        errors.InvalidRequest, match=rf"{path}: segment_byte is not a key; allowed are data, host, .*segment_bytes"
    ):
        load(path, {"data": "d"})


@pytest.mark.parametrize(
    ("text", "said"), [("= 5", "is not TOML"), ("host = 5", "host cannot be 5"), ("[host]\na = 1", "host cannot be")]
)
def test_a_wrong_file_is_refused_by_name(tmp_path: Path, text: str, said: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(errors.InvalidRequest) as refused:
        load(path, {"data": "d"})
    assert str(path) in str(refused.value)
    assert said in str(refused.value)


def test_a_message_that_could_never_travel_is_refused() -> None:
    with pytest.raises(errors.InvalidRequest, match=r"max_message_bytes .* is more than max_batch_bytes"):
        Settings(data=Path("d"), max_message_bytes=2 * MIB, max_batch_bytes=MIB)


def test_without_a_data_directory_nothing_starts() -> None:
    with pytest.raises(errors.InvalidRequest, match="--data DIR"):
        load()
