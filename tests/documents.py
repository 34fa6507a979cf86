"""Documents as programs: the Python blocks of a page as they are, and its commands as processes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

BLOCK = re.compile(r"^```(bash|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)
#: Commands of the reader's terminals that run elsewhere or never end.
_SKIPPED = ("pip ", "source ", "penstock serve", "pyspark ", "./dev")
#: The broker's address in the documents.
_ADDRESS = "amqp://127.0.0.1:5672"

#: The begin of a program, after which `spark` must be a Spark session.
PRELUDE = """
import os, runpy, subprocess, sys

def shell(command):
    subprocess.run(["bash", "-euc", command], check=True)

def job(module, *arguments):
    sys.argv = [module, *arguments]
    try:
        runpy.run_module(module, run_name="__main__")
    except SystemExit as end:
        assert not end.code, end.code
"""
BEGIN = "--- a document begins ---"


def as_program(document: Path, url: str, folder: Path) -> str:
    """Translate a document, from top to bottom, to a Python program that runs in `folder` with the broker at `url`.

    A command `python -m penstock.jobs.NAME` runs in the program's own Spark, because a JVM costs half a minute of CPU time.
    """
    parts = [f"print({BEGIN!r}, flush=True)\nos.chdir({str(folder)!r})\nos.environ['PENSTOCK_URL'] = {url!r}\n"]
    for language, text in BLOCK.findall(document.read_text()):
        # Spark's JVM keeps the folder in which it was started.
        text = text.replace(_ADDRESS, url).replace("data-out", f"{folder}/data-out")
        if language == "python":
            parts.append(text)
            continue
        for line in text.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if not words or line.startswith(_SKIPPED):
                continue
            if words[:2] == ["python", "-m"] and words[2].startswith("penstock.jobs."):
                parts.append(f"job(*{words[2:]!r})\n")
            else:
                parts.append(f"shell({line!r})\n")
    return "".join(parts)


def check_readme(output: str) -> None:
    """Check the output of README.md as a program: the table by subject, the replayed queue, a received message."""
    assert re.search(r"\| *shop-0\|14286\|", output)
    assert re.search(r"orders-again +fifo +1,000", output)
    assert "\nhello\n" in output
