"""One write over several brokers: the sink's own methods against real brokers, without Spark."""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.broker_core import errors
from penstock.broker_core.client.flight import Client
from penstock.connector.brokers import decision, publishing
from penstock.connector.brokers.spread import Spread
from penstock.connector.options import Options
from penstock.connector.sink.writer import BatchWriter, StageReport, StreamWriter
from penstock.connector.task.declared import DeclaredRows

from .helpers import INITIAL, LIMIT, SENT, Site

GROUPS = 30


def rows(first: int, count: int, groups: int = GROUPS) -> pa.RecordBatch:
    """Messages whose body contains their group and their number in the write."""
    bodies = [f"{i % groups}:{i}".encode() for i in range(first, first + count)]
    return pa.record_batch({"body": pa.array(bodies, pa.binary()), "groupId": pa.array([f"g{i % groups}" for i in range(count)])})


def writer(site: Site, letters: str = "abc", **options: str) -> BatchWriter:
    return BatchWriter(site.options(letters, **options), SENT, False)


def written(made: BatchWriter, *tasks: pa.RecordBatch) -> list[StageReport]:
    reports = [made.write(iter([task])) for task in tasks]
    assert all(isinstance(report, StageReport) for report in reports)
    return reports  # type: ignore[return-value]


def numbers(site: Site, letters: str = "abc") -> list[int]:
    return sorted(int(body.partition(":")[2]) for letter in letters for body in site.bodies(letter))


def places(site: Site) -> dict[str, set[str]]:
    """The brokers of each group."""
    brokers_of = defaultdict(set)
    for letter in "abc":
        for body in site.bodies(letter):
            brokers_of[body.partition(":")[0]].add(letter)
    return dict(brokers_of)


# --- Where rows go ---------------------------------------------------------------------------------------------------------


def test_a_message_group_always_goes_to_the_same_broker(site: Site) -> None:
    for letters in ("abc", "cab"):
        made = writer(site, letters)
        made.commit(list(written(made, rows(0, 90), rows(0, 90))))
    actual = places(site)
    assert len(actual) == GROUPS
    assert all(len(where) == 1 for where in actual.values())
    assert set.union(*actual.values()) == {"a", "b", "c"}
    for letter in "abc":
        bodies = [body for body in site.bodies(letter) if body.startswith("7:")]
        assert bodies in ([], ["7:7", "7:37", "7:67"] * 4)  # in the order of partitions and rows


def test_another_broker_takes_groups_from_the_others_and_moves_no_other(site: Site) -> None:
    made = writer(site, "ab")
    made.commit(list(written(made, rows(0, GROUPS))))
    before = places(site)
    made = writer(site, "abc")
    made.commit(list(written(made, rows(0, GROUPS))))
    after = {group: where - before[group] for group, where in places(site).items()}
    assert set.union(*after.values()) == {"c"}


def test_a_group_within_an_encoded_message_counts_too(site: Site) -> None:
    made = writer(site)
    made.commit(list(written(made, rows(0, 90))))
    before = places(site)
    source = site.reader(queue=site.queue)
    source._declared = DeclaredRows(("message",), (True,))
    end = source.latestOffset(INITIAL, LIMIT)
    messages = [batch for part in source.partitions(INITIAL, end) for batch in source.read(part)]
    from penstock.connector.schema import source_schema

    again = BatchWriter(site.options(), source_schema(("message",)), False)
    again.commit([again.write(iter(messages))])
    assert places(site) == before
    assert numbers(site) == list(range(90))


def test_rows_without_a_group_stay_together_and_each_batch_begins_with_another_broker(site: Site) -> None:
    spread = Spread(site.options(), {"body": 0})
    assert {spread.home("w", batch) for batch in range(3)} == set(spread.ids) == {site.id(letter) for letter in "abc"}
    made = writer(site)
    bare = rows(0, 50).set_column(1, "groupId", pa.nulls(50, pa.string()))
    made.commit(list(written(made, bare)))
    assert sorted(len(site.bodies(letter)) for letter in "abc") == [0, 0, 50]


