"""U11: the audit log has each change with its user, through Flight, HTTP and the command line."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.broker_core import errors
from penstock.broker_core.actions.actions import ACTIONS
from penstock.broker_core.security import Right

from .peers import Site

NOT_AUDITED = {
    "message.send",
    "lease.advance",
    "lease.plan",
    "lease.settle",
    "lease.renew",
    "lease.setAside",
    "stage.publish",
    "stage.discard",
}


def shown(entry: dict[str, Any]) -> tuple[Any, ...]:
    return entry["user"], entry["action"], entry["object"], entry["count"], entry["outcome"]


def test_each_change_is_audited_except_those_of_the_flow_of_messages() -> None:
    audited = {name for name, action in ACTIONS.items() if action.audited}
    assert audited == {name for name, action in ACTIONS.items() if not action.reads} - NOT_AUDITED


def test_who_changed_what(site: Site) -> None:
    root = site.user("root", *Right)
    for queue in ("orders", "other"):
        root.call("queue.declare", queue=queue, options={"maxAttempts": 3})
    root.put(b"one", b"two", op="enqueue", queue="orders")
    root.call("queue.move", queue="orders", target="other", messages=1)
    root.call("queue.purge", queue="orders")
    with pytest.raises(errors.QueueNotFound):
        root.call("queue.pause", queue="no-such")
    bob = site.user("bob", Right.ADMIN, queue="other")
    with pytest.raises(errors.NotAllowed):
        bob.call("queue.delete", queue="orders")
    entries = root.call("audit.list")["entries"]
    assert [shown(entry) for entry in entries] == [
        ("bob", "queue.delete", "orders", None, "refused"),
        ("root", "queue.pause", "no-such", None, "failed"),
        ("root", "queue.purge", "orders", 1, "done"),
        ("root", "queue.move", "orders", 1, "done"),
        ("root", "queue.declare", "other", None, "done"),
        ("root", "queue.declare", "orders", None, "done"),
    ]
    assert entries[-1]["details"] == {"type": "fifo", "options": {"maxAttempts": 3}}
    assert "may not delete" in entries[0]["error"]
    assert all("127.0.0.1" in entry["peer"] for entry in entries)
    assert [shown(entry)[:3] for entry in bob.call("audit.list", queue="other")["entries"]] == [
        ("root", "queue.move", "orders"),
        ("root", "queue.declare", "other"),
    ]
    assert len(root.call("audit.list", action="declare", count=1)["entries"]) == 1
    for fields in ({}, {"queue": "orders"}):
        with pytest.raises(errors.NotAllowed, match="may not read the audit log of"):
            bob.call("audit.list", **fields)
    for fields in ({"outcome": "maybe"}, {"count": 1001}, {"since": "soon"}):
        with pytest.raises(errors.InvalidRequest, match=next(iter(fields))):
            root.call("audit.list", **fields)
