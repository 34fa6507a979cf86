"""The process that writes tables, `penstock archiver`: requests on stdin, replies on stdout, one after another.

It ends with its parent, when stdin ends. The next process handles files that no commit names, and commits without a reply.
"""

from __future__ import annotations

import logging
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable
from datetime import datetime, timezone
from typing import IO, Any

from ...children import frames
from ...children.frames import ChildFrame
from ...children.processes import step_back
from ...engine.columns.rowset import RowSet
from ...errors import PenstockError
from ...journal.view import JournalView
from ..read.queues import table_folders
from ..write import parquet
from ..write.queue_table import NotOurs, QueueTable, TableRefused, TableUnreachable, application
from ..write.rows import RecordingContent, RecordingRows
from ..write.table_files import TableStore, short, store_of

log = logging.getLogger("penstock.archiver")

STORES = 500  # that stay open between requests; one of an object store takes 100 KB
NICE = 10  # on a shared core, the broker gets nine tenths

Step = Callable[[str], None]


def run() -> int:
    step_back(NICE)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM, signal.SIGINT])  # a broker blocks them
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output of libraries must not be a reply
    requests: queue.SimpleQueue[ChildFrame] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(sys.stdin.buffer, requests), name="requests", daemon=True).start()
    worker = RecorderWorker(requests.get().header)
    while True:
        request = requests.get()
        frames.send(answers, worker.answer(request))


def _read(file: IO[bytes], requests: queue.SimpleQueue[ChildFrame]) -> None:
    while True:
        request = frames.receive(file)
        if request is None:
            os._exit(0)  # the parent has ended
        requests.put(request)


class RecorderWorker:
    """State of the process between two requests. `step` is called before each step that a crash may follow."""

    def __init__(self, hello: dict[str, Any], step: Step = lambda name: None) -> None:
        self._broker_id: str = hello["broker"]
        self._journal = JournalView(hello["data"], self._broker_id)
        self._step = step
        self._stores: dict[str, TableStore] = {}  # by URL of the table

    def _store(self, url: str) -> TableStore:
        if url not in self._stores:
            if len(self._stores) >= STORES:
                del self._stores[next(iter(self._stores))]
            self._stores[url] = store_of(url)
        return self._stores[url]

    def answer(self, request: ChildFrame) -> dict[str, Any]:
        """Return a reply. If it has an `error`, `refused` states whether an operator must act."""
        try:
            return _REQUESTS[request.header["op"]](self, request)
        except TableRefused as error:
            answer = {"error": str(error), "refused": True}
        except (TableUnreachable, PenstockError, OSError) as error:
            answer = {"error": short(error) if isinstance(error, OSError) else str(error), "refused": False}
        except Exception as error:
            log.exception("a request of the broker's failed: %s", request.header["op"])
            answer = {"error": f"{type(error).__name__}: {error}", "refused": False}
        self._stores.pop(request.header["url"], None)  # table and credentials may have changed
        return answer

    def _record(self, request: ChildFrame) -> dict[str, Any]:
        header = request.header
        content = RecordingContent(**{name: header[name] for name in RecordingContent._fields})._replace(
            rows=RowSet.from_json(header["rows"]),
            blocks=dict(zip(header["blocks"], request.attachments, strict=True)),
            packed={int(number): position for number, position in header["packed"].items()},
        )
        store, file_bytes = self._store(header["url"]), header["fileBytes"]
        self._step("open")
        queue_table = QueueTable(store, self._broker_id, content.queue, content.version)
        application_id = application(self._broker_id, content.lineage, content.queue_id)
        version = queue_table.version_with(application_id, content.number, inherited=content.inherited)
        differs = content.inherited and (version is None or not queue_table.has_just(content))
        self._journal.follow((name, base, end) for name, base, end in header["segments"])
        rows = RecordingRows(content, self._journal)
        if version is not None and not content.inherited:
            queue_table.check_has(content, rows.present())
        if version is not None or differs:
            return {"version": version, "rows": 0, "bytes": 0, "gone": 0, "small": 0, "differs": differs}
        self._step("write")
        try:
            files = parquet.write(store, f"pass-{content.queue_id}-{content.number}", rows.tables(), file_bytes)
        except OSError as error:
            raise TableUnreachable(f"no file can be written to {header['url']}: {short(error)}") from error
        self._step("commit")
        version = queue_table.add(application_id, content.number, files)
        self._step("answer")
        return {
            "version": version,
            "rows": sum(file.rows for file in files),
            "bytes": sum(file.bytes for file in files),
            "gone": rows.gone,
            "small": queue_table.small_files(file_bytes),
            "differs": False,
        }

    def _keep(self, request: ChildFrame) -> dict[str, Any]:
        header = request.header
        answer = {"compacted": 0, "ended": 0, "replaced": 0, "expired": 0, "vacuumed": 0}
        try:
            queue_table = QueueTable(self._store(header["url"]), self._broker_id, header["queue"])
        except NotOurs:
            if header["queue"] is None:
                return answer
            raise
        now = datetime.now(timezone.utc)
        if header["retentionS"] is not None:
            answer["expired"] = queue_table.expire(header["retentionS"], now)
        if queue_table.small_files(header["fileBytes"]) >= header["compactFiles"]:
            answer["compacted"] = queue_table.compact(header["fileBytes"])
        answer["ended"] = queue_table.compact_ended_days(now)
        answer["replaced"] = queue_table.replaced
        if header["vacuumS"] is not None:
            answer["vacuumed"] = queue_table.vacuum(header["vacuumS"])
        return answer

    def _tables(self, request: ChildFrame) -> dict[str, Any]:
        return {"names": table_folders(request.header["url"])}


_REQUESTS: dict[str, Callable[[RecorderWorker, ChildFrame], dict[str, Any]]] = {
    "record": RecorderWorker._record,
    "keep": RecorderWorker._keep,
    "tables": RecorderWorker._tables,
}
