"""A failed write over several brokers: the stages after Spark's abort, and the repetition."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from penstock.broker_core import errors
from penstock.broker_core.client.flight import Client
from penstock.broker_core.engine.columns.limits import MAX_ELSEWHERE
from penstock.connector.backoff import Patience
from penstock.connector.brokers import decision, publishing
from penstock.connector.brokers.publishing import Publishing
from penstock.connector.options import Options
from penstock.connector.schema import SETTLE, StructField, StructType, source_schema
from penstock.connector.sink import writer as sink
from penstock.connector.sink.writer import BatchWriter, StageReport, StreamWriter
from penstock.connector.stream.reader import StreamReader
from penstock.connector.task.context import MicroBatch

from .helpers import INITIAL, LIMIT, SENT, Site
from .test_writing import numbers, rows, writer, written


def in_order(site: Site) -> tuple[str, str, str]:
    """Return the letters of the brokers in the order in which they publish."""
    first, second, third = sorted("abc", key=site.id)
    return first, second, third


def staged(site: Site, letters: str = "abc") -> str:
    """Return the letters of the brokers that have stages."""
    return "".join(letter for letter in letters if site.call(letter, "stage.list")["stages"])


def in_stream(site: Site, batch: pa.RecordBatch, number: int, letters: str = "abc") -> tuple[StreamWriter, StageReport]:
    """Stage a micro-batch as one task; return its writer and the task's report."""
    made = StreamWriter(site.options(letters), SENT, False)
    task = made._stage(iter([batch]), made._write_of(number), {"kind": "stream", "id": site.queue, "number": number})
    task.query, task.batch = site.queue, number
    return made, task


# --- After an abort --------------------------------------------------------------------------------------------------------


@contextmanager
def halfway(site: Site) -> Iterator[None]:
    """A commit within fails: the second broker stops when the first one has published. It is back afterwards."""
    first, second, _ = in_order(site)
    publish = Publishing._publish

    def publish_and_stop(made: Publishing, broker: str, *arguments: Any) -> bool:
        repeated = publish(made, broker, *arguments)
        if broker == first_id:
            site.broker(second).stop()
        return repeated

    first_id = site.id(first)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(publishing, "PUBLISH_S", 0.1)
        patch.setattr(Publishing, "_publish", publish_and_stop)
        yield
    site.broker(second).start()


def test_an_abort_after_a_commit_that_failed_half_way_leaves_what_the_repetition_needs(site: Site) -> None:
    """Calls of Spark: `abort` follows a `commit` that has raised."""
    _, second, third = in_order(site)
    made = writer(site, txnAppId=site.queue, txnVersion="1")
    tasks = list(written(made, rows(0, 90)))
    with halfway(site):
        with pytest.raises(errors.Unreachable, match="write it again"):
            made.commit(tasks)
        made.abort(tasks)
    assert set(staged(site)) == {second, third}
    again = writer(site, txnAppId=site.queue, txnVersion="1")
    again.commit(list(written(again, rows(0, 90))))
    assert numbers(site) == list(range(90))
    assert staged(site) == ""


def test_so_does_the_abort_of_a_micro_batch(site: Site) -> None:
    made, task = in_stream(site, rows(0, 90), 1)
    with halfway(site):
        with pytest.raises(errors.Unreachable, match="write it again"):
            made.commit([task], 1)
        made.abort([task], 1)
    again, task = in_stream(site, rows(0, 90), 1)
    again.commit([task], 1)
    assert numbers(site) == list(range(90))
    assert staged(site) == ""


def test_an_abort_leaves_what_others_have_while_the_first_broker_is_away(site: Site) -> None:
    """Only that broker can report whether it has published its part."""
    first, second, third = in_order(site)
    made = writer(site, txnAppId=site.queue, txnVersion="1")
    tasks = list(written(made, rows(0, 90)))
    site.broker(first).stop()
    made.abort(tasks)
    assert set(staged(site, second + third)) == {second, third}
    site.broker(first).start()
    made.abort(tasks)
    assert staged(site) == ""


def test_a_publish_that_comes_after_the_abort_publishes_nothing(site: Site) -> None:
    """Not at the first broker either, where the write has no rows: its publish would decide."""
    first, *_ = in_order(site)
    made = writer(site, txnAppId=site.queue, txnVersion="1")
    tasks = list(written(made, rows(0, 90)))
    made.abort(tasks)
    tasks[0].brokers = tuple(broker for broker in tasks[0].brokers if broker != site.id(first))
    with pytest.raises(errors.StageNotFound, match="was discarded"):
        made.commit(tasks)
    again = writer(site, txnAppId=site.queue, txnVersion="1")
    again.commit(list(written(again, rows(0, 90))))
    assert numbers(site) == list(range(90))


