"""30.4: users and their rights are changed by requests, and the broker uses them immediately."""

from __future__ import annotations

import pytest

from penstock.broker_core import errors
from penstock.broker_core.security import Right, keys_file

from .peers import Site, basic


def test_users_are_added_permitted_and_removed(site: Site) -> None:
    root = site.user("root", *Right)
    assert root.call("user.add", user="ann", password="first") == {"user": "ann"}
    with pytest.raises(errors.AlreadyExists, match="'ann' exists already"):
        root.call("user.add", user="ann", password="other")
    root.call("queue.declare", queue="orders")
    assert root.call("user.setRights", user="ann", pattern="ord*", rights=["send", "browse"])["rights"] == {
        "ord*": ["browse", "send"]
    }
    ann = site.peer(basic("ann", "first"))
    ann.call("message.send", queue="orders", body="x")
    root.call("user.setRights", user="ann", pattern="ord*", rights=["browse"])
    with pytest.raises(errors.NotAllowed):
        ann.call("message.send", queue="orders", body="x")
    root.call("user.add", user="ann", password="second", replace=True)
    with pytest.raises(errors.Unauthenticated):
        ann.call("queue.list")
    site.peer(basic("ann", "second")).call("queue.messages", queue="orders")
    keys = keys_file.path_of(site.access.path)
    for name in ("ann", "root"):
        keys_file.edit(keys, lambda known, name=name: keys_file.with_new(known, name, b"random"))  # type: ignore[misc]
    root.call("user.remove", user="ann")
    assert list(keys_file.read(keys)) == ["root"], "a later user of the name must not have them"
    assert [user["user"] for user in root.call("user.list")["users"]] == ["root"]
    entries = root.call("audit.list")["entries"]
    assert next(entry["action"] for entry in entries if entry["object"] == "ann") == "user.remove"
    assert "second" not in str(entries)


def test_an_administrator_always_remains(site: Site) -> None:
    root = site.user("root", *Right)
    text = "no user would have the right admin on everything"
    with pytest.raises(errors.InUse, match=text):
        root.call("user.remove", user="root")
    with pytest.raises(errors.InUse, match=text):
        root.call("user.setRights", user="root", pattern="*", rights=["send"])
    root.call("queue.list")
    for fields, error in (({"user": "a:b"}, "colon"), ({"user": "b", "password": ""}, "1 to 1024 characters")):
        with pytest.raises(errors.InvalidRequest, match=error):
            root.call("user.add", **{"password": "x", **fields})
    with pytest.raises(errors.InvalidRequest, match="'fly' is not a right"):
        root.call("user.setRights", user="root", pattern="*", rights=["fly"])
    with pytest.raises(errors.UserNotFound):
        root.call("user.setRights", user="nobody", pattern="*", rights=["send"])
    some = site.user("some", *Right, queue="orders")
    with pytest.raises(errors.NotAllowed):
        some.call("user.add", user="eve", password="x")
