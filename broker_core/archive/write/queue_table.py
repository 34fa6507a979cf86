"""Tables: one commit for each recording; compaction, retention, vacuum.

Other programs may commit between our commits, as long as they keep the columns. Their rows are read like ours, but belong to no
queue and no recording.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta, timezone
from urllib.parse import unquote

import deltalake
import numpy as np
import pyarrow as pa
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, CommitProperties, PostCommitHookProperties, RemoveAction, Transaction

from ...engine.columns.rowset import RowSet
from ...engine.model.recordings import NO_TABLE
from ...errors import ArchiveUnreachable, ArchiveUnsupported
from ...logs import counted
from ..read import files as files_of
from ..read import scan
from ..read.files import BROKER, OWNER, QUEUE
from ..table import features
from ..table import layout as table
from . import compaction
from .compaction import TableFile
from .parquet import DataFile
from .rows import RecordingContent
from .table_files import TableStore, short

log = logging.getLogger("penstock.archiver")

PASS = "penstock.pass"  # key of a commit: the number of its recording
HISTORY = 1000  # newest commits that are searched for a recording
RETRIES = 100  # of a commit, if other programs commit meanwhile
#: Properties of Delta that limit its memory of removed files and old versions, with their defaults in hours.
_FORGETS = {"delta.deletedFileRetentionDuration": 7 * 24, "delta.logRetentionDuration": 30 * 24}
CHECKPOINT_COMMITS = 20
#: Otherwise delta-rs would write the checkpoint, and remove old commits, before they are on the disk.
_NOTHING_BESIDE = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)


class TableRefused(Exception):
    """The table was changed in an incompatible way, or is not ours: an operator must act."""


class NotOurs(TableRefused):
    """The table belongs to another broker or program."""


class TableUnreachable(Exception):
    """The folder or store cannot be written now."""


@contextlib.contextmanager
def _reaching(failure: str) -> Iterator[None]:
    try:
        yield
    except (DeltaError, OSError, ValueError) as error:
        raise TableUnreachable(f"{failure}: {short(error)}") from error


def application(broker_id: str, lineage: str, queue_id: int) -> str:
    return f"penstock/{broker_id}/{lineage}/{queue_id}"


class QueueTable:
    """The table of one queue, created if it does not exist. Without a queue name, the table must exist.

    With `durable_version`, later versions that a power cut has torn are set aside: nothing relies on them. Raises TableRefused
    and TableUnreachable.
    """

    def __init__(self, store: TableStore, broker_id: str, queue: str | None, durable_version: int | None = None) -> None:
        self._store, self._broker_id = store, broker_id
        self.url = store.url
        self.replaced = 0  # bytes of files that compaction replaced, until vacuum removes them
        try:
            self._table = self._found(broker_id, queue)
        except TableUnreachable:
            torn = [] if durable_version is None else store.set_aside_torn(durable_version)
            if not torn:
                raise
            log.warning("a power cut has left torn files in the log of the table %s; set aside: %s", self.url, ", ".join(torn))
            self._table = self._found(broker_id, queue)
        self._check(broker_id, queue)

    def _found(self, broker_id: str, queue: str | None) -> deltalake.DeltaTable:
        try:
            return self._open()
        except TableNotFoundError as error:
            if queue is None:
                raise NotOurs(f"there is no table {self.url}") from error
            return self._create(broker_id, queue)
        except (DeltaError, OSError, ValueError) as error:
            if refusal := features.refusal_of(error, self.url):
                raise TableRefused(str(refusal)) from error
            raise TableUnreachable(f"the table {self.url} cannot be opened: {short(error)}") from error

    def _open(self) -> deltalake.DeltaTable:
        return deltalake.DeltaTable(self.url, storage_options=self._store.options)

    def _create(self, broker_id: str, queue: str) -> deltalake.DeltaTable:
        with _reaching(f"the table {self.url} cannot be made"):
            self._store.prepare()
            deltalake.DeltaTable.create(
                self.url,
                table.COMMENTED,
                mode="ignore",
                partition_by=table.PARTITION,
                name=queue,
                description=f"Settled messages of the queue {queue!r} of the Penstock broker {broker_id}",
                configuration={OWNER: broker_id, QUEUE: queue, **table.PROPERTIES},
                raise_if_key_not_exists=False,
                storage_options=self._store.options,
            )
            created = self._open()
            self._store.sync_log(created.version())
        return created

    def _check(self, broker_id: str, queue: str | None) -> None:
        metadata = self._table.metadata()
        owner, its_queue = metadata.configuration.get(OWNER), metadata.configuration.get(QUEUE)
        if owner != broker_id:
            whose = "another program" if owner is None else f"the broker {owner}"
            raise NotOurs(
                f"the table {self.url} belongs to {whose}, not to this one ({broker_id}): give each broker a folder of its own "
                "(setting archive), or move that table away"
            )
        if queue is not None and its_queue != queue:
            raise TableRefused(f"the table {self.url} is that of the queue {its_queue!r}, not of {queue!r}: move it away")
        try:
            features.check_writable(self._table, self.url)
        except ArchiveUnsupported as error:
            raise TableRefused(str(error)) from error
        if list(metadata.partition_columns) != table.PARTITION:
            raise TableRefused(
                f"the table {self.url} is partitioned by {metadata.partition_columns}, not by {table.PARTITION}{_WAY_OUT}"
            )
        existing = {field.name: field for field in self._table.schema().fields}
        for field in deltalake.Schema.from_arrow(table.SCHEMA).fields:
            column = existing.pop(field.name, None)
            if column is None and field.name not in table.ADDED:
                raise TableRefused(f"the table {self.url} has no column {field.name!r} any more{_WAY_OUT}")
            if column is not None and column.type != field.type:
                raise TableRefused(
                    f"the column {field.name!r} of the table {self.url} is {column.type}, not {field.type}{_WAY_OUT}"
                )
        for name, extra in existing.items():
            if not extra.nullable:
                raise TableRefused(
                    f"the table {self.url} has a column {name!r} that must have a value, which this broker has not{_WAY_OUT}"
                )

    def version_with(self, application_id: str, number: int, *, inherited: bool = False) -> int | None:
        """Return the table's version, after a sync, if it has this recording.

        `inherited`: the recording began before this directory was restored, and its original may have recorded more since.
        """
        last_number = self._table.transaction_version(application_id)
        if last_number is not None and last_number > number and not inherited:
            raise TableRefused(
                f"the table {self.url} has recording {last_number} of this queue; the broker is at recording {number}{_PUT_BACK}"
            )
        if last_number is None or last_number < number:
            return None
        version = self._table.version()
        self._store.sync_log(version)  # the process that committed it may have died before the sync
        return version

    def check_has(self, content: RecordingContent, rows: RowSet) -> None:
        """Raise TableRefused unless the table's recording has these rows, or more."""
        missing = rows.minus(self._rows_of(content))
        if missing and all(rows.minus(committed) for committed in self._committed(content)):
            raise TableRefused(
                f"the table {self.url} has recording {content.number} of this queue already, and not with the message of "
                f"sequence number {missing.first}{_PUT_BACK}"
            )

    def has_just(self, content: RecordingContent) -> bool:
        return self._rows_of(content) == content.rows or content.rows in self._committed(content)

    def _committed(self, content: RecordingContent) -> Iterator[RowSet]:
        """Yield the rows of a recording in the versions of its commits. Other writers may have deleted some since."""
        for entry in self._table.history(HISTORY):
            if entry.get(PASS) == str(content.number):
                with contextlib.suppress(ArchiveUnreachable):  # vacuum has removed the files
                    yield self._rows_of(content, entry["version"])

    def _rows_of(self, content: RecordingContent, version: int | None = None) -> RowSet:
        """Return the rows of a recording in a version, by default the newest."""
        recording = files_of.Table(self.url, self._broker_id, content.queue_id, ((content.lineage, content.number),), NO_TABLE)
        bounds = recording.of_recording(content.number)
        parts = [np.array([], np.int64)]
        for file in files_of.version(recording, bounds, version).files:
            share = scan.FileShare(file.path)  # with rows that a deletion vector removes: they were recorded
            batches = scan.batches(scan.opened(self.url, file.path), share, ["sequenceNumber"], bounds)
            parts += [batch.column("sequenceNumber").to_numpy() for batch in batches]
        return RowSet.of_sequences(np.unique(np.concatenate(parts)))

    def add(self, application_id: str, number: int, files: Sequence[DataFile]) -> int:
        """Return the version of the commit."""
        properties = CommitProperties(
            custom_metadata={BROKER: "pass", PASS: str(number)},
            max_commit_retries=RETRIES,
            app_transactions=[Transaction(application_id, number)],
        )
        with _reaching(f"nothing could be committed to the table {self.url}"):
            self._add_columns()
            self._commit(files, [], properties)
        return self._table.version()

    def _after_commit(self, before: int) -> None:
        """Sync the log. Sometimes write a checkpoint, and remove commits that no reader needs."""
        self._table.update_incremental()
        version = self._table.version()
        self._store.sync_log(version)
        if version // CHECKPOINT_COMMITS == before // CHECKPOINT_COMMITS:
            return
        try:
            self._table.create_checkpoint()
            self._store.sync(f"{table.LOG}/{version:020d}.checkpoint.parquet")
            self._store.sync(f"{table.LOG}/_last_checkpoint")
            if self._is_property_on("delta.enableExpiredLogCleanup", default=True):
                self._table.cleanup_metadata()
        except (DeltaError, OSError) as error:  # the commits exist: a later one brings the checkpoint
            log.warning("the log of the table %s got no checkpoint: %s", self.url, short(error))

    def _members(self) -> list[TableFile]:
        actions = pa.table(self._table.get_add_actions(flatten=True))
        days = [str(day) for day in actions[f"partition.{table.DAY}"].to_pylist()]
        paths = [unquote(path) for path in actions["path"].to_pylist()]
        deletions = files_of.deletions_of(self._table)
        has_deletions = [path in deletions for path in paths]
        return sorted(map(TableFile, paths, actions["size_bytes"].to_pylist(), days, has_deletions))

    def small_files(self, file_bytes: int) -> int:
        return sum(map(len, compaction.small(self._members(), file_bytes)))

    def compact(self, file_bytes: int) -> int:
        """Return how many files are gone."""
        return self._merge(compaction.small(self._members(), file_bytes), file_bytes)

    def compact_ended_days(self, now: datetime) -> int:
        """Return how many files are gone. Call it again until none is."""
        groups = compaction.of_ended_days(self._members(), now)
        return self._merge(groups, compaction.ENDED_FILE_BYTES, compaction.MOST_BYTES)

    def _merge(self, groups: Sequence[Sequence[TableFile]], file_bytes: int, most_bytes: float = math.inf) -> int:
        """Merge each group in a commit of its own, until `most_bytes` are replaced."""
        gone, most = 0, self.replaced + most_bytes
        for group in groups:
            if self.replaced >= most:
                break
            try:
                self._add_columns()
                new = compaction.put_together(self._store, group, file_bytes)
                # delta-rs might not notice that another program has rewritten the same files. So the version before the commit
                # must have them, and the commit is not repeated.
                if new is not None and set(group) <= set(self._members()):
                    properties = CommitProperties(custom_metadata={BROKER: "compaction"}, max_commit_retries=0)
                    self._commit(new, group, properties)
                    gone += len(group) - len(new)
                    self.replaced += sum(member.bytes for member in group)
            except (DeltaError, OSError, ValueError, pa.ArrowException) as error:
                log.warning(
                    "%s of the table %s could not be put together: %s", counted(len(group), "file"), self.url, short(error)
                )
        return gone

    def _commit(self, new: Sequence[DataFile], old: Sequence[TableFile], properties: CommitProperties) -> None:
        for file in new:
            if not self._store.exists(file.path):
                raise OSError(
                    f"another program has removed the file {file.path} before it was part of the table: a vacuum must keep files "
                    "that are younger than a day"
                )
        before, now = self._table.version(), int(datetime.now(timezone.utc).timestamp() * 1000)
        actions: list[AddAction | RemoveAction] = [
            AddAction(file.path, file.bytes, {table.DAY: file.day}, file.modified_ms, not old, file.statistics) for file in new
        ]
        actions += [RemoveAction(file.path, False, now, file.bytes, {table.DAY: file.day}) for file in old]
        self._table.create_write_transaction(
            actions,
            mode="append",
            schema=self._table.schema(),
            partition_by=table.PARTITION,
            commit_properties=properties,
            post_commithook_properties=_NOTHING_BESIDE,
        )
        self._after_commit(before)

    def _add_columns(self) -> None:
        """Add the columns that the table lacks, in a commit of its own."""
        existing = {field.name for field in self._table.schema().fields}
        missing = [field for field in deltalake.Schema.from_arrow(table.SCHEMA).fields if field.name not in existing]
        if missing:
            self._table.alter.add_columns(missing, post_commithook_properties=_NOTHING_BESIDE)
            self._table.update_incremental()
            log.info("the table %s has the new columns %s", self.url, ", ".join(field.name for field in missing))

    def expire(self, age_s: float, now: datetime) -> int:
        """Remove days whose messages are all older than `age_s` seconds. Vacuum removes the files."""
        keep_from = (now.astimezone(timezone.utc) - timedelta(seconds=age_s)).date()
        days = pa.table(self._table.get_add_actions(flatten=True))[f"partition.{table.DAY}"].to_pylist()
        old = [day for day in days if day is not None and str(day) < keep_from.isoformat()]
        if not old:
            return 0
        if self._is_property_on("delta.appendOnly", default=False):
            log.warning(
                "the table %s keeps messages that are older than archive_retention_age_s, because it is append-only; to let them "
                "go, `ALTER TABLE … UNSET TBLPROPERTIES ('delta.appendOnly')`, or set archive_retention_age_s to \"off\"",
                self.url,
            )
            return 0
        before = self._table.version()
        with _reaching(f"old days of the table {self.url} could not be removed"):
            self._table.delete(
                table.before(keep_from),
                commit_properties=CommitProperties(custom_metadata={BROKER: "retention"}),
                post_commithook_properties=_NOTHING_BESIDE,
            )
            self._after_commit(before)
        return len(old)

    def vacuum(self, age_s: float) -> int:
        """Remove the files of interrupted attempts, and files that were in no version of the last `age_s` seconds."""
        before = self._table.version()
        with _reaching(f"the table {self.url} could not be cleaned up"):
            self._store.sync_log(before)  # a removed file may be needed again if the commit that removed it is lost
            hours = math.ceil(age_s / 3600)  # rounded up: delta-rs counts in hours, and a read may take `age_s` seconds
            self._remember_for(hours)
            gone = self._table.vacuum(
                retention_hours=hours,
                dry_run=False,
                enforce_retention_duration=False,
                # Not with deletion vectors: delta-rs would remove their files, like those of interrupted attempts.
                full=features.DELETION_VECTORS not in (self._table.protocol().writer_features or ()),
                post_commithook_properties=_NOTHING_BESIDE,
            )
            self._after_commit(before)
        return len(gone)

    def _is_property_on(self, name: str, *, default: bool) -> bool:
        return self._table.metadata().configuration.get(name, str(default)).lower() == "true"

    def _remember_for(self, hours: int) -> None:
        """Let the log remember removed files this long. A forgotten file looks like that of an interrupted attempt."""
        configuration = self._table.metadata().configuration
        forgets = {name: _hours(configuration.get(name)) for name, enough in _FORGETS.items() if hours > enough}
        if wanted := {name: f"interval {hours} hours" for name, after in forgets.items() if after < hours}:
            self._table.alter.set_table_properties(wanted, post_commithook_properties=_NOTHING_BESIDE)
            self._table.update_incremental()


def _hours(interval: str | None) -> float:
    """Read an interval of Delta as delta-rs does: its first number and unit. Return 0 if it is invalid."""
    match (interval or "").split():
        case ["interval", count, unit, *_] if count.isdecimal():
            return int(count) * _HOURS.get(unit.removesuffix("s"), 0.0)
    return 0.0


_HOURS = {"second": 1 / 3600, "minute": 1 / 60, "hour": 1.0, "day": 24.0, "week": 7 * 24.0}
_PUT_BACK = (
    ": the broker's data directory was put back by hand from an older copy. Put it back with `penstock restore`, or move the "
    "table away"
)
_WAY_OUT = (
    ": another program has changed it, so nothing is added; restore it (Delta's RESTORE), or move it away and a new one is made"
)