def test_a_discarded_write_without_rows_at_a_broker_is_finished_at_the_others(site: Site) -> None:
    _, second, third = in_order(site)
    while True:
        made = writer(site, txnAppId=site.queue, txnVersion="1")
        assert made._spread is not None
        if made._spread.home(made._write, None) == site.id(third):
            break
    tasks = list(written(made, rows(0, 90).set_column(1, "groupId", pa.nulls(90, pa.string()))))
    with halfway(site), pytest.raises(errors.Unreachable):
        made.commit(tasks)
    site.call(second, "stage.discard", write=made._write)
    again = writer(site, txnAppId=site.queue, txnVersion="1")
    again.commit(list(written(again, rows(0, 90))))
    assert len(site.bodies(third)) == len(numbers(site)) == 90


# --- With other brokers ----------------------------------------------------------------------------------------------------


def test_rows_staged_at_a_broker_that_the_url_no_longer_leads_to_are_told(site: Site) -> None:
    """A stream's commit asks the urls again: a name may lead to another broker by then."""
    _, task = in_stream(site, rows(0, 90), 1)
    committing = StreamWriter(site.options("ab"), SENT, False)
    with pytest.raises(errors.InvalidOption, match="nothing was published"):
        committing.commit([task], 1)
    assert numbers(site) == []
    made, task = in_stream(site, rows(0, 90), 1)
    made.commit([task], 1)
    assert numbers(site) == list(range(90))


def test_the_first_broker_alone_does_not_pass_for_a_write_that_others_have_parts_of(site: Site) -> None:
    first, *_ = in_order(site)
    late = writer(site, first, txnAppId=site.queue, txnVersion="1")
    tasks = list(written(late, rows(0, 90)))  # before the other driver publishes
    made = writer(site, txnAppId=site.queue, txnVersion="1")
    with halfway(site), pytest.raises(errors.Unreachable):
        made.commit(list(written(made, rows(0, 90))))
    here = len(site.bodies(first))
    with pytest.raises(errors.InvalidOption, match="put that broker back"):
        late.commit(tasks)
    alone = writer(site, first, txnAppId=site.queue, txnVersion="1")
    with pytest.raises(errors.InvalidOption, match="put that broker back"):
        alone.commit(list(written(alone, rows(0, 90))))
    assert len(numbers(site)) == here
    again = writer(site, txnAppId=site.queue, txnVersion="1")
    again.commit(list(written(again, rows(0, 90))))
    assert numbers(site) == list(range(90))


def test_the_last_broker_alone_knows_that_the_others_have_published(site: Site) -> None:
    *_, last = in_order(site)
    for letters in ("abc", last):
        made = writer(site, letters, txnAppId=site.queue, txnVersion="1")
        made.commit(list(written(made, rows(0, 90))))
    assert numbers(site) == list(range(90))


def test_two_drivers_that_decide_at_two_brokers_are_told_and_the_way_out_leads_out(site: Site) -> None:
    """A driver that has been replaced publishes while its replacement does, with one more broker before the others."""
    first, second, third = in_order(site)
    for old in (second, second + third):  # one broker has no word of others; two have
        app = f"{site.queue}-{old}"
        begin = len(numbers(site))
        late = writer(site, old, txnAppId=app, txnVersion="1")
        before = list(written(late, rows(begin, 90)))
        new = writer(site, txnAppId=app, txnVersion="1")
        tasks = list(written(new, rows(begin, 90)))
        publish = Publishing._publish

        def between(
            made: Publishing,
            *arguments: Any,
            publish: Any = publish,
            late: BatchWriter = late,
            before: list[StageReport] = before,
            new: BatchWriter = new,
        ) -> bool:
            if made._spread is new._spread and arguments[0] == site.id(first):
                late.commit(list(before))
            return bool(publish(made, *arguments))

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Publishing, "_publish", between)
            with pytest.raises(errors.DataLoss, match=f"{site.broker(first).url} may have rows twice"):
                new.commit(list(tasks))
        again = writer(site, txnAppId=app, txnVersion="1")
        with pytest.raises(errors.DataLoss, match="two drivers"):
            again.commit(list(written(again, rows(begin, 90))))
        out = writer(site, second + third, txnAppId=app, txnVersion="1")
        out.commit(list(written(out, rows(begin, 90))))
        site.call(first, "queue.purge", queue=site.queue)
        assert numbers(site) == list(range(begin + 90))


