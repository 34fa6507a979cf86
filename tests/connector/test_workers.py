"""Spark's Python workers, where a task of ours has run in one."""

from __future__ import annotations

import subprocess
import sys

import pytest

#: A process with the main module of a worker, or another one, that has read a partition; then it makes garbage of its own.
READ = """
import gc, sys, weakref
from importlib.machinery import ModuleSpec
from penstock.connector.task.declared import DeclaredRows
sys.modules["__main__"].__spec__ = ModuleSpec(sys.argv[1], None)
for _ in range(2):
    list(DeclaredRows((), ()).rows([]))
    print(gc.get_freeze_count() > 1000, end=" ")
class Ring: pass
ring = Ring()
ring.itself, seen = ring, weakref.ref(ring)
del ring
gc.collect()
print(seen() is None)
"""


@pytest.mark.parametrize(("main", "frozen"), [("pyspark.daemon", True), ("program", False)])
def test_a_worker_looks_for_garbage_only_in_what_comes_after_its_first_task(main: str, frozen: bool) -> None:
    """Spark lets it look after each task. A process of the user's own stays as it is."""
    worker = subprocess.run([sys.executable, "-c", READ, main], capture_output=True, text=True, timeout=60)
    assert worker.stdout.split() == [str(frozen), str(frozen), "True"], worker.stderr
