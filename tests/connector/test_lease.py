"""Batches of a stream and their owners, without Spark: restarts, older epochs, other checkpoints, returned batches."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from penstock.broker_core import errors
from penstock.connector.stream import lease as lease_module

from .helpers import INITIAL, LIMIT, Queue, read_all


@pytest.mark.parametrize("call", ["partitions", "latestOffset", "commit"])
def test_any_call_may_be_the_first_after_a_restart(queue: Queue, call: str) -> None:
    queue.send(2)
    old = queue.reader()
    end = old.latestOffset(INITIAL, LIMIT)
    epoch = queue.lease()["epoch"]
    read_all(old, INITIAL, end)
    new = queue.reader()
    if call == "partitions":
        assert read_all(new, INITIAL, end) == [0, 1]
    elif call == "latestOffset":
        assert new.latestOffset(end, LIMIT) == end
    else:
        new.commit(end)
    assert queue.lease()["epoch"] == epoch + 1
    assert new.latestOffset(end, LIMIT) == end
    assert queue.lease()["epoch"] == epoch + 1  # one planner, one epoch
    assert queue.counts() == (0, 0, 2)


def test_what_an_older_epoch_asks_is_refused_and_the_text_names_the_self_join(queue: Queue) -> None:
    queue.send(2)
    old = queue.reader()
    end = old.latestOffset(INITIAL, LIMIT)
    (zombie,) = old.partitions(INITIAL, end)
    new = queue.reader()
    new.partitions(INITIAL, end)
    for call in (lambda: old.latestOffset(end, LIMIT), lambda: old.commit(end), lambda: list(old.read(zombie))):
        with pytest.raises(errors.Fenced, match=r"mode=browse.*foreachBatch"):
            call()
    assert queue.counts() == (0, 2, 0)


def test_two_sides_of_a_self_join_learn_of_it_before_any_task_runs(queue: Queue) -> None:
    """Spark asks both for an offset, then both for the tasks."""
    queue.send(2)
    left, right = queue.reader(lease="me"), queue.reader(lease="me")
    end = left.latestOffset(INITIAL, LIMIT)
    right.latestOffset(INITIAL, LIMIT)
    with pytest.raises(errors.PenstockError, match=r"self-join|earlier run"):
        left.partitions(INITIAL, end)


def test_a_batch_that_was_read_waits_for_its_query(queue: Queue) -> None:
    queue.send(2)
    reader = queue.reader()
    end = reader.latestOffset(INITIAL, LIMIT)
    read_all(reader, INITIAL, end)
    assert queue.lease()["stage"] == "read"
    queue.broker.kill()
    queue.broker.start()
    assert queue.counts() == (0, 2, 0)
    assert read_all(reader, INITIAL, end) == [0, 1]  # the same planner continues with its epoch
    assert reader.latestOffset(end, LIMIT) == end
    assert queue.counts() == (0, 0, 2)


def test_an_operator_gives_a_read_batch_back_and_the_query_says_so(queue: Queue) -> None:
    queue.send(2)
    reader = queue.reader()
    end = reader.latestOffset(INITIAL, LIMIT)
    read_all(reader, INITIAL, end)
    queue.client.call("lease.release", lease=end["lease"], how="return")
    with pytest.raises(errors.Fenced):  # the query that still runs
        reader.latestOffset(end, LIMIT)
    with pytest.raises(errors.DataLoss, match="failOnDataLoss=false"):
        read_all(queue.reader(), INITIAL, end)
    with pytest.raises(errors.DataLoss, match="at least once"):
        queue.reader().latestOffset(end, LIMIT)
    lax = queue.reader(failOnDataLoss="false")
    assert read_all(lax, INITIAL, end) == []
    following = lax.latestOffset(end, LIMIT)
    assert read_all(lax, end, following) == [0, 1]
    counts = [b.column("deliveryCount").to_pylist() for p in lax.partitions(end, following) for b in lax.read(p)]
    assert counts == [[1, 1]]


def test_a_commit_follows_the_choice_on_data_loss_too(queue: Queue) -> None:
    """After a restart it may be the first call."""
    queue.send(2)
    reader = queue.reader()
    end = reader.latestOffset(INITIAL, LIMIT)
    read_all(reader, INITIAL, end)
    queue.client.call("lease.release", lease=end["lease"], how="return")
    with pytest.raises(errors.DataLoss, match="failOnDataLoss=false"):
        queue.reader().commit(end)
    queue.reader(failOnDataLoss="false").commit(end)
    assert queue.lease()["finished"] == end["batches"][queue.name]


def test_a_fresh_checkpoint_on_a_lease_that_holds_a_read_batch_is_refused(queue: Queue) -> None:
    queue.send(2)
    reader = queue.reader(lease="named")
    end = reader.latestOffset(INITIAL, LIMIT)
    read_all(reader, INITIAL, end)
    says = r"another query uses lease 'named' now \(renewed \d\.\d s ago\): give this one another name by the option lease"
    with pytest.raises(errors.LeaseInUse, match=says):
        queue.reader(lease="named").latestOffset(INITIAL, LIMIT)
    assert queue.counts() == (0, 2, 0)
    queue.client.call("lease.release", lease="named", how="settle")
    queue.send(1)
    with pytest.raises(errors.LeaseInUse, match=says):  # it holds no batch now, and lives
        queue.reader(lease="named").latestOffset(INITIAL, LIMIT)
    queue.client.call("lease.delete", lease="named")
    fresh = queue.reader(lease="named")
    following = fresh.latestOffset(INITIAL, LIMIT)
    assert following["run"] != end["run"]
    assert read_all(fresh, INITIAL, following) == [2]


def test_of_two_queries_that_wait_under_one_name_the_second_is_refused(queue: Queue) -> None:
    first, second = queue.reader(lease="named"), queue.reader(lease="named")
    assert [reader.latestOffset(INITIAL, LIMIT) for reader in (first, second)] == [INITIAL, INITIAL]
    queue.send(1)
    end = first.latestOffset(INITIAL, LIMIT)
    with pytest.raises(errors.LeaseInUse, match="another query uses lease 'named' now"):
        second.latestOffset(INITIAL, LIMIT)
    assert read_all(first, INITIAL, end) == [0]


def test_a_query_whose_first_batch_is_planned_and_not_read_keeps_its_lease(queue: Queue) -> None:
    """Spark has written an offset then: were the lease another's, its checkpoint would be dead."""
    queue.send(1)
    reader = queue.reader(lease="named")
    end = reader.latestOffset(INITIAL, LIMIT)
    assert not queue.lease()["checkpointed"]
    parts = reader.partitions(INITIAL, end)
    assert queue.lease()["checkpointed"]
    for _ in range(2):
        with pytest.raises(errors.LeaseInUse, match="another query uses lease 'named' now"):
            queue.reader(lease="named").latestOffset(INITIAL, LIMIT)
        queue.broker.kill()
        queue.broker.start()
    assert [row for part in parts for batch in reader.read(part) for row in batch.column("sequenceNumber").to_pylist()] == [0]
    assert queue.reader(lease="named").latestOffset(end, LIMIT) == end  # the query itself, started again
    assert queue.counts() == (0, 0, 1)


