"""`penstock user` and `penstock permit`: changes of the file, which a running broker reloads (W3)."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pyarrow import flight

from penstock.broker_core.amqp import scram
from penstock.broker_core.security import users_file
from penstock.broker_core.security.users import User
from penstock.broker_core.server.child import Broker

from ..waiting import until
from .conftest import Run


@pytest.fixture
def users(tmp_path: Path, penstock: Run) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a command on its own data directory, with `password` in a file."""

    def run(*arguments: str, password: str | None = None, data: Path | None = None) -> subprocess.CompletedProcess[str]:
        command = list(arguments)
        if password is not None:
            (tmp_path / "password").write_text(password)
            command += ["--password-file", str(tmp_path / "password")]
        return penstock(*command, "--data", str(data or tmp_path / "data"))

    return run


def test_users_come_and_go(users: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    added = users("user", "add", "alice", password="secret\n")
    assert (added.returncode, added.stderr) == (0, "")
    assert added.stdout.splitlines()[0] == "user alice is added"
    assert "the broker now denies everything without a permission" in added.stdout
    assert users("user", "add", "spark", "--no-password", "--certificate", "spark.example").stdout == "user spark is added\n"
    assert users("permit", "alice", "orders.*", "send,receive").stdout == "alice may receive, send on orders.*\n"
    assert users("permit", "anonymous", "news", "browse").returncode == 0

    listed = users("user", "list").stdout
    assert listed.splitlines()[1].split() == ["alice", "yes", "–", "orders.*:", "receive,", "send"]
    assert json.loads(users("user", "list", "--json").stdout) == [
        {"user": "alice", "password": True, "certificates": [], "permissions": {"orders.*": ["receive", "send"]}},
        {"user": "spark", "password": False, "certificates": ["spark.example"], "permissions": {}},
    ]
    assert json.loads(users("permit", "--list", "--json").stdout) == [
        {"user": "alice", "queue": "orders.*", "rights": ["receive", "send"]},
        {"user": "anonymous", "queue": "news", "rights": ["browse"]},
    ]
    assert "news" not in users("permit", "--list", "alice").stdout

    assert users("permit", "alice", "orders.*", "send", "--revoke").stdout == "alice may receive on orders.*\n"
    assert users("permit", "alice", "--revoke", "orders.*", "all").stdout == "alice may nothing on orders.*\n"
    assert users("user", "remove", "alice").stdout == "user alice is removed with its permissions\n"
    assert [row["user"] for row in json.loads(users("user", "list", "--json").stdout)] == ["spark"]


def test_a_password_is_set_anew_and_permissions_stay(
    users: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    users("user", "add", "alice", password="old")
    users("permit", "alice", "q", "send")
    before = json.loads((tmp_path / "data" / "users.json").read_text())
    assert users("user", "add", "alice", password="new").returncode == 1
    assert users("user", "add", "alice", "--replace", password="new").stdout == "user alice is changed\n"
    after = json.loads((tmp_path / "data" / "users.json").read_text())
    assert after["permissions"] == before["permissions"]
    assert after["users"] != before["users"]


def test_nothing_that_was_a_password_is_shown(users: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path) -> None:
    runs = [users("user", "add", "alice", password="correct horse"), users("user", "list", "--json"), users("user", "list")]
    secrets = json.loads((tmp_path / "data" / "users.json").read_text())["users"]["alice"]["scram-sha-256"]
    for secret in ("correct horse", secrets["storedKey"], secrets["serverKey"], secrets["salt"]):
        assert not any(secret in done.stdout + done.stderr for done in runs)


@pytest.mark.parametrize(
    ("command", "password", "code", "complaint"),
    [
        (["user", "add", "bob"], "", 2, "is empty: it must be the password"),
        (["user", "add", "bob"], "x" * 1025, 1, "a password has 1 to 1024 characters"),
        (["user", "add", "bob", "--no-password"], None, 2, "--no-password needs --certificate"),
        (["user", "add", "bob", "--no-password", "--certificate", "cn"], None, 1, "'cn' belongs to 'alice' and 'bob'"),
        (["user", "add", "bob", "--replace"], "x", 1, "there is no user 'bob'"),
        (["user", "add", "b:b"], "x", 1, "cannot carry a colon"),
        (["user", "add", "anonymous"], "x", 1, "stands for clients without a user name"),
        (["user", "add", "bob", "--password-file", "nowhere"], None, 2, "--password-file nowhere cannot be read"),
        (["user", "remove", "bob"], None, 1, "there is no user 'bob'"),
        (["user", "remove", "alice"], None, 1, "is the last user"),
        (["permit", "bob", "q", "send"], None, 1, "there is no user 'bob'"),
        (["permit", "alice", "q", "fly"], None, 2, "'fly' is not a list of rights"),
        (["permit", "alice", "q"], None, 2, "permit takes USER QUEUE RIGHT"),
        (["permit", "alice", "q", "send", "--revoke"], None, 1, "has no such right on 'q'"),
        (["permit", "alice", "q", "--revoke", "send", "more"], None, 2, "unrecognized arguments: send more"),
        (["permit", "--list", "bob"], None, 1, "there is no user 'bob'"),
        (["permit", "--list", "alice", "q"], None, 2, "--list takes no QUEUE"),
        (["user", "list", "--users-file", "x"], None, 2, "not allowed with argument"),
    ],
)
def test_what_is_refused_changes_nothing(
    users: Callable[..., subprocess.CompletedProcess[str]],
    tmp_path: Path,
    command: list[str],
    password: str | None,
    code: int,
    complaint: str,
) -> None:
    (tmp_path / "data").mkdir()
    file = tmp_path / "data" / "users.json"
    users_file.edit(file, lambda users: users.add("alice", User(None, ("cn",))))
    before = file.read_bytes()
    refused = users(*command, password=password)
    assert (refused.returncode, refused.stdout) == (code, "")
    assert complaint in refused.stderr
    assert "the broker" not in refused.stderr  # the command calls no broker
    assert "Traceback" not in refused.stderr
    assert file.read_bytes() == before


def test_a_wrong_directory_is_said(users: Callable[..., subprocess.CompletedProcess[str]], penstock: Run, tmp_path: Path) -> None:
    assert "there is no users file" in users("permit", "alice", "q", "send", data=tmp_path / "nowhere").stderr
    assert not (tmp_path / "nowhere").exists()
    assert "is new; no broker has run on it yet" in users("user", "add", "a", password="x", data=tmp_path / "new").stderr
    assert "there is no folder" in penstock("user", "list", "--users-file", str(tmp_path / "no" / "u.json")).stderr
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "users.json").write_text("{")
    broken = users("user", "list", "--json")
    assert broken.returncode == 1
    assert json.loads(broken.stderr)["error"]["fault"] == "caller"


def add_user(data: Path, name: str, stdin: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "penstock", "user", "add", name, "--data", str(data)]
    # A session of its own has no other terminal that getpass could find.
    return subprocess.Popen(command, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)


def test_a_password_comes_through_a_pipe(tmp_path: Path) -> None:
    with add_user(tmp_path, "alice", subprocess.PIPE) as process:
        output, _ = process.communicate(b"secret\nnot looked at\n", timeout=60)
    assert process.returncode == 0, output
    users = users_file.read(tmp_path / "users.json")
    assert users is not None
    credentials = users.users["alice"].credentials
    assert credentials is not None
    assert scram.check_password(credentials, "secret")


@pytest.mark.parametrize(("again", "code"), [("secret", 0), ("secre", 2)])
def test_at_a_terminal_a_password_is_asked_for_twice(tmp_path: Path, again: str, code: int) -> None:
    terminal, end = pty.openpty()
    with add_user(tmp_path, "alice", end) as process:
        assert process.stdout is not None
        for prompt, typed in ((b"Password of alice: ", "secret"), (b"Repeat it: ", again)):
            output = b""
            while not output.endswith(prompt):  # input before the prompt is discarded
                piece = process.stdout.read(1)
                assert piece, output
                output += piece
            os.write(terminal, typed.encode() + b"\n")
        process.stdout.read()
    os.close(terminal)
    os.close(end)
    assert process.returncode == code
    assert (tmp_path / "users.json").exists() == (code == 0)


def test_a_running_broker_notices(users: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path, broker: Broker) -> None:
    connection = flight.connect(broker.url)

    def answered() -> bool:
        try:
            return bool(list(connection.do_action(("queue.list", b"{}"))))
        except flight.FlightUnauthenticatedError:
            return False

    assert answered()
    assert users("user", "add", "alice", password="secret", data=broker.data_dir).returncode == 0
    until(lambda: not answered(), "strangers are refused")
    broker.kill()
    broker.start()  # and it is so from the first request of the next life
    connection = flight.connect(broker.url)
    assert not answered()
    assert users("permit", "anonymous", "*", "browse", data=broker.data_dir).returncode == 0
    until(answered, "strangers are let in")
    connection.close()


def test_changes_of_users_are_audited(users: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path) -> None:
    users("user", "add", "ann", password="secret")
    users("permit", "ann", "orders.*", "send,browse")
    users("permit", "ann", "orders.*", "send", "--revoke")
    users("user", "remove", "ann", "--force")
    assert users("user", "remove", "ann").returncode == 1
    (file,) = (tmp_path / "data" / "audit").iterdir()
    assert "secret" not in file.read_text()
    entries = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(entry["action"], entry["object"], entry["details"]) for entry in entries] == [
        ("user.add", "ann", {}),
        ("user.permit", "ann", {"queue": "orders.*", "rights": ["browse", "send"]}),
        ("user.revoke", "ann", {"queue": "orders.*", "rights": ["send"]}),
        ("user.remove", "ann", {}),
    ]
    assert all(entry["user"] and entry["door"] == "command line" for entry in entries)
