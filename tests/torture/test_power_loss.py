"""D1 Q1 S7: a power loss at any system call of a working broker: no confirmed message is lost, none is duplicated.

A real broker and its clients run under strace. Each crash state is derived from the trace up to one call. Any part of the
unsynced bytes is lost, torn in sectors, or present. The broker must open this state, and it must agree with the record.

PENSTOCK_TORTURE_SEED and PENSTOCK_TORTURE_S (seconds) run more rounds: see `./dev torture`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest

from ..programs import needs
from .laws import Said, check
from .trace import STRACE, Disk, read_trace

SEED = int(os.environ.get("PENSTOCK_TORTURE_SEED", "20261122"))
SECONDS = float(os.environ.get("PENSTOCK_TORTURE_S", "0"))
LOAD_S = 1.5  # for one trace: some 40 MB
STATES = 25  # for one trace; with SECONDS, as many as they allow


def traced(folder: Path, seed: int) -> Path:
    """Run the workload under strace; returns the trace."""
    script = Path(__file__).parent / "workload.py"
    command = [*STRACE, "-o", str(folder / "trace"), sys.executable, str(script), str(folder / "data"), str(folder / "witness")]
    done = subprocess.run([*command, str(LOAD_S), str(seed)], capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr.decode(errors="replace")[-4000:]
    return folder / "trace"


def crash(folder: Path, seed: int, states: int, deadline: float | None) -> int:
    """Try `states` crashes of one trace, or as many as the time allows; return the number."""
    random = Random(seed)
    trace = traced(folder, seed)
    calls = list(read_trace(trace, folder / "data", folder / "witness"))
    trace.unlink()
    began = next(number for number, call in enumerate(calls) if (call.kind, call.name) == ("witness", "begin"))
    points = sorted(random.sample(range(began, len(calls)), min(states, len(calls) - began)))
    disk, claims, done, looked = Disk(), Said(), 0, 0
    for number, call in enumerate(calls):
        if points and number == points[0]:
            points.pop(0)
            left = folder / "left"
            disk.power_cut(random, left)
            try:
                looked += sum(check(left, claims).values())
            except BaseException:
                print(f"seed {seed}: the power goes before call {number} of {len(calls)}, {call.kind} {call.name}; see {left}")
                raise
            shutil.rmtree(left)
            done += 1
            if deadline is not None and time.monotonic() > deadline:
                break
        if call.kind == "witness":
            claims.note(call.name)
        else:
            disk.follow(call)
    print(f"seed {seed}: {done} crashes within {len(calls)} calls, {looked} messages compared with the record")
    assert looked > 0
    return done


@pytest.mark.timeout(86_400)
def test_the_power_goes_at_any_system_call(tmp_path: Path) -> None:
    needs("strace", "strace")
    if not SECONDS:
        crash(tmp_path, SEED, STATES, None)
        return
    deadline, seed = time.monotonic() + SECONDS, SEED
    while time.monotonic() < deadline:
        folder = tmp_path / str(seed)
        folder.mkdir()
        crash(folder, seed, 400, deadline)
        shutil.rmtree(folder)
        seed += 1