def test_the_first_batch_of_a_lease_that_was_begun_again_while_its_queue_was_empty_is_kept_too(queue: Queue) -> None:
    queue.send(1)
    queue.reader(lease="named").latestOffset(INITIAL, LIMIT)  # and dies
    epoch = queue.lease()["epoch"]
    queue.client.call("queue.pause", queue=queue.name)
    reader = queue.reader(lease="named")
    assert reader.latestOffset(INITIAL, LIMIT) == INITIAL
    assert (queue.lease()["epoch"], queue.lease()["stage"]) == (epoch + 1, "idle")
    queue.client.call("queue.resume", queue=queue.name)
    end = reader.latestOffset(INITIAL, LIMIT)
    reader.partitions(INITIAL, end)
    with pytest.raises(errors.LeaseInUse):
        queue.reader(lease="named").latestOffset(INITIAL, LIMIT)
    assert read_all(reader, INITIAL, end) == [0]


def test_a_query_that_died_before_its_first_checkpoint_leaves_nothing_stuck(queue: Queue) -> None:
    queue.send(2)
    queue.reader(lease="named").latestOffset(INITIAL, LIMIT)  # acquired, read by no task, no offset written
    again = queue.reader(lease="named")
    assert read_all(again, INITIAL, again.latestOffset(INITIAL, LIMIT)) == [0, 1]


