"""A quick start for the processes that tests start with `python -m penstock …`: brokers and command lines.

Such a process needs most of a second of CPU time for its imports, and the suite starts many hundreds of them. So one process,
the template, imports the modules once. A test gets a fork of it, with the arguments, environment, folder and files of the call
of `Popen`. The fork is an ordinary child of the test's process: it has a pid, and can be waited for and killed.

A process that cannot be a fork (it has a `preexec_fn`, or runs as another user) is started as usual. With PENSTOCK_TEST_FORK=0
all processes are.
tests/tools/test_process.py and test_starts.py start interpreters, and import each module of the command line before all others.
"""

from __future__ import annotations

import ctypes
import gc
import inspect
import json
import os
import resource
import runpy
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

PREFIX = [sys.executable, "-m", "penstock"]
#: Bytes. A request has the environment in it; a packet of a socket pair holds no more than this by default.
REQUEST_LIMIT = 200_000
PR_SET_CHILD_SUBREAPER = 36  # of linux/prctl.h

#: Prefixes of environment variables that an interpreter reads when it starts.
OF_INTERPRETER = ("PYTHON", "LC_", "LANG")

ByExec = subprocess.Popen
#: Seconds in which a template that has closed its channel is gone.
END_LIMIT_S = 10


class _Template(NamedTuple):
    channel: socket.socket
    process: subprocess.Popen[bytes]
    errors: IO[bytes]  # on stderr

    def ended(self) -> RuntimeError:
        """Wait for the end, and return its error."""
        with self.channel, self.errors:
            code = self.process.wait(END_LIMIT_S)
            self.errors.seek(0)
            text = self.errors.read().decode(errors="replace").strip()
        return RuntimeError(f"the template of tests/forking.py has ended with exit code {code}: {text or 'it said nothing'}")


_lock = threading.Lock()
_templates: dict[tuple[tuple[str, str], ...], _Template] = {}


# --- In the process of the tests --------------------------------------------------------------------------------------


class Popen(ByExec):  # type: ignore[type-arg]
    """`subprocess.Popen`, which forks the template where it can."""

    def _execute_child(self, *arguments: Any) -> None:
        how = inspect.signature(ByExec._execute_child).bind(self, *arguments).arguments  # type: ignore[attr-defined]
        if not _can_be_forked(how):
            super()._execute_child(*arguments)  # type: ignore[misc]
            return
        files = [how["p2cread"], how["c2pwrite"], how["errwrite"]]
        try:
            self.pid = _fork(
                {
                    "arguments": [os.fspath(argument) for argument in how["args"][len(PREFIX) :]],
                    "environment": dict(os.environ if how["env"] is None else how["env"]),
                    "folder": os.fspath(how["cwd"] or os.getcwd()),
                    "session": how["start_new_session"],
                    "open_files": resource.getrlimit(resource.RLIMIT_NOFILE),
                },
                [own if file == -1 else file for own, file in enumerate(files)],
            )
            self._child_created = True
        finally:
            ends = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
            self._close_pipe_fds(*(how[end] for end in ends))  # type: ignore[attr-defined]


def install() -> None:
    """Make `subprocess.Popen` and its users fork the template if possible."""
    if sys.platform == "linux" and os.environ.get("PENSTOCK_TEST_FORK") != "0":
        subprocess.Popen = Popen  # type: ignore[misc]


def _can_be_forked(how: dict[str, Any]) -> bool:
    args, ordinary = how["args"], {"preexec_fn": None, "pass_fds": (), "shell": False, "executable": None}
    return (
        isinstance(args, list)
        and args[: len(PREFIX)] == PREFIX
        and all(how[name] == value for name, value in ordinary.items())
        and all(how.get(name) in (None, -1) for name in ("gid", "gids", "uid", "umask", "process_group"))
    )


