"""Programs of the system that tests run. Without the program a test is skipped, and on the build machine it fails."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from contextlib import suppress

import pytest

STOP_LIMIT_S = 20  # after SIGKILL


def needs(program: str, package: str) -> str:
    """Return the program's path. `package` is the package of Debian that contains it."""
    path = shutil.which(program)
    if path is None:
        assert not os.environ.get("CI"), f"{program} is missing: Debian's package {package} has it"
        pytest.skip(f"{program} is not installed: Debian's package {package} has it")
    return path


class Group:
    """A program with its child processes: a process group of its own. It ends with the tests, even if they are killed."""

    def __init__(self, command: list[str], **options: object) -> None:
        self.process: subprocess.Popen[bytes] = subprocess.Popen(  # type: ignore[call-overload]
            command, stdin=subprocess.DEVNULL, start_new_session=True, **options
        )
        # The shell reads until the pipe closes, which happens when this process ends.
        watch = ["/bin/sh", "-c", 'read line; kill -KILL "-$0"', str(self.process.pid)]
        self._watch = subprocess.Popen(watch, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True)

    def kill(self) -> None:
        self._watch.kill()
        self._watch.wait()
        assert self._watch.stdin is not None
        self._watch.stdin.close()
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(STOP_LIMIT_S)
