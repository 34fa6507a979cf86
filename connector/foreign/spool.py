"""The spool: a folder of one query, with the batches that Spark has not committed and the keys of messages that came before.

- `owner.json`: the spool's id, the last batch that Spark has committed, the names of required files of keys, and a CRC-32
- `planner.json`: the planner that uses the spool now
- `batch-N.arrow`: messages of batch N, until Spark has committed it
- `keys-N.arrow`, `keys-A-B.arrow`: keys of messages in the window, by which messages that come again are recognised
- `aside/batch-N/…`: messages that cannot be decoded, for people; no code here deletes them

A batch exists once its file exists. Its keys are written before. The next planner deletes other files that a crash leaves. If the
keys next to a batch are another planner's, and so have another random id, they are computed again. After the batch is deleted, a
missing or damaged file of keys stops the query.

Each planner writes its own token into `planner.json`, and lists the folder after that. A planner that no longer finds its token
has been replaced. A batch counts once its file exists *and* the planner has found its token after that. So of two planners,
either the old one sees the new token and gives its batch up, or the new one sees the old one's batch. A planner that finds a name
taken looks for its token again before it replaces the file. So a replaced planner does harm only if it, or an object store,
pauses between two steps.
"""

from __future__ import annotations

import json
import logging
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any
from zlib import crc32

from ...broker_core.errors import DataLoss, DiskFull, Fenced, StorageError, WrongOffset
from ..offset import SpoolOffset
from . import aside_files, batches, checksums
from .checksums import DamagedFile, damaged, unrecognised
from .key_files import KeyFile, Span, missing_of, outermost, spans_of, to_merge
from .partition import SpoolPartition, cut, file_of
from .recognition import keys_in
from .spool_files import PART, Exists, SpoolFiles
from .window import Window

log = logging.getLogger("penstock")

OWNER, PLANNER = "owner.json", "planner.json"
_BATCH = re.compile(r"batch-(\d+)\.arrow")


