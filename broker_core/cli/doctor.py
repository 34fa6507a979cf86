"""`penstock doctor`."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple

from .. import DISTRIBUTION, __version__, errors
from ..journal.locks import holder
from ..security import users_file
from ..security.tls import ends_at
from ..server import open_files, ports
from ..settings import keys
from ..settings.keys import Settings
from . import calls, show
from .main import REFUSED

OK, WARNING, WRONG = "ok", "warning", "wrong"
#: Before the expiry of a certificate, as for the alarm `certificate-ends`.
CERTIFICATE_DAYS = 14
WORKER_S = 60.0
_PACKAGES = ("pyarrow", "numpy", "pyspark", "deltalake")


class Finding(NamedTuple):
    """Result of one check."""

    level: str
    what: str  # a key of the JSON output
    text: str


def run(args: argparse.Namespace) -> int:
    findings = [*_versions(), *_worker()]
    settings = None
    if args.config is not None or args.data is not None:
        try:
            settings = keys.load(args.config, {"data": args.data})
        except errors.PenstockError as error:
            findings.append(Finding(WRONG, "settings", str(error)))
        else:
            for look in (_directory, _disk, _users, _certificate, _files):
                try:
                    findings += list(look(settings))
                except (errors.PenstockError, OSError, ValueError) as error:
                    findings.append(Finding(WRONG, look.__name__.strip("_"), str(error)))
    if args.url is not None:
        findings += _broker(args)
    elif settings is not None:
        findings += _ports(settings)
    rows = [finding._asdict() for finding in findings]
    show.listed(args, rows, {"level": "", "what": "checked", "text": "result"}, empty="nothing")
    return REFUSED if any(finding.level == WRONG for finding in findings) else 0


def _versions() -> Iterator[Finding]:
    yield Finding(OK, "versions", f"penstock {__version__}, Python {sys.version.split()[0]}")
    for package in _PACKAGES:
        try:
            yield Finding(OK, "versions", f"{package} {version(package)}")
        except PackageNotFoundError:
            yield Finding(OK, "versions", f"{package} is not installed here")


def _worker() -> Iterator[Finding]:
    """Check the Python of Spark's workers, if the environment names one."""
    worker = os.environ.get("PYSPARK_PYTHON")
    if worker is None:
        return
    program = "import sys, penstock.broker_core as b, pyarrow; print(*sys.version_info[:2], b.__version__, pyarrow.__version__)"
    try:
        done = subprocess.run([worker, "-c", program], capture_output=True, text=True, timeout=WORKER_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        yield Finding(WRONG, "PYSPARK_PYTHON", f"{worker} cannot be run: {error}")
        return
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no output"])[-1]
        text = f"{worker} cannot import the packages of a task: {reason}; install {DISTRIBUTION} there"
        yield Finding(WRONG, "PYSPARK_PYTHON", text)
        return
    *python, penstock, arrow = done.stdout.split()
    if [*map(int, python)] != [*sys.version_info[:2]]:
        text = f"{worker} is Python {'.'.join(python)}, this is {sys.version.split()[0]}: Spark refuses to mix them"
        yield Finding(WRONG, "PYSPARK_PYTHON", text)
    elif penstock != __version__:
        yield Finding(WRONG, "PYSPARK_PYTHON", f"{worker} has penstock {penstock}, this is {__version__}")
    else:
        yield Finding(OK, "PYSPARK_PYTHON", f"{worker} has penstock {penstock} and pyarrow {arrow}")


def _directory(settings: Settings) -> Iterator[Finding]:
    data = settings.data
    if not data.exists():
        yield Finding(OK, "data", f"{data} does not exist yet: the first start creates it")
    elif not data.is_dir():
        yield Finding(WRONG, "data", f"{data} is not a directory")
    elif not os.access(data, os.R_OK | os.W_OK | os.X_OK):
        yield Finding(WRONG, "data", f"{data} cannot be read and written by this user")
    else:
        by = holder(data)
        yield Finding(OK, "data", f"{data} is in use by {by}" if by else f"{data} is free: no broker uses it")


def _disk(settings: Settings) -> Iterator[Finding]:
    place = next(path for path in (settings.data, *settings.data.parents) if path.exists())
    free = shutil.disk_usage(place).free
    text = f"{free >> 20:,} MiB free on the disk of {place}"
    if free < settings.free_space_mark_bytes:
        yield Finding(WRONG, "disk", f"{text}, less than free_space_mark_bytes: messages are refused")
    elif free < settings.free_space_low_bytes:
        yield Finding(WARNING, "disk", f"{text}, less than free_space_low_bytes")
    else:
        yield Finding(OK, "disk", text)


def _users(settings: Settings) -> Iterator[Finding]:
    users = users_file.read(settings.users_file)
    count = 0 if users is None else len(users.users)
    if count:
        yield Finding(OK, "users", f"{show.counted(count, 'user')} in {settings.users_file}")
    else:
        yield Finding(WARNING, "users", "no users: every client that reaches a port may do everything (penstock user add)")


def _certificate(settings: Settings) -> Iterator[Finding]:
    if settings.tls_cert_file is None:
        yield Finding(OK, "TLS", "no certificate: connections are not encrypted")
        return
    end = ends_at(settings.tls_cert_file)
    days = (end - time.time()) / 86400
    level, verb = (WRONG, "ended") if days < 0 else (WARNING if days < CERTIFICATE_DAYS else OK, "ends")
    when = time.strftime("%Y-%m-%d", time.gmtime(end))
    yield Finding(level, "TLS", f"the certificate {settings.tls_cert_file} {verb} on {when}")


def _files(settings: Settings) -> Iterator[Finding]:
    room = open_files.make_room(settings)
    text = f"room for {room.amqp:,} AMQP, {room.flight:,} Flight and {room.http:,} HTTP connections"
    yield Finding(OK if room.warning is None else WARNING, "open files", room.warning or text)


def _ports(settings: Settings) -> Iterator[Finding]:
    for setting, host, port in ports.wanted(settings):
        if port == 0:
            continue
        try:
            ports.listen(host, port)
        except OSError as error:
            by = ports.holder(port)
            reason = f"is in use by {by}" if by else f"cannot be used: {error.strerror or error}"
            yield Finding(WARNING, setting, f"port {port} of {host} {reason}")
        else:
            yield Finding(OK, setting, f"port {port} of {host} is free")


def _broker(args: argparse.Namespace) -> Iterator[Finding]:
    try:
        began = time.monotonic()
        with calls.broker(args) as broker:
            answer = broker.call("broker.status")
    except errors.PenstockError as error:
        yield Finding(WRONG, "broker", str(error))
        return
    took_ms = (time.monotonic() - began) * 1000
    yield Finding(OK, "broker", f"answered at {args.url} after {took_ms:.0f} ms, up for {answer['uptimeSeconds']:,} s")
    if answer["version"] != __version__:
        yield Finding(WARNING, "broker", f"it is penstock {answer['version']}, this is {__version__}")
    for alarm in answer["alarms"]:
        of = "" if alarm["queue"] is None else f"queue {alarm['queue']}: "
        yield Finding(WARNING, f"alarm {alarm['name']}", f"{of}{alarm['text']}")
