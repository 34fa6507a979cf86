"""The spool: a folder of one query, with the batches that Spark has not committed and the keys of messages that came before.

    owner.json          whose it is, the last batch that Spark has committed, and the files of keys of committed batches
    planner.json        the planner that has it now
    batch-N.arrow       messages of batch N, until Spark has committed it
    keys-N.arrow        what they are recognised by when they come again, for as long as the window reaches; an empty one for as
                        long as its batch
    keys-A-B.arrow      the same, of many batches that Spark has committed
    aside/batch-N/…     messages that cannot be decoded, for people; no code here deletes them

A batch is there once its file is; its keys are written before. What a crash leaves besides is deleted by the next planner. A
batch beside which another planner's keys lie gets its own again: both files tell a random id.

Batches and files of keys end with checksums (`checksums`), and `owner.json` contains one. A file of keys that is missing or
damaged is made again while its batch is there. After that the query stops: `owner.json` names the files that it needs.

Each planner writes a token of its own into `planner.json`, and then looks what is there; one that does not find its token any
more has been replaced. A batch counts once its file is there *and* the token was found after that: so of two planners at once,
either the old one sees the new one's token, and neither accepts nor names its batch, or the new one sees the old one's batch.
A batch's files must be new, and a planner that finds a name taken looks for its token again before it writes it over. So one that
was replaced does harm only where it stands still for so long between two of its steps, or an object store between look and write.
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
from .checksums import DamagedFile
from .damage import damaged, unrecognised
from .key_files import KeyFile, Span, missing_of, outermost, spans_of, to_merge
from .partition import SpoolPartition, cut, file_of
from .recognition import keys_in
from .store import PART, Exists, Store
from .window import Window

log = logging.getLogger("penstock")

OWNER, PLANNER = "owner.json", "planner.json"
_BATCH = re.compile(r"batch-(\d+)\.arrow")


class Spool:
    """One planner's view of a spool. `window` is None where nothing is recognised."""

    def __init__(self, url: str, window: Window | None, *, fail_on_data_loss: bool) -> None:
        self.store = Store(url)
        self.window = window
        self._fails = fail_on_data_loss
        self._token = secrets.token_hex(8)
        self._owner: dict[str, Any] = {}
        self._id = ""  # the spool's, once it is entered
        self._rows: dict[int, int] = {}  # of each file, once they are known
        self._manifests: dict[int, str] = {}  # likewise: the hash of its manifest
        self._files: set[int] = set()
        self._kept: list[KeyFile] = []  # those of which a key is in the window, the oldest first
        self._merged: list[str] = []  # names of those whose keys are in another file, too
        self.set_aside = 0  # messages that could not be decoded, of batches that Spark has committed

    # --- Whose it is ---------------------------------------------------------------------------------------------------------

    def enter(self, offset: SpoolOffset) -> None:
        """Take the spool up for the query of this offset; later calls compare. Raises WrongOffset, DataLoss, StorageError."""
        if self._owner:
            if not offset.is_initial and offset.spool != self._owner["spool"]:
                raise WrongOffset(
                    f"the offset names spool {offset.spool}, but this query's is {self._owner['spool']}: the checkpoint was"
                    " changed while the query ran; start the query again"
                )
            return
        self.store.prepare()
        owner = self._owner_of(offset, self.store.names())
        self._id = owner["spool"]
        if self.window is None:
            owner["keys"] = []  # their files are deleted
        if self.store.read(OWNER) != _sealed(owner):
            self._put(OWNER, _sealed(owner))
        self._put(PLANNER, _json({"spool": self._id, "planner": self._token}))
        names = self.store.names()  # after the token: see above
        for name in names:
            if name.endswith(PART):
                self.store.delete(name)
        self._files = {int(found[1]) for name in names if (found := _BATCH.fullmatch(name))}
        spans = spans_of(names)
        # Keys of several batches are in one file only after the owner's file has said that they are committed.
        owner["committed"] = max([owner["committed"], *(span.last for span in spans if span.first < span.last)])
        self._remember(spans, max(int(owner["committed"]), offset.batch), owner["keys"])
        self.set_aside = aside_files.clear_and_count(self.store, self._files)
        self._owner = owner

    def _owner_of(self, offset: SpoolOffset, names: list[str]) -> dict[str, Any]:
        content = self.store.read(OWNER)
        owner = None if content is None else _parsed(content, self.store.url)
        if offset.is_initial:
            if owner is None:
                strange = next((name for name in names if not name.endswith(PART)), None)
                if strange is not None:
                    raise WrongOffset(
                        f"the spool {self.store.url} holds {strange!r}, which is no file of a spool: name an empty folder of the"
                        " query's own"
                    )
                return _owner(secrets.token_hex(16), 0)
            if owner["committed"]:
                raise WrongOffset(
                    f"the spool {self.store.url} belongs to a query that has read already, and this one begins: two queries"
                    " cannot share a spool, so give each its own folder. If its checkpoint is gone for good, empty the folder"
                )
            return owner
        if owner is None:
            self._lost(
                f"the spool {self.store.url} was emptied: batches that were not committed, and what was recognised, are gone"
            )
            return _owner(offset.spool, offset.batch)
        if owner["spool"] != offset.spool:
            raise WrongOffset(
                f"the spool {self.store.url} is {owner['spool']}, but the checkpoint belongs to spool {offset.spool}: point the"
                " option spool at the folder that the query began with, or start with a new checkpoint and an empty folder"
            )
        return owner

    def identity(self) -> str:
        """Return the id of the spool, before any offset is known; a new one takes the folder for its query. Raises as `enter`."""
        if not self._owner:
            self.store.prepare()
            content = self.store.read(OWNER)
            if content is not None:
                return str(_parsed(content, self.store.url)["spool"])
            owner = _sealed(self._owner_of(SpoolOffset("", 0), self.store.names()))
            with suppress(Exists):  # another query's, which began at this moment, too
                self.store.put(OWNER, lambda file: file.write(owner), new=True)
            return str(_parsed(self.store.read(OWNER) or b"", self.store.url)["spool"])
        return self.id

    def check_owner(self) -> None:
        """Raise Fenced if another planner has taken the spool up, DataLoss if it was emptied."""
        content = self.store.read(PLANNER)
        if content is None:
            raise DataLoss(
                f"the spool {self.store.url} was emptied while the query ran: stop the query, and start it again with"
                " failOnDataLoss=false, or with a new checkpoint"
            )
        if content != _json({"spool": self._id, "planner": self._token}):
            if not _is_json(content):
                raise StorageError(f"{PLANNER} of the spool {self.store.url} is damaged: start the query again")
            raise Fenced(
                f"another query, or this one started a second time, has taken up the spool {self.store.url}: give each query a"
                " folder of its own, and run each once"
            )

    def _put(self, name: str, content: bytes) -> None:
        self.store.put(name, lambda file: file.write(content))

    @property
    def id(self) -> str:
        """The spool's id, once it is entered."""
        return self._id

    # --- Batches -------------------------------------------------------------------------------------------------------------

    @property
    def committed(self) -> int:
        """Number of the last batch that Spark has committed, as far as the spool has been told."""
        return int(self._owner["committed"])

    def after(self, batch: int) -> int | None:
        """Return the next batch that is there already; None if there is none. Raises DataLoss for a batch that came after it and
        was committed: the checkpoint is older than the spool."""
        if batch < self.committed:
            self._lost(
                f"batches {batch + 1} to {self.committed} of the spool {self.store.url} were committed: the checkpoint is older"
            )
        return min((number for number in self._files if number > batch), default=None)

    def holds(self, batch: int) -> bool:
        """Say whether the file of a batch is there."""
        return batch in self._files

    def size(self, batch: int) -> tuple[int, int]:
        """Return rows and octets of a batch's file. Raises DataLoss where it is gone."""
        return self._rows_of(batch), self.store.size(file_of(batch))

    def manifests(self, start: int, end: int) -> tuple[tuple[int, str], ...]:
        """Return the hashes of the files of the batches after `start` up to `end`: of those that are there and have checksums.
        Raises DataLoss for a damaged one."""
        found = sorted(batch for batch in self._files if start < batch <= end)
        for batch in found:
            self._rows_of(batch)
        return tuple((batch, self._manifests[batch]) for batch in found if batch in self._manifests)

    def next_number(self, batch: int) -> int:
        """Return the number of a new batch after this one: no other batch has had it."""
        return max(batch, self.committed, *self._files) + 1

    def put(self, batch: int, rows: batches.Rows, keys: tuple[Any, Any] | None, most_rows: int) -> None:
        """Write a batch: when this returns it is durable, and counts. `keys` are those of messages with an id, as arrays."""
        self.check_owner()
        counts = batches.chunks(rows.message, most_rows)
        pair = secrets.token_hex(8)
        if keys is not None:  # also where there are none: the next planner need not look, and a replaced one's are gone
            self._put_new(Span(batch, batch).name, lambda file: batches.write_keys(file, *keys, pair))
        manifest = self._put_new(file_of(batch), lambda file: batches.write(file, rows, counts, pair))
        self.check_owner()
        self._rows[batch], self._manifests[batch] = len(rows.message), manifest
        self._files.add(batch)
        if keys is not None and len(keys[0]) and self.window is not None:
            self.window.add(batch, *keys)
            self._kept.append(KeyFile(Span(batch, batch), len(keys[0])))

    def _put_new(self, name: str, write: Callable[[Any], object]) -> str:
        """Write an Arrow IPC file with its checksums; return the hash of its manifest."""
        manifest = ""

        def checked(file: Any) -> None:
            nonlocal manifest
            manifest = checksums.written(file, self._id, name, write)

        try:
            self.store.put(name, checked, new=True)
        except Exists:
            self.check_owner()  # of an attempt that failed half-way, then, or of one that was replaced before it counted
            self.store.put(name, checked)
        return manifest

    def settle(self, batch: int) -> None:
        """Delete what Spark has committed, and keys beyond the window."""
        done = sorted(number for number in self._files if number <= batch)
        if not done:
            return
        self.check_owner()
        oldest = None if self.window is None else self.window.oldest
        beyond = [file for file in self._kept if file.span.last <= batch and (oldest is None or file.span.last < oldest)]
        needed = [file.span.name for file in self._kept[len(beyond) :] if file.span.last <= batch]
        # First: what is deleted then is known to be committed, and its keys are those of messages that came.
        self._owner = {**self._owner, "committed": batch, "keys": needed}
        try:
            self._put(OWNER, _sealed(self._owner))
        except DiskFull:  # even for this: one of them makes room, and the checkpoint knows that it is committed, too
            self.store.delete(file_of(done[0]))
            self._put(OWNER, _sealed(self._owner))
        kept = {file.span for file in self._kept}
        for number in done:
            if self.window is not None and Span(number, number) not in kept:
                self.store.delete(Span(number, number).name)  # empty, or those of a planner that was replaced
            self.store.delete(file_of(number))
            self._files.discard(number)
            self._rows.pop(number, None)
            self._manifests.pop(number, None)
        self.set_aside += aside_files.count(self.store, done)
        for _ in beyond:
            self.store.delete(self._kept[0].span.name)
            del self._kept[0]
        with suppress(DiskFull):  # the next time, then: what is deleted makes room
            self._merge(batch)

    def _merge(self, batch: int) -> None:
        """Write keys of many committed batches as one file, where there are many files, and delete what it is made of."""
        files = [file for file in self._kept if file.span.last <= batch]
        if self.window is not None and (some := to_merge(files)):
            span = Span(some[0].span.first, some[-1].span.last)
            keys = self.window.of(*span)
            self._put_new(span.name, lambda file: batches.write_merged_keys(file, *keys))
            self.check_owner()  # so another planner has seen this file before what it is made of goes
            self._merged += [file.span.name for file in some]
            place = len(files) - len(some)
            self._kept[place : len(files)] = [KeyFile(span, len(keys[0]))]
        while self._merged:
            self.store.delete(self._merged[-1])
            self._merged.pop()

    def plan(
        self, start: int, end: int, most_rows: int, least: int, manifests: Mapping[int, str] | None = None
    ) -> list[SpoolPartition]:
        """Plan the tasks of the batches after `start` up to `end`. `manifests` are the hashes that the offset has of their files.
        Raises DataLoss for a file that is missing or damaged, as far as it is read here."""
        known = manifests or {}
        rows = {batch: self._rows_of(batch, known.get(batch)) for batch in range(start + 1, end + 1)}
        return cut(self.store.url, rows, most_rows, least, known)

    def _rows_of(self, batch: int, manifest: str | None = None) -> int:
        """Return the rows of a batch. `manifest` is the hash that its manifest must have, if it is not known yet; None: any."""
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
                    found = batches.opened(file, name, spool=self._id, manifest=manifest)
                    self._rows[batch] = sum(batches.counts_of(found.reader))
            except DamagedFile as error:
                self._tell(damaged(self.store.url, name, error))
                return 0
            self._manifests[batch] = found.manifest
        return self._rows[batch]

    def _lost(self, what: str) -> None:
        self._tell(f"{what}. What they held is no longer at the broker. To go on without it, set failOnDataLoss=false")

    def _tell(self, what: str) -> None:
        """Raise DataLoss, or log that the query goes on."""
        if self._fails:
            raise DataLoss(what)
        log.warning("%s. The query goes on, since failOnDataLoss is false", what)

    # --- What came before ----------------------------------------------------------------------------------------------------

    def _remember(self, spans: set[Span], committed: int, needed: Sequence[str]) -> None:
        """Read the keys; delete those of a batch that never came to be: its messages were not accepted, and come again.

        `needed` are the names of the files of keys that must be there. Raises DataLoss for one that is missing or damaged.
        """
        for span in list(spans):
            if self.window is None or (span.last > committed and span.last not in self._files):
                self.store.delete(span.name)
                spans.remove(span)
        if self.window is None:
            return
        for name in missing_of(needed, spans, self._files):
            self._tell(unrecognised(self.store.url, name, "is missing"))
        self.window.clear()  # of an attempt that failed
        self._kept = []
        found, within = outermost({*spans, *(Span(batch, batch) for batch in self._files)})
        through = 0
        for span in found:
            keys = self._keys(span.last) if span.first == span.last else self._keys_without_batch(span)
            count = len(keys.one)
            if keys.batch is None:
                self.window.add(span.last, keys.one, keys.other)
            else:
                new = keys.batch > through  # of two planners at once, each may have made one file of some that the other has, too
                self.window.add(keys.batch[new], keys.one[new], keys.other[new])
            through = span.last
            if count:
                self._kept.append(KeyFile(span, count))
            elif span.last not in self._files:
                self.store.delete(span.name)
        for span in within:  # last: what has their keys, too, may be damaged
            self.store.delete(span.name)

    def _keys(self, batch: int) -> batches.Keys:
        """Return the keys of a batch. If its file exists, they are those of its messages, whatever another planner wrote next to
        it, and are computed again if their file is missing or damaged."""
        span, file_name = Span(batch, batch), file_of(batch)
        file = self.store.open(file_name) if batch in self._files else None
        if file is None:
            return self._keys_without_batch(span)
        with file:
            try:
                # First: keys of a batch of another version may have any form.
                batch_file = batches.opened(file, file_name, spool=self._id)
                keys = self._usable_keys(span)
                if keys is not None and keys.pair == batch_file.pair:
                    return keys
                one, other = keys_in(batch_file.reader)
            except DamagedFile:  # the tasks of the batch report it, if it is still to be read
                return self._keys_without_batch(span)
            self._put_new(span.name, lambda made: batches.write_keys(made, one, other, batch_file.pair))
            return batches.NO_KEYS._replace(one=one, other=other, pair=batch_file.pair)

    def _keys_without_batch(self, span: Span) -> batches.Keys:
        """Read a file of keys that cannot be made again; no keys if it is not there. Raises DataLoss if it is damaged."""
        try:
            return self._keys_at(span) or batches.NO_KEYS
        except DamagedFile as error:
            self._tell(unrecognised(self.store.url, span.name, f"is damaged: {error}"))
            return batches.NO_KEYS

    def _usable_keys(self, span: Span) -> batches.Keys | None:
        """Read a file of keys that can be made again; None if it is missing or damaged."""
        try:
            return self._keys_at(span)
        except DamagedFile as error:
            log.warning("%s of the spool %s is damaged (%s), and is written again", span.name, self.store.url, error)
            return None

    def _keys_at(self, span: Span) -> batches.Keys | None:
        """Read a file of keys; None where it is not there."""
        keys = self.store.open(span.name)
        if keys is None:
            return None
        with keys:
            return batches.read_keys(keys, span.name, spool=self._id, merged=span.first < span.last)


def _owner(spool: str, committed: int) -> dict[str, Any]:
    return {"v": 1, "spool": spool, "committed": committed, "keys": []}


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value).encode()


def _is_json(content: bytes) -> bool:
    try:
        json.loads(content)
    except ValueError:
        return False
    return True


def _sealed(owner: Mapping[str, Any]) -> bytes:
    """Return the content of the owner's file: in JSON, with a CRC-32 of the other fields."""
    return _json({**owner, "crc32": f"{crc32(_json(owner)):08x}"})


def _parsed(content: bytes, url: str) -> dict[str, Any]:
    """Parse the owner's file. Raises StorageError."""
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