def test_a_driver_that_comes_late_after_the_next_write_is_told_nothing(site: Site) -> None:
    """Parts of its write were published by the repetition, and the brokers know a later one by now."""
    _, second, _ = in_order(site)
    made = writer(site, txnAppId=site.queue, txnVersion="1")
    tasks = list(written(made, rows(0, 90)))
    publish = Publishing._publish

    def overtaken(publishing: Publishing, *arguments: Any) -> bool:
        if publishing._spread is made._spread and arguments[0] == site.id(second):
            for version in "12":
                overtaking = writer(site, txnAppId=site.queue, txnVersion=version)
                overtaking.commit(list(written(overtaking, rows(90 * int(version) - 90, 90))))
        return publish(publishing, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Publishing, "_publish", overtaken)
        made.commit(tasks)
    assert numbers(site) == list(range(180))


# --- Outcomes --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize("kind", ["batch", "stream"])
def test_a_query_that_starts_again_settles_again_what_was_settled_at_some_brokers(
    site: Site, monkeypatch: pytest.MonkeyPatch, kind: str, older: bool
) -> None:
    """Its leases are taken up again by then: an unpublished part of an older version is refused permanently."""
    for letter in "abc":
        site.send(letter, 2)
    end = site.reader().latestOffset(INITIAL, LIMIT)
    monkeypatch.setattr(sink, "spark_batch", lambda: MicroBatch(site.queue, 0))
    schema = StructType([StructField(name, SETTLE[name]) for name in ("delivery", "outcome")])
    once = {"txnAppId": site.queue, "txnVersion": "1"} if kind == "batch" else {}

    def settle(outcome: str) -> StreamReader:
        reader = StreamReader(site.options(), source_schema(("delivery",)))
        site.readers.append(reader)
        read = [batch for part in reader.partitions(INITIAL, end) for batch in reader.read(part)]
        keys = [key for batch in read for key in batch["delivery"].to_pylist()]
        rows = pa.record_batch({"delivery": pa.array(keys, pa.binary()), "outcome": pa.array([outcome] * 6)})
        options = Options({"url": site.urls(), "operation": "settle", **once})
        if kind == "batch":
            made = BatchWriter(options, schema, False)
            tasks = list(written(made, rows))
            commit, abort = partial(made.commit, tasks), partial(made.abort, tasks)
        else:
            stream = StreamWriter(options, schema, False)
            task = stream.write(iter([rows]))
            commit, abort = partial(stream.commit, [task], 0), partial(stream.abort, [task], 0)
        try:
            commit()
        except errors.PenstockError:
            abort()
            raise
        return reader

    with halfway(site), monkeypatch.context() as patch:
        if older:
            patch.setattr(sink.SinkWriter, "_has_key", True)
        with pytest.raises(errors.Unreachable, match="write it again" if older else "settle these messages again"):
            settle("released")
    settle("rejected").latestOffset(end, LIMIT)
    for letter in "abc":
        with Client(site.broker(letter).url) as client:
            batches = client.get(op="browse", queue=site.queue, states=["archived"], columns=["outcome"])
            assert [outcome for batch in batches for outcome in batch["outcome"].to_pylist()] == ["rejected"] * 2
    settle("rejected")  # the batch is settled by now: nothing is changed, and nothing refused
    for letter in "abc":
        for left in site.call(letter, "stage.list")["stages"]:  # it would be discarded after a day
            site.call(letter, "stage.discard", write=left["stage"])


# --- When a part is gone ---------------------------------------------------------------------------------------------------


def repeated(site: Site, kind: str, letters: str = "abc", **options: str) -> None:
    """Write rows 0 to 89 as a batch write or as a micro-batch, the same each time."""
    if kind == "stream":
        stream = StreamWriter(site.options(letters, **options), SENT, False)
        stream.commit([stream.write(iter([rows(0, 90)]))], 1)
    else:
        made = writer(site, letters, txnAppId=site.queue, txnVersion="1", **options)
        made.commit(list(written(made, rows(0, 90))))


