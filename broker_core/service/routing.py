"""Routing keys, headers and selectors of a batch, as far as an exchange's bindings need them. They are read without the broker's
lock, and again if the bindings have changed since."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .. import selectors
from ..engine.columns.attributes import Coded
from ..engine.commands import Route, Sent
from ..engine.decide.exchanges import need_exchange
from ..engine.model import routes
from ..engine.model.header_bindings import Term, matching, terms
from ..engine.model.routes import Examined, Numbered, Plan
from ..errors import PenstockError
from ..messages.payloads import Stored, as_batch
from .attributes import attributes_of, coded, column_of

if TYPE_CHECKING:
    from ..engine.columns.series import Ints
    from .broker import BrokerService
    from .turn import Answer, Turn


class Prepared(NamedTuple):
    """Messages, and the command that carries them, or the error that refuses them."""

    sending: ExchangeMessages
    route: Route | PenstockError

    def carry_out(self, turn: Turn) -> Answer:
        return turn.answer(lambda: self._sent(turn))

    def _sent(self, turn: Turn) -> tuple[Sent, int]:
        if isinstance(self.route, PenstockError):
            raise self.route
        sent, end = turn.execute(self.route)
        if sent.stale:  # rare: bindings have changed, so the batch is read under the lock
            sent, end = turn.execute(_with_lock(turn, self.sending))
        return sent, end


TRIES = 3  # then a batch is read under the lock


@dataclass(frozen=True)
class ExchangeMessages:
    """`keys`: one routing key for all messages, or one for each, usually their `subjects`."""

    exchange: str
    payload: Stored
    sizes: int | Ints
    keys: str | Coded
    durable: bool = True
    container: str | None = None
    whole: bool = False
    stage: str | None = None
    transaction: int | None = None


def subjects(batch: pa.RecordBatch) -> str | Coded:
    keys = coded(column_of(batch, "subject"))
    if keys is None:
        return ""
    return keys.names[0] if len(keys.names) == 1 and keys.codes.all() else keys


def _plan(turn: Turn, sending: ExchangeMessages) -> Plan:
    need_exchange(turn.state, sending.exchange)
    return routes.plan(turn.state.exchanges.by_name, turn.state.queues, sending.exchange, sending.keys)


def prepared(sending: ExchangeMessages, reads: Plan, now: int) -> Route:
    """Read the messages as `reads` requires. `now`: milliseconds since 1970."""
    messages = sending.payload.payload
    batch = as_batch(messages) if reads.inside else None
    return Route(
        sending.exchange,
        messages.num_rows,
        sending.sizes,
        sending.payload,
        sending.keys,
        sending.durable,
        {inside.exchange: Examined(inside.version, _examined(inside.bindings, batch)) for inside in reads.inside},
        {about: attributes_of(messages, rules, now) for about, rules in reads.rules.items()},
        sending.container,
        sending.whole,
        sending.stage,
        sending.transaction,
    )


def prepare(service: BrokerService, sending: ExchangeMessages) -> Prepared:
    """Takes the lock for a moment."""
    try:
        with service.turn(hurry=False) as turn:
            reads = _plan(turn, sending)
        return Prepared(sending, prepared(sending, reads, service.wall_ms()))
    except PenstockError as error:
        return Prepared(sending, error)


def send(service: BrokerService, sending: ExchangeMessages) -> tuple[Sent, int]:
    """As `BrokerService.submit_nowait`."""
    for _ in range(TRIES):
        with service.turn() as turn:
            reads = _plan(turn, sending)
        reply, end = service.submit_nowait(prepared(sending, reads, service.wall_ms()))
        if not reply.stale:
            return reply, end
    with service.turn() as turn:
        return turn.execute(_with_lock(turn, sending))


def _with_lock(turn: Turn, sending: ExchangeMessages) -> Route:
    return prepared(sending, _plan(turn, sending), turn.wall_ms)


def _examined(inside: list[Numbered], batch: pa.RecordBatch) -> dict[int, Ints]:
    """Return by a binding's number the rows that it selects."""
    selected_rows: dict[int, Ints] = {}
    texts = {binding.selector for _, binding in inside if binding.selector is not None}
    selected = {text: np.flatnonzero(selectors.matches(selectors.parse(text), batch)) for text in texts}
    with_headers = [(number, binding.arguments) for number, binding in inside if binding.arguments]
    if with_headers:
        wanted = {term for _, arguments in with_headers for term in terms(arguments)}
        selected_rows = matching(with_headers, headers(batch, wanted), batch.num_rows)
    for number, binding in inside:
        if binding.selector is not None:
            mine = selected[binding.selector]
            selected_rows[number] = np.intersect1d(mine, selected_rows.get(number, mine[:0])) if binding.arguments else mine
    return selected_rows


def headers(batch: pa.RecordBatch, wanted: set[Term]) -> dict[Term, Ints]:
    """Return by term the ascending rows of a stored batch that have it. A malformed message has no headers."""
    column = column_of(batch, "properties")
    if column is None or not wanted:
        return {}
    owners, names, texts = _entries(column)
    by_name: dict[str, list[str | None]] = {}
    for name, text in wanted:
        by_name.setdefault(name, []).append(text)
    rows_by_term: dict[Term, Ints] = {}
    for name, values in by_name.items():
        mine = np.flatnonzero(pc.equal(names, name).to_numpy(zero_copy_only=False))
        if not len(mine):
            continue
        encoded = pc.dictionary_encode(texts.take(pa.array(mine)))
        codes = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False)
        known = {text: code for code, text in enumerate(encoded.dictionary.to_pylist())}
        for text in values:
            rows = owners[mine] if text is None else owners[mine[codes == known.get(text, -2)]]
            if len(rows):
                rows_by_term[name, text] = np.unique(rows)
    return rows_by_term


def _entries(column: pa.Array) -> tuple[Ints, pa.Array, pa.Array]:
    """Return the row, key and value of all entries of a column of maps."""
    offsets = column.offsets.to_numpy()
    counts = np.diff(offsets)
    if column.null_count:
        counts = np.where(column.is_valid().to_numpy(zero_copy_only=False), counts, 0)
    owners = np.repeat(np.arange(len(column)), counts)
    starts = np.repeat(offsets[:-1] - np.concatenate([[0], np.cumsum(counts)[:-1]]), counts)
    places = pa.array(np.arange(len(owners)) + starts)
    return owners, column.keys.take(places), column.items.take(places)
