"""$cbs of a listener for Service Bus: forged, expired, foreign and other tokens, and connections without one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.broker_core.amqp import Message
from penstock.broker_core.amqp.frames import protocol_header
from penstock.broker_core.amqp.performatives import (
    RCV_FIRST,
    RCV_SECOND,
    Attach,
    Close,
    Detach,
    Disposition,
    Open,
    Transfer,
)
from penstock.broker_core.security import keys_file
from penstock.broker_core.security.audit import AuditFilter
from penstock.broker_core.settings.listeners import Listener

from ..service.helpers import Clock
from .frames import flow, receives, sends
from .harness import Stage, stage
from .logins import Site, user
from .service_bus import LISTENER, Cbs, attached

RIGHTS = {"alice": {"orders": "send,receive", "dead": "receive"}, "bob": {"orders": "send"}}


@pytest.fixture
def keys(tmp_path: Path) -> dict[str, str]:
    """A key for each user, in the file next to the users file."""
    path = keys_file.path_of(tmp_path / "users.json")
    made: keys_file.Keys = {}
    for number, who in enumerate(RIGHTS):
        made = keys_file.with_new(made, who, bytes([number]) * keys_file.KEY_BYTES)
    keys_file.edit(path, lambda _: made)
    return {who: several[0] for who, several in made.items()}


@pytest.fixture
def s(tmp_path: Path, keys: dict[str, str]) -> Iterator[Stage]:
    site = Site(tmp_path, {who: user() for who in RIGHTS}, RIGHTS)
    with stage(tmp_path, access=site.access, clock=Clock(), fsync="never", listeners=(LISTENER,)) as made:
        made.declare("dead")
        made.declare("orders", deadLetterQueue="dead")
        yield made


@pytest.fixture
def cbs(s: Stage, keys: dict[str, str]) -> Cbs:
    return Cbs(s, keys)


def test_a_token_lets_its_user_in_where_the_user_may(cbs: Cbs) -> None:
    assert attached(cbs.script, sends("orders", 2)).condition == "amqp:unauthorized-access", "no token yet"
    assert cbs.put(cbs.token("bob")) == (202, "Accepted")
    assert attached(cbs.script, sends("amqps://localhost/orders", 2)) is None
    cbs.script.send(receives("orders", 3))
    cbs.script.expect(Attach)
    error = cbs.script.expect(Detach).error
    assert error is not None
    assert "user 'bob' may not receive at 'orders'" in str(error.description)


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("forged", "no key of user 'alice'"),
        ("foreign", "no key of user 'carol'"),
        ("expired", "has expired"),
        ("another entity", "is for 'orders', not for 'other'"),
        ("a longer name", "is for 'orders', not for 'orders2'"),
        ("a JWT", "JWTs are not accepted"),
        ("no text", "JWTs are not accepted"),
        ("no sig", "has no sig"),
        ("no base64", "is not base64"),
        ("no time", "se is not a time"),
        ("twice", "one twice"),
        ("long", "is not a shared-access signature"),
    ],
)
def test_another_token_is_refused_with_its_reason(cbs: Cbs, case: str, reason: str) -> None:
    right = cbs.token()
    cbs.keys["carol"] = cbs.keys["alice"]
    names = {"another entity": "sb://localhost/other", "a longer name": "sb://localhost/orders2"}
    body: object = {
        "forged": right.replace("se=", "se=1"),
        "foreign": cbs.token("carol"),
        "expired": cbs.token(seconds=-1),
        "a JWT": "eyJhbGciOiJIUzI1NiJ9.e30.abc",
        "no text": b"octets",
        "no sig": right.replace("sig=", "gis="),
        "no base64": right.replace("sig=", "sig=!"),
        "no time": right.replace("se=", "se=x"),
        "twice": right + "&se=1",
        "long": right + "&x=" + "y" * 10_000,
    }.get(case, right)
    status, text = cbs.put(body, names.get(case, "sb://localhost/orders"))
    assert status == 401
    assert reason in text
    assert attached(cbs.script, sends("orders", 2)).condition == "amqp:unauthorized-access"
    (entry,) = cbs.stage.service.audit.entries(AuditFilter(action="login"), 10)
    claimed = {"forged": "alice", "foreign": "carol", "expired": "alice", "another entity": "alice", "a longer name": "alice"}
    assert (entry["user"], entry["outcome"], reason in entry["error"]) == (claimed.get(case, ""), "refused", True)


def test_a_token_for_no_entity_or_an_entity_of_others_is_refused(cbs: Cbs) -> None:
    """Without a right, the answer does not reveal whether the entity exists."""
    for name in ("dead", "nowhere"):
        status, text = cbs.put(cbs.token("bob", name), f"sb://localhost/{name}")
        assert (status, text) == (401, f"user 'bob' has no right at {name!r}")
    entries = cbs.stage.service.audit.entries(AuditFilter(user="bob"), 10)
    assert [(entry["action"], entry["object"]) for entry in entries] == [("link.token", "nowhere"), ("link.token", "dead")]
    cbs.stage.delete("orders")
    assert cbs.put(cbs.token("bob"))[0] == 404


def test_another_request_is_refused(cbs: Cbs) -> None:
    assert cbs.put(cbs.token(), operation="get-token")[0] == 501
    assert cbs.put(cbs.token(), operation=1)[0] == 400
    assert cbs.put(cbs.token(), name="")[0] == 401


def test_a_connection_has_one_user(cbs: Cbs) -> None:
    assert cbs.put(cbs.token("alice"))[0] == 202
    status, text = cbs.put(cbs.token("bob"))
    assert status == 401
    assert "belongs to user 'alice'" in text
    assert cbs.stage.plane.containers.users == {"alice": 1}


def test_a_link_ends_with_its_token_unless_that_is_renewed(cbs: Cbs) -> None:
    cbs.put(cbs.token(seconds=60))
    assert attached(cbs.script, sends("orders", 2)) is None
    cbs.stage.pass_time(50)
    assert cbs.put(cbs.token(seconds=60))[0] == 202
    cbs.stage.pass_time(50)
    cbs.script.nothing()
    cbs.stage.pass_time(11)
    error = cbs.script.expect(Detach, handle=2).error
    assert error is not None
    assert (error.condition, "expired" in str(error.description)) == ("amqp:unauthorized-access", True)


def test_a_link_ends_if_the_key_of_its_token_is_removed(cbs: Cbs, tmp_path: Path) -> None:
    cbs.put(cbs.token())
    assert attached(cbs.script, sends("orders", 2)) is None
    keys_file.edit(keys_file.path_of(tmp_path / "users.json"), lambda keys: keys_file.without(keys, "alice"))
    cbs.stage.access._monotonic.pass_(1)  # type: ignore[attr-defined]
    error = cbs.script.expect(Detach, handle=2).error
    assert error is not None
    assert "was removed" in str(error.description)
    assert cbs.put(cbs.token())[0] == 401


def test_the_previous_key_stays_valid_next_to_a_new_one(cbs: Cbs, tmp_path: Path) -> None:
    path = keys_file.path_of(tmp_path / "users.json")
    for number, status in ((7, 202), (8, 401)):
        keys_file.edit(path, lambda keys, number=number: keys_file.with_new(keys, "alice", bytes([number]) * 32))
        cbs.stage.access._monotonic.pass_(1)  # type: ignore[attr-defined]
        cbs.stage.access.refresh()
        assert cbs.put(cbs.token())[0] == status


def test_a_connection_without_a_token_is_closed(cbs: Cbs) -> None:
    cbs.stage.pass_time(cbs.stage.settings.amqp_login_timeout_s + 1)
    error = cbs.script.expect(Close).error
    assert error is not None
    assert (error.condition, "no valid token" in str(error.description)) == ("amqp:unauthorized-access", True)
    assert error.info == {}, "the Python SDK reads all three fields"
    cbs.script.send(Close())
    cbs.script.expect_end()


def test_a_refused_token_does_not_extend_the_time(cbs: Cbs) -> None:
    """Neither do attaches, whose refusals the client does not need to wait for."""
    limit = cbs.stage.settings.amqp_login_timeout_s
    for _ in range(2):
        cbs.stage.pass_time(limit / 3)
        assert cbs.put(cbs.token(seconds=-1))[0] == 401
        assert attached(cbs.script, sends("orders", 2)).condition == "amqp:unauthorized-access"
    cbs.stage.pass_time(limit / 3 + 1)
    cbs.script.expect(Close)


def test_a_connection_with_a_token_stays_open(cbs: Cbs) -> None:
    cbs.stage.pass_time(cbs.stage.settings.amqp_login_timeout_s - 1)
    assert cbs.put(cbs.token())[0] == 202
    cbs.stage.pass_time(cbs.stage.settings.amqp_login_timeout_s + 1)
    cbs.script.nothing()
    assert attached(cbs.script, sends("orders", 2)) is None


def test_a_connection_that_is_not_opened_is_closed(s: Stage) -> None:
    script = s.script(open=False)
    script.say("header AMQP", protocol_header(0))
    script.hear_header()
    s.pass_time(s.settings.amqp_login_timeout_s + 1)
    script.expect(Open)
    error = script.expect(Close).error
    assert error is not None
    assert error.condition == "amqp:resource-limit-exceeded"


def test_a_connection_whose_last_token_ended_is_closed(cbs: Cbs) -> None:
    cbs.put(cbs.token(seconds=20))
    cbs.stage.pass_time(21)
    cbs.script.nothing()
    cbs.stage.until(lambda: not any(peer.claims for peer in peers(cbs.stage)), "the claim is dropped")
    cbs.stage.pass_time(cbs.stage.settings.amqp_login_timeout_s + 1)
    cbs.script.expect(Close)


def peers(stage: Stage) -> list[Any]:
    return [accepted.peer for accepted in stage.plane._accepted]


def test_responses_that_nobody_takes_are_bounded(s: Stage, keys: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.broker_core.amqp_plane.service_bus.requests.MAX_WAITING", 2)
    client = Cbs(s, keys)
    client.script.send(flow(1, 0))
    for number in range(3):
        request = Message(application_properties={"operation": "x"}, value="", has_value=True).encode()
        tag = bytes([number + 1])
        client.script.send((Transfer(handle=0, delivery_id=number, delivery_tag=tag, message_format=0), request))
        client.script.expect(Disposition)
    error = client.script.expect(Detach, handle=1).error
    assert error is not None
    assert error.condition == "amqp:resource-limit-exceeded"


@pytest.mark.parametrize("first", [True, False])
def test_a_listener_may_settle_first(tmp_path: Path, first: bool) -> None:
    """A sender that asks for receiver-settles-second waits for a settled outcome, as Azure's own client does."""
    listener = Listener(mechanisms=("ANONYMOUS",), without_sasl=True, settles_first=first)
    with stage(tmp_path, fsync="never", listeners=(listener,)) as plain:
        plain.declare("q")
        script = plain.script().usual()
        assert script.sender("q", rcv_settle_mode=RCV_SECOND).rcv_settle_mode == (RCV_FIRST if first else RCV_SECOND)
        transfer = Transfer(handle=0, delivery_id=0, delivery_tag=b"1", message_format=0)
        script.send((transfer, Message(data=[b"x"]).encode()))
        script.expect(Disposition, settled=first)


def test_a_broker_without_users_verifies_no_signature(tmp_path: Path) -> None:
    with stage(tmp_path, fsync="never", listeners=(LISTENER,)) as open_to_all:
        open_to_all.declare("orders")
        client = Cbs(open_to_all, {"RootManageSharedAccessKey": "SAS_KEY_VALUE"})
        assert client.put(client.token("RootManageSharedAccessKey"))[0] == 202
        assert client.put(client.token("RootManageSharedAccessKey", seconds=-1))[0] == 401
        assert attached(client.script, sends("orders", 2)) is None