class Spool:
    """Without a `window`, messages are not recognised."""

    def __init__(self, url: str, window: Window | None, *, fail_on_data_loss: bool) -> None:
        self.store = SpoolFiles(url)
        self.window = window
        self._fail_on_data_loss = fail_on_data_loss
        self._token = secrets.token_hex(8)
        self._owner: dict[str, Any] = {}
        self.id = ""
        self._rows: dict[int, int] = {}
        self._manifests: dict[int, str] = {}
        self.files: set[int] = set()  # batches that exist
        self._key_files: list[KeyFile] = []  # with keys in the window, the oldest first
        self._merged: list[str] = []  # key files whose keys are also in another file
        self.set_aside = 0  # undecodable messages of committed batches

    # --- Owner -------------------------------------------------------------------------------------------------------------

    def enter(self, offset: SpoolOffset) -> None:
        """Take up the spool for this offset's query; later calls compare. Raises WrongOffset, DataLoss, StorageError."""
        if self._owner:
            if not offset.is_initial and offset.spool != self._owner["spool"]:
                raise WrongOffset(
                    f"the offset names spool {offset.spool}, but this query's is {self._owner['spool']}: the checkpoint was"
                    " changed while the query ran; start the query again"
                )
            return
        self.store.prepare()
        owner = self._owner_of(offset, self.store.names())
        self.id = owner["spool"]
        if self.window is None:
            owner["keys"] = []
        if self.store.read(OWNER) != _sealed(owner):
            self._put(OWNER, _sealed(owner))
        self._put(PLANNER, _json({"spool": self.id, "planner": self._token}))
        names = self.store.names()  # only after the token
        for name in names:
            if name.endswith(PART):
                self.store.delete(name)
        self.files = {int(match[1]) for name in names if (match := _BATCH.fullmatch(name))}
        spans = spans_of(names)
        # Keys are merged only after the owner's file contained their batches as committed.
        owner["committed"] = max([owner["committed"], *(span.last for span in spans if span.first < span.last)])
        self._remember(spans, max(int(owner["committed"]), offset.batch), owner["keys"])
        self.set_aside = aside_files.clear_and_count(self.store, self.files)
        self._owner = owner

    def _owner_of(self, offset: SpoolOffset, names: list[str]) -> dict[str, Any]:
        content = self.store.read(OWNER)
        owner = None if content is None else _parsed(content, self.store.url)
        if offset.is_initial:
            if owner is None:
                strange = next((name for name in names if not name.endswith(PART)), None)
                if strange is not None:
                    raise WrongOffset(
                        f"the spool {self.store.url} contains {strange!r}, which does not belong to a spool: name an empty folder"
                        " of the query's own"
                    )
                return _owner(secrets.token_hex(16), 0)
            if owner["committed"]:
                raise WrongOffset(
                    f"the spool {self.store.url} belongs to a query that has read already, and this one begins: two queries"
                    " cannot share a spool, so give each its own folder. If its checkpoint is lost, empty the folder"
                )
            return owner
        if owner is None:
            self._lost(f"the spool {self.store.url} was emptied: uncommitted batches, and the keys of earlier messages, are gone")
            return _owner(offset.spool, offset.batch)
        if owner["spool"] != offset.spool:
            raise WrongOffset(
                f"the spool {self.store.url} is {owner['spool']}, but the checkpoint belongs to spool {offset.spool}: point the"
                " option spool at the folder that the query began with, or start with a new checkpoint and an empty folder"
            )
        return owner

    def identity(self) -> str:
        """Return the id without an offset. An empty folder becomes a new spool. Raises as `enter`."""
        if self._owner:
            return self.id
        self.store.prepare()
        content = self.store.read(OWNER)
        if content is None:
            owner = _sealed(self._owner_of(SpoolOffset("", 0), self.store.names()))
            with suppress(Exists):
                self.store.put(OWNER, lambda file: file.write(owner), new=True)
            content = self.store.read(OWNER)
        return str(_parsed(content or b"", self.store.url)["spool"])

    def check_owner(self) -> None:
        """Raise Fenced if another planner has taken the spool up, DataLoss if it was emptied."""
        content = self.store.read(PLANNER)
        if content is None:
            raise DataLoss(
                f"the spool {self.store.url} was emptied while the query ran: stop the query, and start it again with"
                " failOnDataLoss=false, or with a new checkpoint"
            )
        if content != _json({"spool": self.id, "planner": self._token}):
            try:
                json.loads(content)
            except ValueError:
                raise StorageError(f"{PLANNER} of the spool {self.store.url} is damaged: start the query again") from None
            raise Fenced(
                f"another query is using the spool {self.store.url}, or this query was started twice: give each query a folder of"
                " its own, and run each once"
            )

    def _put(self, name: str, content: bytes) -> None:
        self.store.put(name, lambda file: file.write(content))

    # --- Batches -------------------------------------------------------------------------------------------------------------

    @property
    def committed(self) -> int:
        """The last batch that Spark has committed, according to the spool."""
        return int(self._owner["committed"])

    def after(self, batch: int) -> int | None:
        """Return the next existing batch. Raises DataLoss for an older checkpoint."""
        if batch < self.committed:
            self._lost(
                f"batches {batch + 1} to {self.committed} of the spool {self.store.url} were committed: the checkpoint is older"
            )
        return min((number for number in self.files if number > batch), default=None)

    def size(self, batch: int) -> tuple[int, int]:
        return self._rows_of(batch), self.store.size(file_of(batch))

    def manifests(self, start: int, end: int) -> tuple[tuple[int, str], ...]:
        """Return the hashes of existing files. Raises DataLoss for a damaged one."""
        numbers = sorted(batch for batch in self.files if start < batch <= end)
        for batch in numbers:
            self._rows_of(batch)
        return tuple((batch, self._manifests[batch]) for batch in numbers if batch in self._manifests)

    def next_number(self, batch: int) -> int:
        return max(batch, self.committed, *self.files) + 1

    def put(self, batch: int, rows: batches.Rows, keys: tuple[Any, Any] | None, most_rows: int) -> None:
        """Write a batch, which is durable and counts when this returns. `keys`: of the messages with an id."""
        self.check_owner()
        counts = batches.chunks(rows.message, most_rows)
        pair = secrets.token_hex(8)
        if keys is not None:  # also empty ones: they may replace another planner's, and save the next planner a computation
            self._put_new(Span(batch, batch).name, lambda file: batches.write_keys(file, *keys, pair))
        manifest = self._put_new(file_of(batch), lambda file: batches.write(file, rows, counts, pair))
        self.check_owner()
        self._rows[batch], self._manifests[batch] = len(rows.message), manifest
        self.files.add(batch)
        if keys is not None and len(keys[0]) and self.window is not None:
            self.window.add(batch, *keys)
            self._key_files.append(KeyFile(Span(batch, batch), len(keys[0])))

    def _put_new(self, name: str, write: Callable[[Any], object]) -> str:
        """Write an IPC file with checksums; return its manifest's hash."""
        manifest = ""

        def checked(file: Any) -> None:
            nonlocal manifest
            manifest = checksums.written(file, self.id, name, write)

        try:
            self.store.put(name, checked, new=True)
        except Exists:
            self.check_owner()  # the file is of a failed attempt, or of a planner that was replaced before its batch counted
            self.store.put(name, checked)
        return manifest

    def settle(self, batch: int) -> None:
        done = sorted(number for number in self.files if number <= batch)
        if not done:
            return
        self.check_owner()
        oldest = None if self.window is None else self.window.oldest
        beyond = [file for file in self._key_files if file.span.last <= batch and (oldest is None or file.span.last < oldest)]
        needed = [file.span.name for file in self._key_files[len(beyond) :] if file.span.last <= batch]
        # Before the deletion, so that deleted batches are known as committed, and their keys as valid.
        self._owner = {**self._owner, "committed": batch, "keys": needed}
        try:
            self._put(OWNER, _sealed(self._owner))
        except DiskFull:  # a batch makes room, and the checkpoint also shows that it is committed
            self.store.delete(file_of(done[0]))
            self._put(OWNER, _sealed(self._owner))
        used = {file.span for file in self._key_files}
        for number in done:
            if self.window is not None and Span(number, number) not in used:
                self.store.delete(Span(number, number).name)
            self.store.delete(file_of(number))
            self.files.discard(number)
            self._rows.pop(number, None)
            self._manifests.pop(number, None)
        self.set_aside += aside_files.count(self.store, done)
        for _ in beyond:
            self.store.delete(self._key_files[0].span.name)
            del self._key_files[0]
        with suppress(DiskFull):
            self._merge(batch)

    def _merge(self, batch: int) -> None:
        files = [file for file in self._key_files if file.span.last <= batch]
        if self.window is not None and (some := to_merge(files)):
            span = Span(some[0].span.first, some[-1].span.last)
            keys = self.window.of(*span)
            self._put_new(span.name, lambda file: batches.write_merged_keys(file, *keys))
            self.check_owner()  # so another planner sees this file before the replaced files are deleted
            self._merged += [file.span.name for file in some]
            place = len(files) - len(some)
            self._key_files[place : len(files)] = [KeyFile(span, len(keys[0]))]
        while self._merged:
            self.store.delete(self._merged[-1])
            self._merged.pop()

    def plan(
        self, start: int, end: int, most_rows: int, least: int, manifests: Mapping[int, str] | None = None
    ) -> list[SpoolPartition]:
        """`manifests`: the hashes in the offset. Raises DataLoss for a missing file, or a damaged one that is read here."""
        known = manifests or {}
        rows = {batch: self._rows_of(batch, known.get(batch)) for batch in range(start + 1, end + 1)}
        return cut(self.store.url, rows, most_rows, least, known)

    def _rows_of(self, batch: int, manifest: str | None = None) -> int:
        """`manifest`: the expected hash; None: any."""
        if batch not in self._rows:
            name = file_of(batch)
            file = self.store.open(name)
            if file is None:
                self._lost(
                    f"batch {batch} is not in the spool {self.store.url}: the folder was emptied, or the checkpoint is older"
                )
                return 0
            try:
                with file:
                    opened = batches.opened(file, name, spool=self.id, manifest=manifest)
                    self._rows[batch] = sum(batches.counts_of(opened.reader))
            except DamagedFile as error:
                self._report_loss(damaged(self.store.url, name, error))
                return 0
            self._manifests[batch] = opened.manifest
        return self._rows[batch]

    def _lost(self, cause: str) -> None:
        self._report_loss(f"{cause}. The broker no longer has those messages. To continue without them, set failOnDataLoss=false")

    def _report_loss(self, text: str) -> None:
        if self._fail_on_data_loss:
            raise DataLoss(text)
        log.warning("%s. The query continues, since failOnDataLoss is false", text)

    # --- Earlier messages -----------------------------------------------------------------------------------------------------

    def _remember(self, spans: set[Span], committed: int, needed: Sequence[str]) -> None:
        """Read the keys. Delete keys of batches that were never written: their messages come again.

        Raises DataLoss for a `needed` file that is missing or damaged.
        """
        for span in list(spans):
            if self.window is None or (span.last > committed and span.last not in self.files):
                self.store.delete(span.name)
                spans.remove(span)
        if self.window is None:
            return
        for name in missing_of(needed, spans, self.files):
            self._report_loss(unrecognised(self.store.url, name, "is missing"))
        self.window.clear()  # after a failed attempt
        self._key_files = []
        outer, within = outermost({*spans, *(Span(batch, batch) for batch in self.files)})
        through = 0
        for span in outer:
            keys = self._keys(span.last) if span.first == span.last else self._stored_keys(span) or batches.NO_KEYS
            count = len(keys.left)
            if keys.batch is None:
                self.window.add(span.last, keys.left, keys.right)
            else:
                new = keys.batch > through  # two planners at the same time may have merged some of the same files
                self.window.add(keys.batch[new], keys.left[new], keys.right[new])
            through = span.last
            if count:
                self._key_files.append(KeyFile(span, count))
            elif span.last not in self.files:
                self.store.delete(span.name)
        for span in within:  # last, because the file that also has their keys may be damaged
            self.store.delete(span.name)

    def _keys(self, batch: int) -> batches.Keys:
        """Keys of an existing batch are computed again if their file is missing, damaged or another planner's."""
        span, file_name = Span(batch, batch), file_of(batch)
        file = self.store.open(file_name) if batch in self.files else None
        if file is None:
            return self._stored_keys(span) or batches.NO_KEYS
        with file:
            try:
                # First: keys of a batch of another version may have any form.
                batch_file = batches.opened(file, file_name, spool=self.id)
                keys = self._stored_keys(span, is_needed=False)
                if keys is not None and keys.pair == batch_file.pair:
                    return keys
                left, right = keys_in(batch_file.reader)
            except DamagedFile:  # the tasks of the batch report it, if they still read it
                return self._stored_keys(span) or batches.NO_KEYS
            self._put_new(span.name, lambda made: batches.write_keys(made, left, right, batch_file.pair))
            return batches.Keys(left, right, None, batch_file.pair)

    def _stored_keys(self, span: Span, *, is_needed: bool = True) -> batches.Keys | None:
        """Return None for a missing or damaged file. Damage is a loss if the keys are needed."""
        file = self.store.open(span.name)
        if file is None:
            return None
        try:
            with file:
                return batches.read_keys(file, span.name, spool=self.id, merged=span.first < span.last)
        except DamagedFile as error:
            if is_needed:
                self._report_loss(unrecognised(self.store.url, span.name, f"is damaged: {error}"))
            else:
                log.warning("%s of the spool %s is damaged (%s), and is written again", span.name, self.store.url, error)
            return None


def _owner(spool: str, committed: int) -> dict[str, Any]:
    return {"v": 1, "spool": spool, "committed": committed, "keys": []}


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value).encode()


def _sealed(owner: Mapping[str, Any]) -> bytes:
    return _json({**owner, "crc32": f"{crc32(_json(owner)):08x}"})


def _parsed(content: bytes, url: str) -> dict[str, Any]:
    try:
        owner = json.loads(content)
        if owner["v"] == 1 and isinstance(owner["spool"], str) and isinstance(owner["committed"], int):
            unsealed = {name: value for name, value in owner.items() if name != "crc32"}
            if set(unsealed) == {"v", "spool", "committed", "keys"} and content == _sealed(unsealed):
                return unsealed
    except (ValueError, KeyError, TypeError):
        pass
    raise StorageError(
        f"{OWNER} of the spool {url} is damaged, or not from Penstock: put back an intact copy; without one, name an empty folder"
        " and start with a new checkpoint"
    )
