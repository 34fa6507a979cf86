"""The Python interpreter of Spark's workers, which must have this package.

Without an activated environment, Spark runs `python3` of PATH. Each task then fails with a traceback that does not name the
interpreter. A check takes 0.1 s, and no job of Spark.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache
from typing import Any

from ..broker_core import DISTRIBUTION
from ..broker_core.errors import WrongInterpreter

LIMIT_S = 20.0  # for the interpreter's start
_PROGRAM = """
import sys
from importlib.util import find_spec
missing = []
try:
    import penstock.connector
except ImportError:
    missing.append(sys.argv[1])
if find_spec("pyarrow") is None:
    missing.append("pyarrow")
print("%d.%d" % sys.version_info[:2], *missing)
"""


def check_workers(context: Any, *, is_shipped: bool = False) -> None:
    """Raise WrongInterpreter if the workers cannot run the connector. `is_shipped`: by `--py-files`, for example."""
    sentence = _fault_in(context, is_shipped)
    if sentence is not None:
        raise WrongInterpreter(sentence)


def active_fault() -> str | None:
    """Return the fault of the workers of this process's SparkContext; None also without a SparkContext."""
    pyspark = sys.modules.get("pyspark")
    context = None if pyspark is None else pyspark.SparkContext._active_spark_context
    return None if context is None else _fault_in(context, False)


def _fault_in(context: Any, is_shipped: bool) -> str | None:
    paths = filter(None, (context.environment.get("PYTHONPATH"), os.environ.get("PYTHONPATH")))
    sent = [name for name in context._python_includes if not name.endswith(".jar")]  # Spark also sends the jars of its packages
    return fault_of(context.pythonExec, os.pathsep.join(paths), is_shipped or bool(sent))


@cache
def fault_of(command: str, python_path: str, is_shipped: bool) -> str | None:
    """Return why this interpreter cannot run the connector, and the remedy.

    None also for a command that is not on this machine, such as a path in an archive that a cluster unpacks.
    """
    path = shutil.which(command)
    if path is None:
        return None
    name = path if command == path else f"{command} ({path})"
    try:
        environment = {**os.environ, "PYTHONPATH": python_path}
        call = [path, "-c", _PROGRAM, DISTRIBUTION]
        looked = subprocess.run(call, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=True)
        version, *missing = looked.stdout.split()
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        return f"Spark's workers run {name}, which is not a working Python: {error}. {_remedy(path)}"
    if is_shipped and DISTRIBUTION in missing:
        missing.remove(DISTRIBUTION)
    if missing:
        return f"Spark's workers run {name}, which lacks {' and '.join(missing)}. {_remedy(path)}"
    own = "{}.{}".format(*sys.version_info[:2])
    if version != own:
        return f"Spark's workers run {name}, which is Python {version}, and this program is Python {own}. {_remedy(path)}"
    return None


def _remedy(path: str) -> str:
    if os.path.dirname(path) == os.path.dirname(sys.executable):
        return f"This program has a search path of its own: install {DISTRIBUTION} there, or set PYTHONPATH before Spark starts"
    return f"Set PYSPARK_PYTHON={sys.executable} before Spark starts, or activate the environment of this program"
