"""`penstock backup`, `penstock restore` and `penstock check`."""

from __future__ import annotations

import argparse
import secrets
import sys
import time
from contextlib import closing, suppress
from pathlib import Path

from .. import errors
from ..copy import checking, pictures, restoring, uploads
from ..copy.chain import Chain
from ..copy.contents import Contents
from ..copy.marker import Marker
from ..copy.pictures import PictureGone
from ..copy.readonly import ReadOnlyDirectory
from ..journal.disk import Buffer
from ..journal.segments import HEADER_BYTES
from ..security.audit import FAILED
from ..stores.objects import StoreError
from ..stores.retry import RetryingStore
from ..stores.urls import open_store
from . import local_audit, show
from .main import STORAGE

PATIENCE_S = 60.0  # of failures, until a command ends


class Progress:
    """Progress in bytes, on a terminal."""

    def __init__(self, action: str) -> None:
        self._action, self._shown_at = action, 0.0
        self.done = self.total = 0

    def add(self, nbytes: int) -> None:
        self.say(self.done + nbytes, self.total)

    def say(self, done: int, total: int) -> None:
        self.done, self.total = done, total
        if sys.stderr.isatty() and time.monotonic() - self._shown_at > 0.2:
            self._shown_at = time.monotonic()
            share = 100 * done // total if total else 100
            print(f"\r{self._action} {share:3d} %, {done >> 20:,} of {total >> 20:,} MiB", end="", file=sys.stderr, flush=True)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown_at:
            print(file=sys.stderr)


def backup(args: argparse.Namespace) -> int:
    store, began = _open(args, args.to, Path(args.data)), time.monotonic()
    with closing(ReadOnlyDirectory(args.data)) as disk, Progress("backup:") as progress:
        try:
            picture, put = _backup(store, disk, progress)
        except errors.PenstockError as error:
            local_audit.add(Path(args.data), "backup", store.url, FAILED, str(error))
            raise
    local_audit.add(Path(args.data), "backup", store.url, bytes=picture.bytes)
    took = time.monotonic() - began
    facts = {"url": store.url, "broker": picture.broker, "position": picture.position, "bytes": picture.bytes, "put": put}
    text = f"backed up {args.data} to {store.url}: {picture.bytes:,} bytes, {put:,} of them new, in {took:.1f} s"
    return show.answer(args, {**facts, "seconds": round(took, 3)}, text)


def _backup(store: RetryingStore, disk: ReadOnlyDirectory, progress: Progress) -> tuple[pictures.Picture, int]:
    chain = Chain(store, pictures.read_id(disk), f"backup-{secrets.token_hex(8)}", "backup")
    state = chain.claim(Marker((chain.writer,)))
    contents = Contents() if state is None else state.contents.copy()
    _forget_others(store, disk, contents)
    while True:
        picture = pictures.take(disk, live=disk.live)
        present = sum(min(contents.size(name), size) for name, size in picture.files.items())
        progress.done, progress.total = 0, picture.bytes
        with suppress(PictureGone):  # the broker has dropped it; the uploaded files stay useful
            uploads.upload(chain, disk, picture, contents, store.repeat, progress.add)
            break
    parts, body = uploads.small_parts(disk, contents)
    chain.put(chain.prepare(parts, list[Buffer](body), position=picture.position, contents=contents))
    for name in chain.garbage(contents):
        store.delete(name)
    return picture, picture.bytes - present


def _forget_others(store: RetryingStore, disk: ReadOnlyDirectory, contents: Contents) -> None:
    """Ignore files of another copy of this directory that has continued separately, with equal names."""
    contents.remove(contents.snapshots())
    for name in contents.segments():
        first = contents.files[name][0]
        header = store.get_range(first.object, first.at, HEADER_BYTES)
        try:
            same = disk.open(name).read(0, HEADER_BYTES) == header
        except FileNotFoundError:
            same = False
        if not same:
            contents.remove([name])


def _open(args: argparse.Namespace, url: str, of: Path | None = None) -> RetryingStore:
    def say_trouble(error: StoreError) -> None:
        if not args.json:  # with --json, stderr has only one error
            print(f"penstock: trying again for {PATIENCE_S:.0f} s: {error}", file=sys.stderr)

    return RetryingStore(open_store(url, of), PATIENCE_S, say_trouble)


def restore(args: argparse.Namespace) -> int:
    store, began = _open(args, args.source), time.monotonic()
    writer = secrets.token_hex(8) if args.take_over else None
    with Progress("restore:") as progress:
        report = restoring.restore(store, Path(args.data), writer=writer, progress=progress.say)
    local_audit.add(Path(args.data), "restore", store.url, bytes=report.bytes, takeOver=report.taken_over)
    took = time.monotonic() - began
    written = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(report.time_ms / 1000))
    text = [
        f"restored {report.bytes:,} bytes from {store.url} to {args.data} in {took:.1f} s",
        f"the {report.kind} was written last at {written} by {report.owner}",
    ]
    if report.kind == "copy":
        text.append(f"later confirmed messages are not in it; {report.lag:,} bytes of the log were not copied at that moment")
    if report.taken_over:
        text.append("that broker cannot continue: the copy belongs to this directory now. To start:")
        text.append(f"penstock serve --data {args.data} --copy-url {store.url}")
    elif report.kind == "copy":
        text.append("the broker that writes the copy continues; --take-over would stop it first")
    facts = {**report._asdict(), "url": store.url, "seconds": round(took, 3)}
    return show.answer(args, facts, "\n".join(text))


def check(args: argparse.Namespace) -> int:
    with closing(ReadOnlyDirectory(args.directory)) as disk, Progress("check:") as progress:
        report = checking.check(disk, live=disk.live, progress=progress.say)
    if args.json:
        show.print_json({**vars(report), "live": disk.live})
        return STORAGE if report.damage else 0
    print("".join(f"damaged: {text}\n" for text in report.damage), end="")
    print("".join(f"remark: {text}\n" for text in report.remarks), end="")
    facts = {
        "broker": report.broker,
        "segments": report.segments,
        "bytes of the log": report.bytes,
        "good up to": report.position,
        "snapshots": report.snapshots,
        "events applied": report.events,
        "queues": report.queues,
        **report.messages,
    }
    if disk.live:
        facts["a broker is running on it"] = "checked up to the position that is known to be on the disk"
    show.print_facts(facts)
    print(f"{len(report.damage)} damaged; begin with the first one named" if report.damage else "no damage found")
    return STORAGE if report.damage else 0