def test_an_older_checkpoint_is_refused_unless_data_loss_is_accepted(queue: Queue) -> None:
    queue.send(3)
    reader = queue.reader(maxMessagesPerTrigger="1")
    first = reader.latestOffset(INITIAL, LIMIT)
    read_all(reader, INITIAL, first)
    second = reader.latestOffset(first, LIMIT)
    read_all(reader, first, second)
    reader.commit(second)
    with pytest.raises(errors.DataLoss, match="older than"):
        queue.reader().latestOffset(first, LIMIT)
    lax = queue.reader(failOnDataLoss="false", maxMessagesPerTrigger="1")
    following = lax.latestOffset(first, LIMIT)
    assert following["batches"][queue.name] > second["batches"][queue.name]
    assert read_all(lax, second, following) == [2]


def test_a_checkpoint_of_an_earlier_run_is_refused(queue: Queue) -> None:
    queue.send(1)
    old = queue.reader(lease="named")
    end = old.latestOffset(INITIAL, LIMIT)
    read_all(old, INITIAL, end)
    old.commit(end)
    queue.client.call("lease.delete", lease="named")
    queue.send(1)
    queue.reader(lease="named").latestOffset(INITIAL, LIMIT)
    with pytest.raises(errors.WrongOffset, match="earlier run"):
        queue.reader(lease="named").latestOffset(end, LIMIT)


@pytest.mark.parametrize(
    ("change", "options", "says"),
    [
        ({"broker": "0" * 32}, {}, "belongs to broker 0+.*option url"),
        ({"lease": "other"}, {"lease": "named"}, "option lease is 'named'"),
        ({"lease": "other"}, {}, "option lease is not set"),
        ({"lease": "q-" + "0" * 32}, {}, "no lease 'q-0+'.*new checkpoint"),
        ({"run": "beef"}, {"lease": "named"}, "earlier run"),
        ({"batches": 9}, {"lease": "named"}, "names batch 9.*last batch is 1"),
    ],
)
def test_an_offset_that_is_not_this_query_s_is_refused(
    queue: Queue, change: dict[str, Any], options: dict[str, str], says: str
) -> None:
    queue.send(1)
    reader = queue.reader(lease="named")
    if "batches" in change:
        change = {"batches": {queue.name: change["batches"]}}
    end = {**reader.latestOffset(INITIAL, LIMIT), **change}
    for call in (lambda r: r.latestOffset(end, LIMIT), lambda r: r.partitions(INITIAL, end)):
        with pytest.raises(errors.WrongOffset, match=says):
            call(queue.reader(**options))


def test_another_queue_under_a_checkpoint_is_refused(queue: Queue) -> None:
    queue.send(1)
    end = queue.reader().latestOffset(INITIAL, LIMIT)
    queue.client.call("queue.declare", queue="elsewhere")
    with pytest.raises(errors.WrongOffset, match="belongs to queue"):
        queue.reader(queue="elsewhere").latestOffset(end, LIMIT)


