"""Messages for people, as JSON, a few at a time, with long texts cut."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Annotated, Any

import numpy as np
import pyarrow as pa

from .. import errors, moments
from ..selectors import Presence, parse_optional, presence_of
from .browses import Browses
from .declaration import compared_hints, with_hints
from .fields import About
from .requests import BrowseTicket, First, OfQueue, Selector, States

MAX_SHOWN = 200  # messages in one answer
TEXT_BYTES = 4096  # shown of each text, and of a body
MAX_ENTRIES = 100  # shown of properties and annotations
ENTRY_BYTES = 512  # shown of each name and value
MAX_ANSWER_BYTES = 4 << 20  # then an answer has the place to continue
WIDER = 8  # growth of the window of sequence numbers in which recorded messages are sorted
SEARCH_S = 5.0  # then an answer has the matches so far, and the place to continue
COLUMNS = [
    *("sequenceNumber", "enqueuedTime", "state", "outcome", "settledTime", "error", "holder", "deliveryCount", "body"),
    *("messageId", "correlationId", "subject", "to", "replyTo", "contentType", "contentEncoding", "groupId", "userId"),
    *("priority", "durable", "creationTime", "absoluteExpiryTime", "properties", "annotations"),
]

_TIME = "such as -2h, yesterday or 2026-11-25T10:00 (UTC); null: any"

Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Peek(OfQueue):
    """The fields of `queue.messages`."""

    states: States = field(default_factory=lambda: ["available"])
    first: First = 0
    count: Annotated[int, About("how many messages to show, at most 200")] = 50
    selector: Selector = None
    since: Annotated[str | None, About(f"earliest arrival, {_TIME}")] = None
    until: Annotated[str | None, About(f"end of arrival times, excluded, {_TIME}")] = None


def messages(browses: Browses, request: Peek) -> dict[str, Any]:
    """`next` in the reply: the place to continue; None at the end."""
    wanted = request.count
    if not 1 <= wanted <= MAX_SHOWN:
        raise errors.InvalidRequest(f"queue.messages: field 'count' must be 1 to {MAX_SHOWN}, not {wanted}")
    since, until = moments.parse_bounds(request.since, request.until, browses.wall_time())
    look = BrowseTicket(
        op="browse",
        queue=request.queue,
        states=request.states,
        first=request.first,
        since=since,
        until=until,
        selector=request.selector,
        columns=COLUMNS,
    )
    presence = presence_of(parse_optional(request.selector))
    rows: list[Row] = []
    deadline, following, octets = time.monotonic() + SEARCH_S, None, 0
    for some in _in_order(browses, look, wanted + 1, deadline, presence):
        for row in some:
            # A message that was settled, redriven and settled again has two adjacent rows.
            full = len(rows) >= wanted or octets > MAX_ANSWER_BYTES
            if full and row["sequenceNumber"] != rows[-1]["sequenceNumber"]:
                following = row["sequenceNumber"]
                break
            rows.append(row)
            octets += len(json.dumps(row))
        if following is not None:
            break
        if time.monotonic() > deadline:
            if not rows:
                raise errors.ResourceLimit(
                    f"queue.messages: no message matched within {SEARCH_S:g} s. Begin at a higher sequence number (`first`), or "
                    "use `penstock queue peek`, which has no time limit"
                    + "".join(f". Note: {hint}" for hint in compared_hints(presence))
                )
            following = rows[-1]["sequenceNumber"] + 1
            break
    due = browses.due(request.queue, [row["sequenceNumber"] for row in rows if row["state"] == "delayed"])
    for row in rows:
        if row["sequenceNumber"] in due:
            row["due"] = _shown("due", due[row["sequenceNumber"]], [])
    return with_hints({"queue": request.queue, "messages": rows, "next": following}, compared_hints(presence))


def _in_order(
    browses: Browses, look: BrowseTicket, most: int, until: float, presence: Presence | None
) -> Iterator[Iterable[Row]]:
    """Yield messages by sequence number, at least the first `most` numbers; none after `until`. The archive's files overlap,
    and the journal's messages follow them. So recorded messages are read in growing windows of sequence numbers. Only their
    shown form is kept: a message may have many megabytes."""
    if "archived" not in look.states:
        for batch in browses.browse(look, presence):
            yield _rows(batch, range(batch.num_rows))
        return
    first, width, last = look.first, most, browses.last(look.queue)
    while first <= last:
        window = replace(look, first=first, last=min(last, first + width - 1))
        rows: list[Row] = []
        for batch in browses.browse(window, presence):
            rows = _lowest(rows, batch, most)
            if time.monotonic() > until:
                yield ()
                return
        yield rows
        first, width = first + width, width * WIDER


def _lowest(rows: list[Row], batch: pa.RecordBatch, most: int) -> list[Row]:
    """Return in order the rows with the lowest `most` sequence numbers."""
    numbers = batch.column("sequenceNumber").to_numpy()
    different = np.unique(np.append(numbers, [row["sequenceNumber"] for row in rows]))
    bound = different[:most][-1:].max(initial=-1)
    candidates = rows + list(_rows(batch, np.flatnonzero(numbers <= bound).tolist()))
    return sorted((row for row in candidates if row["sequenceNumber"] <= bound), key=lambda row: row["sequenceNumber"])


def _rows(batch: pa.RecordBatch, indices: Iterable[int]) -> Iterator[Row]:
    for index in indices:
        (row,) = batch.slice(index, 1).to_pylist()
        cut: list[str] = []
        yield {**shown(row, cut), "bodyBytes": len(row["body"] or b""), "cut": cut}


def shown(row: Row, cut: list[str]) -> Row:
    """Return values that are not null, as JSON. `cut` receives the names of shortened ones."""
    return {name: _shown(name, value, cut) for name, value in row.items() if value is not None}


def _shown(name: str, value: Any, cut: list[str], most: int = TEXT_BYTES) -> Any:
    if isinstance(value, (bytes, str)) and len(value) > most:
        cut.append(name)
    if isinstance(value, bytes):
        return _octets(value, most)
    if isinstance(value, str):
        return value[:most]
    if isinstance(value, datetime):
        return value.astimezone(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if isinstance(value, list):  # a map
        if len(value) > MAX_ENTRIES:
            cut.append(name)
        return {key[:ENTRY_BYTES]: _shown(name, entry, cut, ENTRY_BYTES) for key, entry in value[:MAX_ENTRIES]}
    return value


def _octets(value: bytes, most: int) -> dict[str, str]:
    if not value:
        return {"text": ""}
    some = value[:most]
    for end in range(len(some), max(0, len(some) - 4), -1):  # a character may be cut
        try:
            text = some[:end].decode()
        except UnicodeDecodeError:
            if len(value) <= most:
                break
            continue
        if all(character.isprintable() or character in "\n\r\t" for character in text):
            return {"text": text}
        break
    return {"base64": base64.b64encode(some).decode()}
