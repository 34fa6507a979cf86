"""The users file: its content, its refusals, and simultaneous edits (W3)."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from penstock.broker_core import errors
from penstock.broker_core.amqp import scram
from penstock.broker_core.engine.columns import limits
from penstock.broker_core.patterns import matches
from penstock.broker_core.security import users as users_module
from penstock.broker_core.security import users_file
from penstock.broker_core.security.rights import Right
from penstock.broker_core.security.users import DEFAULT_ITERATIONS, Users, credentials_of, parse, render
from penstock.broker_core.service.broker import BrokerService
from penstock.broker_core.settings.keys import Settings

from .helpers import QUICK, user, write


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    users = {"alice": user("pässword", "alice.example"), "spark": user(None, "CN of spark"), "böb": user()}
    path = write(tmp_path / "users.json", users, {"alice": {"orders.*": "send,receive"}, "anonymous": {"news": "browse"}})
    contents = users_file.read(path)
    assert contents is not None
    assert dict(contents.users) == users
    assert contents.permissions["alice"] == {"orders.*": {Right.SEND, Right.RECEIVE}}
    assert contents.permissions["anonymous"] == {"news": {Right.BROWSE}}
    assert parse(render(contents)) == contents


def test_no_password_is_in_the_file_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        path = write(tmp_path / "users.json", {"alice": user("correct horse")})
    finally:
        os.umask(before)
    assert b"correct" not in path.read_bytes()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    write(path, {"alice": user("another")})
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_when_root_edits_the_file_its_broker_still_owns_it(tmp_path: Path) -> None:
    os.chown(tmp_path, 12345, 12345)  # a broker that has not run yet has the owner of its directory
    path = write(tmp_path / "users.json", {"alice": user()})
    assert {(file.stat().st_uid, file.stat().st_gid) for file in tmp_path.iterdir()} == {(12345, 12345)}
    os.chown(path, 23456, 23456)
    write(path, {"bob": user()})
    assert (path.stat().st_uid, path.stat().st_gid) == (23456, 23456)


@pytest.mark.parametrize("kind", ["symbolic link", "link to nothing", "hard link", "fifo", "directory"])
def test_a_lock_that_somebody_put_there_is_refused_and_what_it_names_is_left_alone(tmp_path: Path, kind: str) -> None:
    """Root runs `penstock user add` in a directory of the broker's account: no other file becomes that account's."""
    folder = tmp_path / "data"
    folder.mkdir()
    victim, lock = tmp_path / "victim", folder / "users.json.lock"
    victim.write_text("mine")
    if os.geteuid() == 0:
        os.chown(folder, 12345, 12345)
    before = victim.stat()
    if kind == "symbolic link":
        lock.symlink_to(victim)
    elif kind == "link to nothing":
        lock.symlink_to(tmp_path / "new")
    elif kind == "hard link":
        lock.hardlink_to(victim)
    elif kind == "fifo":
        os.mkfifo(lock)
    else:
        lock.mkdir()
    with pytest.raises(errors.InvalidRequest, match=r"users\.json\.lock is not a regular file with one name"):
        write(folder / "users.json", {"alice": user()})
    after = victim.stat()
    assert (after.st_uid, after.st_gid, after.st_mode) == (before.st_uid, before.st_gid, before.st_mode)
    assert victim.read_text() == "mine"
    assert not (folder / "users.json").exists()
    assert not (tmp_path / "new").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_lock_that_was_there_keeps_its_owner(tmp_path: Path) -> None:
    path = write(tmp_path / "users.json", {"alice": user()})
    os.chown(tmp_path / "users.json", 12345, 12345)
    write(path, {"bob": user()})
    assert (tmp_path / "users.json.lock").stat().st_uid == 0


def test_two_users_with_one_password_have_nothing_in_common(tmp_path: Path) -> None:
    left, right = (credentials_of("secret", os.urandom(16)) for _ in range(2))
    assert {left.salt, left.stored_key, left.server_key}.isdisjoint({right.salt, right.stored_key, right.server_key})
    assert left.iterations == DEFAULT_ITERATIONS >= scram.MIN_ITERATIONS
    assert scram.check_password(left, "secret")
    assert not scram.check_password(left, "Secret")


@pytest.mark.parametrize("name", ["", "a:b", "anonymous", "a\nb", "x" * 256, "\u2163", "a\u00adb"])
def test_a_name_that_some_client_could_not_send_is_refused(name: str) -> None:
    with pytest.raises(errors.InvalidRequest):
        Users(bytes(16)).add(name, user())


@pytest.mark.parametrize("password", ["", "x" * 1025, "a\u0007b"])
def test_what_cannot_be_a_password_is_refused(password: str) -> None:
    with pytest.raises(errors.InvalidRequest, match="password"):
        credentials_of(password, bytes(16), QUICK)


def test_a_permission_can_name_any_queue_there_can_be() -> None:
    assert users_module.MAX_NAME == limits.MAX_NAME


def test_a_user_without_password_and_certificate_is_refused() -> None:
    with pytest.raises(errors.InvalidRequest, match="neither a password nor a certificate"):
        Users(bytes(16)).add("alice", user(None))


def test_one_certificate_is_one_user() -> None:
    users = Users(bytes(16)).add("alice", user("a", "cn"))
    with pytest.raises(errors.InvalidRequest, match="'cn' belongs to 'alice' and 'bob'"):
        users.add("bob", user("b", "cn"))
    assert users.add("alice", user("other", "cn")).users["alice"] == user("other", "cn")


def test_a_user_who_comes_back_begins_without_permissions() -> None:
    users = Users(bytes(16)).add("alice", user()).permit("alice", "orders", [Right.SEND])
    again = users.remove("alice").add("alice", user())
    assert again.permissions == {}
    assert users.add("alice", user("new")).permissions == users.permissions


def test_rights_are_given_and_taken_one_by_one() -> None:
    users = Users(bytes(16)).add("alice", user()).permit("alice", "q", [Right.SEND]).permit("alice", "q", [Right.ADMIN])
    assert users.permissions == {"alice": {"q": {Right.SEND, Right.ADMIN}}}
    assert users.revoke("alice", "q", [Right.SEND]).permissions == {"alice": {"q": {Right.ADMIN}}}
    assert users.revoke("alice", "q", list(Right)).permissions == {}
    for wrong in (("alice", "other", Right.SEND), ("alice", "q", Right.BROWSE), ("bob", "q", Right.SEND)):
        with pytest.raises(errors.NotFound):
            users.revoke(wrong[0], wrong[1], [wrong[2]])
    with pytest.raises(errors.NotFound, match="there is no user 'bob'"):
        users.permit("bob", "q", [Right.SEND])


@pytest.mark.parametrize(
    ("pattern", "queue", "expected"),
    [
        ("orders", "orders", True),
        ("orders", "orders.eu", False),
        ("orders.*", "orders.eu", True),
        ("orders.*", "orders.", True),
        ("orders.*", "orders", False),
        ("*", "", True),
        ("*.eu", "orders.eu", True),
        ("*.eu", "orders.eu.x", False),
        ("a*b*c", "abc", True),
        ("a*b*c", "axxbxxbxc", True),
        ("a*b*c", "acb", False),
        ("aa*aa", "aaa", False),
        ("ab*ba", "aba", False),
        ("*aa*a", "aa", False),
        ("a.c", "abc", False),
        ("[a]?", "a1", False),
        ("**", "x", True),
    ],
)
def test_a_star_stands_for_any_text_and_nothing_else_is_special(pattern: str, queue: str, expected: bool) -> None:
    assert matches(pattern, queue) is expected


def test_a_pattern_of_many_stars_takes_no_time() -> None:
    assert not matches("*a" * 120 + "b", "a" * 255)  # exponential in a matcher that goes back


# --- a file that a person has edited

GOOD: dict[str, Any] = json.loads(render(Users(bytes(16)).add("alice", user("x", "cn")).permit("alice", "q", [Right.SEND])))


def changed(*path: str, to: Any) -> bytes:
    document = json.loads(json.dumps(GOOD))
    place = document
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = to
    return json.dumps(document).encode()


KEPT = ("users", "alice", "scram-sha-256")
BAD = {
    "empty": b"",
    "half": render(Users(bytes(16)))[:40],
    "deep": b"[" * 100_000,
    "not an object": b"[]",
    "another version": changed("version", to=2),
    "a key too many": changed("extra", to=1),
    "no secret": changed("secret", to=""),
    "users as a list": changed("users", to=[]),
    "a user as a text": changed("users", "alice", to="secret"),
    "an invalid name": changed("users", "a:b", to=GOOD["users"]["alice"]),
    "no such field": changed("users", "alice", "password", to="secret"),
    "certificates of numbers": changed("users", "alice", "certificates", to=[1]),
    "a shared certificate": changed("users", "bob", to=GOOD["users"]["alice"]),
    "a short salt": changed(*KEPT, "salt", to="AAAA"),
    "no base64": changed(*KEPT, "storedKey", to="?"),
    "key as a number": changed(*KEPT, "serverKey", to=5),
    "few iterations": changed(*KEPT, "iterations", to=4095),
    "endless iterations": changed(*KEPT, "iterations", to=10**12),
    "iterations yes": changed(*KEPT, "iterations", to=True),
    "rights of a stranger": changed("permissions", "bob", to={"q": ["send"]}),
    "an unknown right": changed("permissions", "alice", "q", to=["fly"]),
    "rights as a number": changed("permissions", "alice", "q", to=1),
    "a queue without a name": changed("permissions", "alice", "", to=["send"]),
    "a name twice": json.dumps(GOOD).replace('"permissions": {', '"permissions": {"alice": {"*": ["admin"]}, ').encode(),
}


@pytest.mark.parametrize("data", BAD.values(), ids=BAD.keys())
def test_a_file_that_does_not_hold_is_refused_whole_by_name_and_left_alone(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "users.json"
    path.write_bytes(data)
    with pytest.raises(errors.InvalidRequest, match=f"the users file {path} cannot be used: "):
        users_file.read(path)
    with pytest.raises(errors.InvalidRequest):
        users_file.edit(path, lambda users: users)
    assert path.read_bytes() == data
    assert sorted(os.listdir(tmp_path)) == ["users.json", "users.json.lock"]


def test_something_huge_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(users_file, "MAX_FILE_BYTES", 100)
    (tmp_path / "users.json").write_bytes(b" " * 101)
    with pytest.raises(errors.InvalidRequest, match="more than 100 bytes"):
        users_file.read(tmp_path / "users.json")


# --- several writers, crashes, and the journal in the same directory

ADD = """
import sys
import threading
from pathlib import Path
from penstock.broker_core.engine.columns import limits
from penstock.broker_core.security import users_file
from penstock.broker_core.security import users as users_module
from penstock.broker_core.security.users import User
print("ready", flush=True)
sys.stdin.readline()
for number in range(20):
    name = f"{sys.argv[2]}-{number}"
    users_file.edit(Path(sys.argv[1]), lambda users: users.add(name, User(None, (name,))))