def test_a_queue_that_does_not_exist_and_a_broker_that_does_not_answer(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(errors.NotFound, match="nowhere"):
        queue.reader(queue="nowhere").latestOffset(INITIAL, LIMIT)
    monkeypatch.setattr(lease_module, "RECONNECT_S", 86_400.0)
    with pytest.raises(errors.PeerError, match="penstock serve"):  # the url may be wrong: reported immediately, not after a day
        queue.reader(url="grpc://127.0.0.1:1").latestOffset(INITIAL, LIMIT)


def test_two_readers_share_a_queue(queue: Queue) -> None:
    queue.send(4)
    first, second = queue.reader(maxMessagesPerTrigger="2"), queue.reader(maxMessagesPerTrigger="2")
    ends = [reader.latestOffset(INITIAL, LIMIT) for reader in (first, second)]
    assert ends[0]["lease"] != ends[1]["lease"]
    assert read_all(first, INITIAL, ends[0]) == [0, 1]
    assert read_all(second, INITIAL, ends[1]) == [2, 3]


def renewing() -> set[threading.Thread]:
    """Return the threads of this process that renew leases: tests before may have left planners."""
    return {thread for thread in threading.enumerate() if thread.name == "penstock-renew"}


def test_the_planner_renews_while_it_lives(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_module, "RENEW_S", 0.05)
    before = renewing()
    queue.send(1)
    reader = queue.reader()
    reader.latestOffset(INITIAL, LIMIT)
    silent = queue.lease()["renewed"]
    while (now := queue.lease()["renewed"]) >= silent:  # grows until it is renewed
        silent = now
    (thread,) = renewing() - before
    reader.stop()
    thread.join(30)
    assert not thread.is_alive()


def end(queue: Queue, lease: str) -> None:
    queue.client.call("lease.release", lease=lease, how="settle")
    queue.client.call("lease.delete", lease=lease)


def test_one_thread_renews_the_leases_of_all_queues_and_goes_on_behind_one_that_is_lost(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_module, "RENEW_S", 0.05)
    before = renewing()
    names = [queue.name, *(f"{queue.name} {number}" for number in range(3))]
    queue.send(1)
    for name in names[1:]:
        queue.client.call("queue.declare", queue=name)
        queue.client.call("queue.copy", queue=queue.name, target=name)
    queue.reader(queue=",".join(names)).latestOffset(INITIAL, LIMIT)
    assert len(renewing() - before) == 1
    first, *others = (lease["name"] for lease in queue.client.call("lease.list")["leases"])
    end(queue, first)

    def silences() -> dict[str, float]:
        return {lease["name"]: lease["renewed"] for lease in queue.client.call("lease.list")["leases"]}

    silent = silences()
    assert sorted(silent) == sorted(others)
    missing = set(others)
    while missing:  # a silence grows until the lease is renewed
        now = silences()
        missing -= {name for name in missing if now[name] < silent[name]}
        silent = now
    for name in others:
        end(queue, name)
    for name in names[1:]:
        queue.client.call("queue.delete", queue=name, force=True)


@pytest.mark.parametrize("call", ["latestOffset", "partitions", "commit", "read"])
@pytest.mark.parametrize("restarted", [False, True])
def test_a_queue_that_was_declared_again_is_named(queue: Queue, call: str, restarted: bool) -> None:
    queue.send(3)
    reader = queue.reader()
    end = reader.latestOffset(INITIAL, LIMIT)
    parts = reader.partitions(INITIAL, end)
    queue.client.call("queue.delete", queue=queue.name, force=True)
    queue.client.call("queue.declare", queue=queue.name)
    again = queue.reader() if restarted else reader
    calls: dict[str, Callable[[], object]] = {
        "latestOffset": lambda: again.latestOffset(end, LIMIT),
        "partitions": lambda: queue.reader().partitions(INITIAL, end),
        "commit": lambda: again.commit(end),
        "read": lambda: [list(again.read(part)) for part in parts],
    }
    says = f"queue {re.escape(repr(queue.name))}.*declared again.*with a new checkpoint"
    with pytest.raises((errors.WrongOffset, errors.LeaseNotFound), match=says):
        calls[call]()


def test_a_broker_that_restarts_ends_no_query(queue: Queue, tmp_path: Path) -> None:
    queue.send(1)
    reader = queue.reader()
    end = reader.latestOffset(INITIAL, LIMIT)
    read_all(reader, INITIAL, end)
    queue.broker.kill()
    restart = threading.Timer(1.0, queue.broker.start)
    restart.start()
    assert reader.latestOffset(end, LIMIT) == end
    restart.join()
    assert queue.counts() == (0, 0, 1)


def test_the_counts_of_each_queue_come_with_the_batch(queue: Queue) -> None:
    """S10: the counts of the query's progress, after the batch is taken, without another request."""
    queue.send(10)
    reader = queue.reader(maxMessagesPerTrigger="4")
    first = reader.latestOffset(INITIAL, LIMIT)
    asked = queue.client.call("queue.stat", queue=queue.name)
    shown = reader.reportLatestOffset()
    assert shown["source"] == f"amqp[{queue.name} @ {queue.broker.url.removeprefix('grpc://')}]"
    counts = shown["queues"][queue.name]
    assert 0 <= counts.pop("oldestSeconds") < 60
    assert counts == {"available": 6, "inFlight": 4, "redelivered": 0, "deadLettered": 0, "bytes": asked["bytes"]}

    reader.commit(first)  # unread: it goes back
    assert reader.reportLatestOffset()["queues"][queue.name]["available"] == 6  # without a request
    second = reader.latestOffset(first, LIMIT)
    assert reader.reportLatestOffset()["queues"][queue.name]["redelivered"] == 4
    read_all(reader, first, second)
    last = reader.latestOffset(second, ReadAllAvailable())
    read_all(reader, second, last)
    assert reader.latestOffset(reader.latestOffset(last, LIMIT), LIMIT)
    assert reader.reportLatestOffset()["queues"][queue.name]["available"] == 0


def test_an_empty_queue_has_no_oldest_message(queue: Queue) -> None:
    reader = queue.reader()
    assert reader.latestOffset(INITIAL, LIMIT) == INITIAL
    counts = reader.reportLatestOffset()["queues"][queue.name]
    assert (counts["available"], counts["oldestSeconds"], counts["inFlight"]) == (0, None, 0)
