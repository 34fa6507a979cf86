"""The name of a link in the archive: the client's container, and its user."""

from __future__ import annotations

from pathlib import Path

from penstock.broker_core.amqp import Accepted, Rejected
from penstock.broker_core.amqp.performatives import Detach
from penstock.broker_core.engine.columns.rowset import RowSet
from penstock.broker_core.engine.columns.states import State
from penstock.broker_core.reading.batches import BatchRequest, record_batches

from ..service.helpers import enqueue
from .frames import detach, says
from .harness import Script, Stage, stage
from .logins import Site, log_in, user
from .transacting import commit, control, declare, discharged, within


def accept_one(client: Script, outcome: Accepted | Rejected | None = None) -> None:
    """Take one message, and settle it."""
    client.receiver(credit=1)
    client.expect_message()
    client.send(says(outcome or Accepted(), 0))


def holders(s: Stage, count: int) -> list[str | None]:
    """Return the holder of each message once all of them are settled, as a replay shows it."""
    s.until(lambda: s.counts("q") == {State.ARCHIVED.name.lower(): count}, "all messages are settled")
    slices = s.service.slices("q", RowSet.range(0, count))
    batches = record_batches(s.service.journal, slices, BatchRequest(["holder"], "q"))
    return [name for batch in batches for name in batch.column("holder").to_pylist()]


def test_a_message_names_the_container_and_the_user_that_settled_it(tmp_path: Path) -> None:
    may = {"q": "receive"}
    site = Site(tmp_path, {"alice": user("secret"), "bob": user("secret")}, {"alice": may, "bob": may})
    with stage(tmp_path, access=site.access, fsync="never") as s:
        s.declare("q")
        s.service.submit(enqueue("q", b"m0", b"m1", b"m2"))
        accept_one(log_in(s, "alice", container_id="orders-worker").usual())
        accept_one(log_in(s, "bob", container_id="orders-worker").usual(), Rejected())
        accept_one(log_in(s, "bob", container_id="").usual())
        assert holders(s, 3) == ["orders-worker (alice)", "orders-worker (bob)", "bob"]


def test_a_client_without_a_user_name_is_named_by_its_container(tmp_path: Path) -> None:
    """A long id is cut, and control characters are visible."""
    with stage(tmp_path) as s:
        s.declare("q")
        s.service.submit(enqueue("q", b"m0", b"m1", b"m2"))
        for container in ("orders-worker", "x" * 5000, "a\nb"):
            accept_one(s.script(container_id=container).usual())
        assert holders(s, 3) == ["orders-worker", f"{'x' * 99}…", "a\\nb"]


def test_a_transaction_names_the_container_whose_link_has_ended(tmp_path: Path) -> None:
    with stage(tmp_path) as s:
        s.declare("q")
        client = s.script(container_id="orders-worker").usual()
        control(client)
        transaction = declare(client, 0)
        s.service.submit(enqueue("q", b"m0"))
        client.receiver(handle=1, credit=1)
        client.expect_message()
        client.send(says(within(transaction, Accepted()), 0), detach(1))
        client.expect(Detach)
        commit(client, 1, transaction)
        discharged(client, 1)
        assert holders(s, 1) == ["orders-worker"]
