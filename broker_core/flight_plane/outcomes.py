"""One `do_put` of `operation=settle`: outcomes of messages of a lease's batches."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .. import errors
from ..actions.permissions import Check, stage_of
from ..actions.requests import SettlePut
from ..engine.columns.limits import MAX_OUTCOMES
from ..engine.columns.rowset import RowSet
from ..engine.commands import StageOutcomes
from ..engine.model.batch_outcomes import DISPOSITIONS, RowsOutcome, cut, shortened
from ..messages import delivery_key, text_checks
from ..service.broker import BrokerService
from .arrow_ipc import ArrowBatchReader, too_large
from .receiver import final

COLUMNS = {"delivery": pa.binary(), "outcome": pa.string(), "error": pa.string()}


class OutcomeReceiver:
    """Each batch is staged and durable before its acknowledgement. A row without an outcome is ignored."""

    def __init__(self, service: BrokerService, request: SettlePut, acknowledge: Callable[[bytes], None], check: Check) -> None:
        self._service, self._request, self._tell, self._check = service, request, acknowledge, check

    def receive(self, reader: ArrowBatchReader) -> None:
        batches = messages = 0

        def acknowledge() -> None:
            self._tell(json.dumps({"batches": batches, "messages": messages}).encode())

        reader.waiting = acknowledge  # again: a sender gives up after a silence
        while (batch := reader.next()) is not None:
            with final(batches > 0):
                self._check()
            self._take(batch)
            batches, messages = batches + 1, messages + batch.num_rows
            del batch  # its memory is free while the next batch comes
            acknowledge()

    def _take(self, data: pa.RecordBatch) -> None:
        limit, nbytes = self._service.settings.max_batch_bytes, data.get_total_buffer_size()
        if nbytes > limit:
            raise too_large(limit, nbytes)
        _check_columns(data)
        has_outcome = data.column("outcome").is_valid().to_numpy(zero_copy_only=False)
        # One after another: the engine refuses an unknown batch, and remembers few.
        for deliveries in delivery_key.parse(data.column("delivery"), has_outcome):
            if deliveries.lease != self._request.lease:
                raise errors.InvalidRequest(
                    f"settle: the message of row {int(deliveries.rows[0])} is held by lease {deliveries.lease!r:.300}, not "
                    f"{self._request.lease!r:.300}: send the outcomes of each lease separately"
                )
            settled = outcomes(data, deliveries)
            self._service.submit(
                StageOutcomes(stage_of(self._request), deliveries.lease, deliveries.batch, deliveries.epoch, settled)
            )


def _check_columns(data: pa.RecordBatch) -> None:
    names = data.schema.names
    for field in data.schema:
        if COLUMNS.get(field.name) != field.type:
            known = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
            raise errors.InvalidRequest(f"settle: column {field.name!r:.80} of type {field.type}; there are {known}")
    if len(set(names)) < len(names) or not {"delivery", "outcome"} <= set(names):
        raise errors.InvalidRequest("settle: the columns 'delivery' and 'outcome' must be there, each once")
    text_checks.validate(data)


def outcomes(data: pa.RecordBatch, deliveries: delivery_key.Deliveries) -> list[RowsOutcome]:
    """Of several rows about a message the last one counts."""
    if int(deliveries.sequences.min()) < 0:
        raise errors.InvalidRequest(f"column 'delivery' contains no key from a stream in row {int(deliveries.rows[0])}")
    unique, last = np.unique(deliveries.sequences[::-1], return_index=True)
    rows = pa.array(deliveries.rows[::-1][last])
    texts = data.column("error") if "error" in data.schema.names else pa.nulls(data.num_rows, pa.string())
    names, texts = data.column("outcome").take(rows), texts.take(rows)
    row_outcomes = []
    for name in pc.unique(names).to_pylist():
        if name not in DISPOSITIONS:
            raise errors.InvalidRequest(f"column 'outcome': {name!r:.80} is not one of {', '.join(DISPOSITIONS)}")
        mine = np.flatnonzero(pc.equal(names, name).to_numpy(zero_copy_only=False))
        if name != "rejected":  # only rejections keep their error
            row_outcomes.append(RowsOutcome(name, None, RowSet.of_sequences(unique[mine])))
            continue
        coded = texts.take(pa.array(mine)).dictionary_encode("encode")
        codes = coded.indices.to_numpy(zero_copy_only=False)
        order = np.argsort(codes, kind="stable")  # once, however many texts
        begins = np.searchsorted(codes[order], np.arange(1, len(coded.dictionary)))
        for text, some in zip(coded.dictionary.to_pylist(), np.split(mine[order], begins), strict=True):
            row_outcomes.append(RowsOutcome(name, shortened(text), RowSet.of_sequences(unique[some])))
    return cut(row_outcomes, MAX_OUTCOMES)
