"""The audit log: changes of the broker, with their time, user, door and outcome.

An entry is a line of JSON in a file of the folder `audit` in the data directory. Any client can cause many refusals, and many
changes by the use of queues. Both kinds have files of their own, so that they displace no other changes. Each kind has a part of
the limit in bytes. A file is named after the time of its first entry. The next one begins when it is full, or covers its share of
the limit of age. The oldest files are deleted when their kind reaches its part, or their entries are older than the limit. Older
entries are not read.

If a file cannot be written, the action is still carried out, and the entry is only in the broker's log.
"""

from __future__ import annotations

import heapq
import json
import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from itertools import islice, takewhile
from pathlib import Path
from typing import Any, NamedTuple

from ..logs import one_line
from .log_limit import LogLimit
from .users_file import give_to, open_regular

log = logging.getLogger("penstock.audit")

FOLDER = "audit"
FILES = 8  # of each kind
REFUSED_PART = 4  # refusals have a quarter of the limit
USED_PART = 8  # changes by use have an eighth
LOGIN = "login"
MAX_TEXT = 300  # characters of a name or an error
MAX_DETAILS = 2_000  # characters of an entry's details as JSON
DONE, REFUSED, FAILED = "done", "refused", "failed"
OUTCOMES = (DONE, REFUSED, FAILED)


class AuditLimits(NamedTuple):
    """Limits of the files. `age_s`: None keeps entries of any age."""

    bytes: int
    age_s: float | None


#: For other processes than the broker, which do not know its limits: they begin and delete no files.
UNLIMITED = AuditLimits(1 << 60, None)


class Origin(NamedTuple):
    """The client of an action. `door`: the kind of program."""

    user: str
    peer: str
    door: str


@dataclass(frozen=True, kw_only=True)
class AuditEntry:
    """One action. `details`: the other fields of the request."""

    origin: Origin
    action: str
    object: str
    outcome: str = DONE
    count: int | None = None
    error: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    by_use: bool = False  # a change without a right of an operator, such as a queue's first use

    @property
    def is_limited(self) -> bool:
        """True if any client can cause such entries without changing anything. The broker's log has a line about it already."""
        return self.outcome == REFUSED or (self.outcome == FAILED and self.by_use)

    def to_json(self, time_ms: int) -> dict[str, Any]:
        details = dict(self.details)
        if len(json.dumps(details, default=str)) > MAX_DETAILS:
            details = {"omitted": f"the request has more than {MAX_DETAILS:,} characters"}
        return {
            "time": time_text(time_ms),
            **{name: text[:MAX_TEXT] for name, text in self.origin._asdict().items()},
            "action": self.action,
            "object": self.object[:MAX_TEXT],
            "outcome": self.outcome,
            "count": self.count,
            "error": None if self.error is None else self.error[:MAX_TEXT],
            "details": details,
        }


def refused_login(origin: Origin, error: str) -> AuditEntry:
    """The user of `origin` is the claimed one."""
    return AuditEntry(origin=origin, action=LOGIN, object="", outcome=REFUSED, error=error)