@pytest.mark.parametrize("kind", ["batch", "stream"])
def test_a_write_goes_on_without_a_part_that_is_gone_if_it_may(site: Site, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """A stream has no other way on: it cannot write the batch under another name."""
    monkeypatch.setattr(sink, "spark_batch", lambda: MicroBatch(site.queue, 1))
    first, second, third = in_order(site)
    with halfway(site), pytest.raises(errors.Unreachable):
        repeated(site, kind)
    (lost,) = site.call(second, "stage.list")["stages"]
    site.call(second, "stage.discard", write=lost["stage"])
    with pytest.raises(errors.DataLoss, match="failOnDataLoss=false"):
        repeated(site, kind)
    repeated(site, kind, failOnDataLoss="false")
    assert site.bodies(second) == []
    assert len(site.bodies(first)) + len(site.bodies(third)) + lost["messages"] == 90
    stored = numbers(site)
    repeated(site, kind)  # it counts as done, also where it is repeated with the default
    assert numbers(site) == stored
    assert staged(site) == ""


@pytest.mark.parametrize("left", ["two brokers", "one broker"])
def test_a_stream_goes_on_without_a_broker_that_is_gone_for_good_if_it_may(
    site: Site, monkeypatch: pytest.MonkeyPatch, left: str
) -> None:
    monkeypatch.setattr(sink, "spark_batch", lambda: MicroBatch(site.queue, 1))
    first, second, third = in_order(site)
    letters = first + third if left == "two brokers" else first
    with halfway(site), pytest.raises(errors.Unreachable):
        repeated(site, "stream")
    with pytest.raises(errors.InvalidOption, match=r"put that broker back.*failOnDataLoss=false"):
        repeated(site, "stream", letters)
    repeated(site, "stream", letters, failOnDataLoss="false")
    assert staged(site) == (second if left == "two brokers" else "".join(sorted(second + third)))
    repeated(site, "stream")  # put back in time, after all
    assert numbers(site) == list(range(90))


# --- While one is away -----------------------------------------------------------------------------------------------------


@contextmanager
def away(site: Site, letter: str) -> Iterator[list[str]]:
    """A broker is away until a caller waits for it: each wait is noted."""
    wait, waited = Patience.wait, []

    def start_and_wait(patience: Patience, error: BaseException) -> None:
        if not site.broker(letter).running:
            waited.append(letter)
            site.broker(letter).start()
        wait(patience, error)

    site.broker(letter).stop()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Patience, "wait", start_and_wait)
        yield waited


def test_a_task_waits_for_a_broker_that_restarts_before_it_looks_at_a_row(site: Site) -> None:
    for letter in "abc":
        made = writer(site, txnAppId=site.queue, txnVersion=str("abc".index(letter)))
        with away(site, letter) as waited:
            tasks = written(made, rows(90 * "abc".index(letter), 90))
        assert waited == [letter]
        made.commit(list(tasks))
    assert numbers(site) == list(range(270))


def test_a_stream_waits_for_one_before_its_batch_and_before_its_commit(site: Site) -> None:
    with away(site, "b") as waited:
        _, task = in_stream(site, rows(0, 90), 1)
    assert waited == ["b"]
    with away(site, "c") as waited:
        StreamWriter(site.options(), SENT, False).commit([task], 1)
    assert waited == ["c"]
    assert numbers(site) == list(range(90))


def test_a_batch_write_begins_with_all_brokers_or_fails_at_once(site: Site) -> None:
    with away(site, "b"), pytest.raises(errors.Unreachable):  # a caller that waited would find the broker
        writer(site)


# --- Many tasks ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("brokers", [2, 8, 64])
def test_what_is_kept_of_a_write_of_ten_thousand_tasks_is_short(brokers: int) -> None:
    """Homes go in turn, and a hundred tasks were started again."""
    tasks = list(range(5_000_000, 5_010_000))
    tasks[::100] = range(5_010_000, 5_010_100)
    parts = {f"{broker:032}": tasks[broker::brokers] for broker in range(brokers)}
    text = decision.written("w" * 40, parts)
    assert len(text) <= MAX_ELSEWHERE // 2
    assert decision.read(text) == ("w" * 40, parts)
    assert list(decision.read(text).parts) == list(parts)


@pytest.mark.parametrize("everywhere", [False, True])
def test_what_is_kept_of_four_thousand_tasks_in_any_order_has_room(everywhere: bool) -> None:
    """The limit of docs/spark.md; with message groups a task has rows for each of them."""
    tasks = list(range(5_000_000, 5_004_000))
    random.Random(1).shuffle(tasks)
    parts = {f"{broker:032}": tasks if everywhere else tasks[broker::8] for broker in range(8)}
    text = decision.written("w" * 40, parts)
    assert len(text) <= MAX_ELSEWHERE
    assert decision.read(text).parts == parts


def test_a_decision_of_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(decision, "VERSION", 2)
        text = decision.written("w", {"a": [1]})
        assert decision.read(text) == ("w", {"a": [1]})
    with pytest.raises(errors.InvalidRequest, match=r"decision 2, this connector reads 1.*with the newer connector"):
        decision.read(text)


def test_a_write_of_thousands_of_tasks_over_two_brokers_is_published(site: Site) -> None:
    made = writer(site, "ab", txnAppId=site.queue, txnVersion="1")
    tasks = []
    for number in range(2000):
        tasks.append(report := StageReport(made._write, number))
        report.brokers = (site.id("ab"[number % 2]),)
    with Client(site.broker("a").url) as a, Client(site.broker("b").url) as b:
        for number in range(2000):
            batch = pa.record_batch({"body": pa.array([f"0:{number}".encode()], pa.binary())})
            stage = {"op": "stage", "queue": site.queue, "write": made._write, "attempt": number}
            (a, b)[number % 2].put(stage, batch.schema, [batch])
    made.commit(list(tasks))
    assert numbers(site) == list(range(2000))
