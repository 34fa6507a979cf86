"""`penstock serve`: runs a broker until SIGTERM or Ctrl-C."""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from importlib.abc import MetaPathFinder
from typing import Any

from .. import errors, logs
from ..server import ports, supervisor
from ..settings import keys
from ..settings.keys import Settings
from .main import INTERRUPTED, UsageError, report

_STOPPING = (signal.SIGTERM, signal.SIGINT)
#: Further signals in this time count as the first one: `timeout` signals the process and then its group.
SAME_SIGNAL_S = 1.0

log = logging.getLogger("penstock")


def run(args: argparse.Namespace) -> int:
    # Signals are blocked before a second thread exists, and one thread waits for them. A handler would run in the main thread,
    # which may hold the lock of `stop.set()`.
    signal.pthread_sigmask(signal.SIG_BLOCK, (*_STOPPING, signal.SIGHUP))
    logs.begin()
    try:
        settings = _settings(args)
        logging.getLogger().setLevel(settings.log_level.upper())
        logs.use_format(settings.log_format)
        return _serve(settings, args.stop_with_stdin, lambda: _settings(args))
    except errors.PenstockError as error:
        if args.stop_with_stdin:  # a parent process reads stdout
            print(json.dumps({"ready": False, "error": json.loads(error.to_json())}), flush=True)
        return report(error, as_json=False, local=True)


def _settings(args: argparse.Namespace) -> Settings:
    try:
        return keys.load(args.config, {name: getattr(args, name) for name in keys.KEYS})
    except errors.InvalidRequest as error:
        raise UsageError(str(error)) from error


def _serve(settings: Settings, stop_with_stdin: bool, read: Callable[[], Settings]) -> int:
    if os.path.exists(settings.data) and not os.path.isdir(settings.data):  # methods of Path may raise
        raise UsageError(f"--data cannot be {settings.data}: it is not a directory")
    try:
        ports.try_all(settings)
    except ports.PortUnusable as error:
        raise UsageError(str(error)) from error
    stop, ready, reloading = threading.Event(), threading.Event(), Reloading(read)
    threading.Thread(target=_obey_signals, args=(stop, ready, reloading.ask), name="signals", daemon=True).start()
    if stop_with_stdin:
        threading.Thread(target=_stop_with_stdin, args=(stop,), name="stdin", daemon=True).start()

    sys.meta_path.insert(0, _WithoutPandas())
    from ..server.serve import serve

    code = serve(settings, partial(_ready, ready), stop, reloading.begin)
    # Everything is on the disk. A client's unfinished call would block the interpreter's end.
    logging.shutdown()
    sys.stdout.flush()
    os._exit(code)


class _WithoutPandas(MetaPathFinder):
    """Hides pandas, which pyarrow imports with its first array, in half of the start time and 30 MB."""

    def find_spec(self, name: str, path: object, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("the broker does not use pandas", name=name)


def _ready(ready: threading.Event, addresses: dict[str, Any]) -> None:
    answer = {"ready": True, **{plane: addresses.get(plane) for plane in ("amqp", "flight", "http")}}
    if len(addresses["listeners"]) > 1:
        answer["listeners"] = addresses["listeners"]
    others = [url for url in (addresses["flight"], addresses["http"]) if url is not None]
    at = ", ".join([*addresses["listeners"], *others])
    log.info("ready at %s", at)  # before the answer, whose reader may stop the broker
    print(json.dumps(answer), flush=True)
    ready.set()
    supervisor.notify(supervisor.READY, supervisor.status(f"ready at {at}"))


class Reloading:
    """Reloads the settings on request, not before the broker has started."""

    def __init__(self, read: Callable[[], Settings]) -> None:
        self._read = read
        self._lock = threading.Lock()
        self._reload: Callable[[Settings], None] | None = None
        self._asked = False

    def begin(self, reload: Callable[[Settings], None]) -> None:
        with self._lock:
            self._reload = reload
            if self._asked:
                self._do(reload)

    def ask(self) -> None:
        """Raises nothing: the calling thread also handles the stop."""
        with self._lock:
            self._asked = True
            if self._reload is not None:
                self._do(self._reload)

    def _do(self, reload: Callable[[Settings], None]) -> None:
        try:
            reload(self._read())
        except errors.PenstockError as error:
            log.error("the settings were not reloaded, and the previous ones stay in force: %s", error)
        except Exception:
            log.exception("the settings were not reloaded, and the previous ones stay in force")


def _obey_signals(stop: threading.Event, ready: threading.Event, reload: Callable[[], None]) -> None:
    while (number := signal.sigwait((*_STOPPING, signal.SIGHUP))) == signal.SIGHUP:
        if not ready.is_set():  # a notification would report the broker as ready
            reload()
            continue
        supervisor.notify(*supervisor.reloading())
        reload()
        supervisor.notify(supervisor.READY)
    supervisor.notify(supervisor.STOPPING)
    log.info("%s: stops", signal.Signals(number).name)
    stop.set()
    begun = time.monotonic()
    while time.monotonic() - begun < SAME_SIGNAL_S:
        number = signal.sigwait(_STOPPING)  # a second signal ends the process like a crash, which is safe
    log.warning("%s again: ends immediately, as in a crash", signal.Signals(number).name)
    os._exit(INTERRUPTED)


def _stop_with_stdin(stop: threading.Event) -> None:
    while os.read(0, 65536):
        pass
    log.info("stdin is closed: stops")
    stop.set()