"""


def test_edits_of_several_processes_at_once_are_all_there(tmp_path: Path) -> None:
    path = tmp_path / "users.json"
    running = [
        subprocess.Popen([sys.executable, "-c", ADD, str(path), name], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for name in "abc"
    ]
    for process in running:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
    for process in running:
        assert process.stdin is not None
        process.stdin.write(b"go\n")
        process.stdin.flush()
    for process in running:
        process.communicate(timeout=60)
    assert [process.returncode for process in running] == [0, 0, 0]
    contents = users_file.read(path)
    assert contents is not None
    assert set(contents.users) == {f"{name}-{number}" for name in "abc" for number in range(20)}


def test_an_edit_waits_for_the_one_before_it(tmp_path: Path) -> None:
    path = write(tmp_path / "users.json", {"alice": user()})
    begun, go_on = threading.Event(), threading.Event()

    def slowly(users: Users) -> Users:
        begun.set()
        assert go_on.wait(60)
        return users.add("first", user())

    first = threading.Thread(target=users_file.edit, args=(path, slowly))
    second = threading.Thread(target=users_file.edit, args=(path, lambda users: users.add("second", user())))
    first.start()
    assert begun.wait(60)
    second.start()
    second.join(0.2)  # long enough to be done and undone, if nothing held it
    go_on.set()
    first.join()
    second.join()
    contents = users_file.read(path)
    assert contents is not None
    assert set(contents.users) == {"alice", "first", "second"}


def test_a_writer_that_was_killed_half_way_leaves_the_old_file_and_stops_nobody(tmp_path: Path) -> None:
    path = write(tmp_path / "users.json", {"alice": user()})
    before = path.read_bytes()
    (tmp_path / "users.json.new").write_bytes(before[:50])
    contents = users_file.read(path)
    assert contents is not None
    assert set(contents.users) == {"alice"}
    write(path, {"bob": user()})
    assert sorted(os.listdir(tmp_path)) == ["users.json", "users.json.lock"]


def test_a_change_that_fails_changes_nothing(tmp_path: Path) -> None:
    path = write(tmp_path / "users.json", {"alice": user()})
    before = path.read_bytes()
    with pytest.raises(errors.NotFound):
        users_file.edit(path, lambda users: users.remove("bob"))
    assert path.read_bytes() == before


def test_the_journal_and_the_users_file_leave_each_other_alone(tmp_path: Path) -> None:
    """Users may be there before the journal is, and recovery, which removes leftovers of its own, touches none of the files."""
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    path = write(data / "users.json", {"alice": user()})
    (data / "users.json.new").write_bytes(b"half")
    before = path.read_bytes()
    for _ in range(2):
        service = BrokerService(Settings(data=data))
        service.close()
        assert path.read_bytes() == before
        assert (data / "users.json.new").exists()
    write(path, {"bob": user()})
    BrokerService(Settings(data=data)).close()