def test_many_rows_are_sent_in_parts_and_keep_their_order(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.connector.brokers.spread.MOST_ROWS", 10)
    made = writer(site)
    made.commit([made.write(iter([rows(i, 30) for i in range(0, 900, 30)]))])
    assert numbers(site) == list(range(900))
    for letter in "abc":
        numbers_stored = [int(body.partition(":")[2]) for body in site.bodies(letter)]
        assert numbers_stored == sorted(numbers_stored)


# --- All of it, once -------------------------------------------------------------------------------------------------------


def test_nothing_is_seen_before_the_commit_and_an_abort_leaves_nothing_anywhere(site: Site) -> None:
    made = writer(site)
    tasks = written(made, rows(0, 90))
    assert numbers(site) == []
    assert all(site.call(letter, "stage.list")["stages"] for letter in "abc")
    made.abort(list(tasks))
    assert not any(site.call(letter, "stage.list")["stages"] for letter in "abc")


def test_a_transaction_is_published_once_at_each_broker_however_its_rows_are_divided(site: Site) -> None:
    for version, tasks in (("1", [rows(0, 90)]), ("1", [rows(30, 60), rows(0, 30)]), ("0", [rows(0, 90)]), ("2", [rows(90, 30)])):
        made = writer(site, txnAppId=site.queue, txnVersion=version)
        made.commit(list(written(made, *tasks)))
    assert numbers(site) == list(range(120))
    assert not any(site.call(letter, "stage.list")["stages"] for letter in "abc")


def test_a_stream_batch_is_published_once(site: Site) -> None:
    for number, part in ((3, rows(0, 90)), (3, rows(0, 90)), (2, rows(0, 90)), (4, rows(90, 30))):
        made = StreamWriter(site.options(), SENT, False)
        task = made._stage(iter([part]), made._write_of(number), {"kind": "stream", "id": site.queue, "number": number})
        task.query, task.batch = site.queue, number
        made.commit([task], number)
    assert numbers(site) == list(range(120))


DRIVER = """
import sys
sys.path.append(sys.argv[2])
from penstock.connector.brokers.publishing import Publishing
from penstock.connector.options import Options
from penstock.connector.sink.writer import BatchWriter
from tests.several.helpers import SENT
from tests.several.test_writing import rows

def one_of_several(*given):
    publish(*given)
    print("published", flush=True)
    sys.stdin.readline()

publish, Publishing._publish = Publishing._publish, one_of_several
made = BatchWriter(Options(eval(sys.argv[1])), SENT, False)
made.commit([made.write(iter([rows(0, 90)]))])
"""


def test_a_driver_that_dies_between_two_publishes_leaves_what_a_repetition_finishes(site: Site) -> None:
    """The driver is killed when one broker has published its part; so is one of the others."""
    options = {"url": site.urls(), "queue": site.queue, "txnAppId": site.queue, "txnVersion": "1"}
    root = str(Path(__file__).parents[2])
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, repr(options), root], stdin=-1, stdout=-1, text=True)
    assert driver.stdout is not None
    assert driver.stdout.readline() == "published\n"
    driver.kill()
    driver.communicate()
    first, *_, last = sorted("abc", key=site.id)
    parts = {first: len(site.bodies(first))}
    parts |= {letter: site.call(letter, "stage.list")["stages"][0]["messages"] for letter in "abc" if letter != first}
    assert sum(parts.values()) == 90
    site.broker(last).kill()
    site.broker(last).start()
    assert len(numbers(site)) == parts[first] < 90
    # The repetition's rows are divided otherwise: it sends none of them.
    again = writer(site, txnAppId=site.queue, txnVersion="1")
    tasks = written(again, rows(0, 45, 7), rows(45, 45, 11))
    assert [(task.published, task.attempt) for task in tasks] == [(True, None)] * 2
    again.commit(list(tasks))
    assert numbers(site) == list(range(90))
    assert {letter: len(site.bodies(letter)) for letter in "abc"} == parts
    for made in (writer(site, txnAppId=site.queue, txnVersion=version) for version in "12"):
        made.commit(list(written(made, rows(90, 9))))
    assert numbers(site) == list(range(99))