def _fork(request: dict[str, Any], files: list[int]) -> int:
    """The pid of a new child of this process: a grandchild of the template, orphaned while this process takes orphans in."""
    with _lock:
        settings, template = template_for(request["environment"])
        _take_orphans(True)
        try:
            socket.send_fds(template.channel, [json.dumps(request).encode()], files)
            answer = template.channel.recv(100)
        except ConnectionError:
            answer = b""
        finally:
            _take_orphans(False)
        if not answer:
            del _templates[settings]  # the next process has a new one
            raise template.ended()
    return int(answer)


def template_for(environment: Mapping[str, str]) -> tuple[tuple[tuple[str, str], ...], _Template]:
    """An interpreter reads its settings when it starts, so a template serves processes with the same settings."""
    settings = tuple(sorted((name, value) for name, value in environment.items() if name.startswith(OF_INTERPRETER)))
    if settings not in _templates:
        errors = tempfile.TemporaryFile()  # noqa: SIM115
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            # It ends with this process: it reads the end of `ours`.
            command = [sys.executable, str(Path(__file__).resolve()), str(its.fileno())]
            process = ByExec(
                command,
                pass_fds=[its.fileno()],
                stdin=subprocess.DEVNULL,
                stderr=errors,
                env=dict(environment),
                start_new_session=True,
            )
        _templates[settings] = _Template(ours, process, errors)
    return settings, _templates[settings]


def _take_orphans(on: bool) -> None:
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, int(on), 0, 0, 0)


# --- In the template --------------------------------------------------------------------------------------------------


def _import_all() -> None:
    """Import the modules of brokers and commands without pandas, as `penstock serve` does."""
    from penstock.broker_core.cli.serve import _WithoutPandas

    finder = _WithoutPandas()
    sys.meta_path.insert(0, finder)

    import penstock.broker_core.client.amqp
    import penstock.broker_core.client.flight
    import penstock.broker_core.server.serve  # noqa: F401

    sys.meta_path.remove(finder)
    gc.collect()
    gc.freeze()  # no collection of a child writes into pages that it shares


def _await_requests(channel: socket.socket) -> dict[str, Any]:
    """Returns in each child, with its request. The template itself ends here, with the process that made it."""
    while True:
        packet, files, _, _ = socket.recv_fds(channel, REQUEST_LIMIT, 3)
        if not packet:
            os._exit(0)
        reader, writer = os.pipe()
        between = os.fork()
        if between == 0:
            child = os.fork()
            if child:
                os.write(writer, str(child).encode())
                os._exit(0)
            for own, file in enumerate(files):
                os.dup2(file, own)
            for descriptor in (*files, reader, writer, channel.detach()):
                os.close(descriptor)
            return dict(json.loads(packet))
        os.waitpid(between, 0)
        channel.send(os.read(reader, 100))
        for descriptor in (*files, reader, writer):
            os.close(descriptor)


def _become(request: dict[str, Any]) -> None:
    """Apply the arguments of `Popen`, as a new interpreter does."""
    if request["session"]:
        os.setsid()
    os.chdir(request["folder"])
    resource.setrlimit(resource.RLIMIT_NOFILE, request["open_files"])
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    sys.argv = [*PREFIX[2:], *request["arguments"]]
    if not getattr(sys.flags, "safe_path", False):  # of Python 3.11
        sys.path[0] = request["folder"]
    unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    sys.stdin = open(0, encoding=sys.stdin.encoding, closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding=sys.stdout.encoding, closefd=False)  # noqa: SIM115
    sys.stdout.reconfigure(line_buffering=os.isatty(1), write_through=unbuffered)
    sys.stderr = open(2, "w", encoding=sys.stderr.encoding, errors="backslashreplace", closefd=False, buffering=1)  # noqa: SIM115


if __name__ == "__main__":
    _import_all()
    _become(_await_requests(socket.socket(fileno=int(sys.argv[1]))))
    runpy.run_module("penstock", run_name="__main__", alter_sys=True)
