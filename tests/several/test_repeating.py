"""A write over several brokers that has failed: what Spark's abort leaves, and what the repetition does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest

from penstock.broker_core import errors
from penstock.connector.brokers import publishing
from penstock.connector.brokers.publishing import Publishing
from penstock.connector.sink import Staged, StreamWriter

from .helpers import SENT, Site
from .test_writing import numbers, rows, writer, written


def in_order(site: Site) -> tuple[str, str, str]:
    """Return the letters of the brokers in the order in which they publish."""
    first, second, third = sorted("abc", key=site.id)
    return first, second, third


def staged(site: Site, letters: str = "abc") -> str:
    """Return the letters of the brokers that have stages."""
    return "".join(letter for letter in letters if site.call(letter, "stage.list")["stages"])


def in_stream(site: Site, batch: pa.RecordBatch, number: int, letters: str = "abc") -> tuple[StreamWriter, Staged]:
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

    def publish_and_stop(made: Publishing, broker: str, *given: Any) -> bool:
        repeated = publish(made, broker, *given)
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
    """Only that broker knows whether it has published its part."""
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