def begun(site: Site) -> tuple[str, str]:
    """A write of which the first broker alone has published its part; the first broker, and the last."""
    made = writer(site, txnAppId=site.queue, txnVersion="1")
    tasks = written(made, rows(0, 90))
    first, *_, last = sorted("abc", key=site.id)
    parts = {broker: [tasks[0].attempt or 0] for broker in sorted(site.id(letter) for letter in "abc")}
    text = decision.written(tasks[0].write, parts)
    fields = {"write": tasks[0].write, "base": tasks[0].attempt, "attempts": [0], "key": made._key, "elsewhere": text}
    site.call(first, "stage.publish", **fields)
    return first, last


def test_a_second_driver_that_has_staged_meanwhile_finishes_the_first_one_s_write(site: Site) -> None:
    made = writer(site, txnAppId=site.queue, txnVersion="1")
    tasks = written(made, rows(500, 90))  # asked before the first driver has published
    begun(site)
    made.commit(list(tasks))
    assert numbers(site) == list(range(90))
    assert not any(site.call(letter, "stage.list")["stages"] for letter in "abc")


def test_a_broker_with_a_part_that_is_missing_cannot_be_left_out(site: Site) -> None:
    _, last = begun(site)
    made = writer(site, "abc".replace(last, ""), txnAppId=site.queue, txnVersion="1")
    with pytest.raises(errors.InvalidOption, match="put that broker back"):
        made.commit(list(written(made, rows(0, 90))))


def test_a_part_that_was_discarded_is_told_as_lost(site: Site) -> None:
    _, last = begun(site)
    (stage,) = [row for row in site.call(last, "stage.list")["stages"] if row["queues"] == [site.queue]]
    site.call(last, "stage.discard", write=stage["stage"])
    made = writer(site, txnAppId=site.queue, txnVersion="1")
    with pytest.raises(errors.DataLoss, match="failOnDataLoss=false"):
        made.commit(list(written(made, rows(0, 90))))


def test_a_write_without_a_key_says_which_brokers_have_published(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "PUBLISH_S", 0.1)
    made = writer(site)
    tasks = written(made, rows(0, 90))
    first, *_, last = sorted("abc", key=site.id)
    site.broker(last).stop()
    with pytest.raises(errors.Unreachable, match=f"{site.broker(first).url}.* published theirs: look into the queues"):
        made.commit(list(tasks))


def test_a_broker_that_is_added_between_a_write_and_its_repetition_gets_nothing(site: Site) -> None:
    for letters in ("a", "ab", "abc"):
        made = writer(site, letters, txnAppId=site.queue, txnVersion="1")
        made.commit(list(written(made, rows(0, 90))))
    assert numbers(site) == list(range(90))
    assert numbers(site, "bc") == []


# --- Outcomes --------------------------------------------------------------------------------------------------------------


def outcomes(site: Site, **options: str) -> tuple[BatchWriter, pa.RecordBatch]:
    """A writer of outcomes, and those of all that a stream has read: rejected."""
    from penstock.connector.schema import SETTLE, StructField, StructType, source_schema
    from penstock.connector.stream.reader import StreamReader

    for letter in "ab":
        site.send(letter, 2)
    site.readers.append(reader := StreamReader(site.options("ab", **options), source_schema(("delivery",))))
    end = reader.latestOffset(INITIAL, LIMIT)
    deliveries = [key for part in reader.partitions(INITIAL, end) for b in reader.read(part) for key in b["delivery"].to_pylist()]
    batch = pa.record_batch({"delivery": pa.array(deliveries, pa.binary()), "outcome": pa.array(["rejected"] * 4)})
    schema = StructType([StructField(name, SETTLE[name]) for name in ("delivery", "outcome")])
    made = BatchWriter(Options({"url": site.urls("ab"), "operation": "settle"}), schema, False)
    made.commit([made.write(iter([batch]))])
    reader.latestOffset(end, LIMIT)
    return made, batch


def test_outcomes_go_to_the_broker_that_has_the_lease(site: Site) -> None:
    outcomes(site)
    for letter in "ab":
        with Client(site.broker(letter).url) as client:
            batches = client.get(op="browse", queue=site.queue, states=["archived"], columns=["outcome"])
            assert [outcome for batch in batches for outcome in batch["outcome"].to_pylist()] == ["rejected"] * 2


def test_leases_of_one_name_are_refused_for_outcomes(site: Site) -> None:
    with pytest.raises(errors.InvalidRequest, match=r"at several brokers.*Leave the option lease out"):
        outcomes(site, lease="me")