def time_text(time_ms: int) -> str:
    """Return a time as an entry has it. Texts have the order of times."""
    return datetime.fromtimestamp(time_ms / 1000, timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(frozen=True, kw_only=True)
class AuditFilter:
    """Condition of entries; None: any. `object` is also searched in the details, such as the target of a move.

    Times are texts of `time_text`; `until` is excluded.
    """

    user: str | None = None
    action: str | None = None
    object: str | None = None
    outcome: str | None = None
    since: str | None = None
    until: str | None = None

    def may_accept(self, line: bytes) -> bool:
        """Return False if a line lacks a wanted text. This is faster than to parse it."""
        return all(json.dumps(text).encode() in line for text in (self.user, self.object, self.outcome) if text is not None)

    def accepts(self, entry: Mapping[str, Any]) -> bool:
        action, time, details = str(entry.get("action")), str(entry.get("time")), entry.get("details")
        named = None if action.startswith("user.") else entry.get("object")  # a user may have the name of a queue
        objects = [named, *(details.values() if isinstance(details, dict) else ())]
        return (
            self.user in (None, entry.get("user"))
            and self.outcome in (None, entry.get("outcome"))
            and (self.object is None or self.object in objects)
            and (self.action is None or self.action in (action, action.rpartition(".")[2]))
            and (self.since is None or time >= self.since)
            and (self.until is None or time < self.until)
        )


class AuditLog:
    """The log of one broker, for any thread.

    `limits` is called for each entry, so a reload changes it. `wall_ms`: milliseconds since 1970. `report` receives the text of a
    failure to write, and None when writing succeeds again.
    """

    def __init__(
        self, data: Path, limits: Callable[[], AuditLimits], wall_ms: Callable[[], int], report: Callable[[str | None], None]
    ) -> None:
        self._folder, self._limits, self._wall_ms, self._report = data / FOLDER, limits, wall_ms, report
        self._lock = threading.Lock()
        self._changes, self._refusals, self._uses = (_AuditFiles(self._folder, name) for name in ("", "refused-", "used-"))
        self._failed = False
        self._login_limit, self._refusal_limit = LogLimit(fair=True), LogLimit(fair=True)  # strangers do not displace users

    def add(self, entry: AuditEntry) -> None:
        """Write an entry, and a line of the broker's log. Refusals are limited, because any client can cause them."""
        if entry.is_limited:
            limit = self._login_limit if entry.action == LOGIN else self._refusal_limit
            omitted = limit.omitted_before(entry.origin.peer)
            if omitted is None:
                return
            if omitted:
                entry = replace(entry, details={**entry.details, "refusalsOmittedBefore": omitted})
        else:
            log.info(_line(entry), extra={"user": entry.origin.user, "peer": entry.origin.peer})
        with self._lock:
            time_ms, limits = self._wall_ms(), self._limits()
            files, most = self._files_of(entry, limits.bytes)
            data = json.dumps(entry.to_json(time_ms), default=str).encode() + b"\n"
            try:
                files.write(data, limits._replace(bytes=most), time_ms)
            except OSError as error:
                files.close()
                self._failed = True
                self._report(f"the audit log in {self._folder} cannot be written: {error.strerror or error}")
                return
            if self._failed:
                self._failed = False
                self._report(None)

    def _files_of(self, entry: AuditEntry, most: int) -> tuple[_AuditFiles, int]:
        """Return the files, and their part of the limit."""
        if entry.is_limited:
            return self._refusals, most // REFUSED_PART
        if entry.by_use:
            return self._uses, most // USED_PART
        return self._changes, most - most // REFUSED_PART - most // USED_PART

    def entries(self, wanted: AuditFilter, count: int) -> list[dict[str, Any]]:
        """Return the newest entries, the newest first. Raises OSError."""
        age_s = self._limits().age_s
        oldest = "" if age_s is None else time_text(int(self._wall_ms() - age_s * 1000))
        since = max(oldest, wanted.since or "")
        kinds = [files.backwards(wanted) for files in (self._changes, self._refusals, self._uses)]
        newest = heapq.merge(*kinds, key=_time_of, reverse=True)
        recent = takewhile(lambda entry: _time_of(entry) >= since, newest)
        return list(islice(filter(wanted.accepts, recent), count))

    def close(self) -> None:
        with self._lock:
            for files in (self._changes, self._refusals, self._uses):
                files.close()


class _AuditFiles:
    """The files of one kind, with names that begin with `prefix`. Any thread may read."""

    def __init__(self, folder: Path, prefix: str) -> None:
        self._folder, self._prefix = folder, prefix
        self._file = -1
        self._size = self._began_ms = 0  # of the file

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def write(self, line: bytes, limits: AuditLimits, time_ms: int) -> None:
        """Raises OSError."""
        is_full = self._size + len(line) > limits.bytes // FILES
        if self._file >= 0 and (is_full or _is_over(self._began_ms, limits, time_ms)):
            self.close()
        if self._file < 0:
            self._open(limits, time_ms)
        written = os.write(self._file, line)
        self._size += written
        if written < len(line):
            raise OSError(None, "the disk is full")

    def _open(self, limits: AuditLimits, time_ms: int) -> None:
        """Continue the last file, or begin one, and delete the oldest files."""
        folder, is_new = self._open_folder()
        try:
            owner = self._folder.parent.stat()
            if is_new:
                give_to(owner, folder)
            files = self._files()
            last = files[-1] if files else None
            if last is None or last.stat().st_size >= limits.bytes // FILES or _is_over(self._begin_ms(last), limits, time_ms):
                last = self._folder / f"{self._prefix}{time_ms:014d}.jsonl"
            self._file = open_regular(last.name, os.O_RDWR | os.O_APPEND, owner, folder)
        finally:
            os.close(folder)
        self._began_ms, self._size = self._begin_ms(last), os.fstat(self._file).st_size
        if self._size and os.pread(self._file, 1, self._size - 1) != b"\n":  # a crash has cut the last line
            self._size += os.write(self._file, b"\n")
        earlier = [file for file in files if file.name != last.name]
        ends_ms = [self._begin_ms(following) for following in [*earlier[1:], last]] if earlier else []
        for index, (file, end_ms) in enumerate(zip(earlier, ends_ms, strict=True)):
            is_old = limits.age_s is not None and end_ms < time_ms - limits.age_s * 1000
            if is_old or len(earlier) - index >= FILES:
                file.unlink(missing_ok=True)

    # Root may write here, for `penstock user`: links of the folder's owner are not followed.
    def _open_folder(self) -> tuple[int, bool]:
        try:
            self._folder.mkdir(mode=0o700)
            is_new = True
        except FileExistsError:
            is_new = False
        return os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC), is_new

    def _files(self) -> list[Path]:
        return sorted(self._folder.glob(f"{self._prefix}[0-9]*.jsonl"))

    def _begin_ms(self, file: Path) -> int:
        time = file.stem.removeprefix(self._prefix)
        return int(time) if time.isdecimal() else 0

    def backwards(self, wanted: AuditFilter) -> Iterator[dict[str, Any]]:
        for path in reversed(self._files()):
            try:
                lines = path.read_bytes().splitlines()
            except FileNotFoundError:  # it was deleted just now
                return
            for line in filter(wanted.may_accept, reversed(lines)):
                try:
                    entry = json.loads(line)
                except ValueError:  # a crash has cut it
                    continue
                if isinstance(entry, dict):
                    yield entry


def _time_of(entry: Mapping[str, Any]) -> str:
    return str(entry.get("time", ""))


def _is_over(began_ms: int, limits: AuditLimits, time_ms: int) -> bool:
    """Return True if a file covers its share of the limit of age, so that it is deleted soon after its entries are too old."""
    return limits.age_s is not None and time_ms - began_ms > limits.age_s * 1000 / (FILES - 1)


def _line(entry: AuditEntry) -> str:
    count = "" if entry.count is None else f", {entry.count:,}"
    error = "" if entry.error is None else f": {one_line(entry.error, MAX_TEXT)}"
    name = one_line(entry.object, MAX_TEXT)
    user, peer, door = (one_line(text, MAX_TEXT) for text in entry.origin)
    return f"{user or 'a client'} at {peer or 'this machine'} ({door}): {entry.action} {name}{count}: {entry.outcome}{error}"
