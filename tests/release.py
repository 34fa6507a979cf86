"""README's five minutes from an installed wheel: `python tests/release.py ENVIRONMENT`, which `./dev release` runs.

ENVIRONMENT is a virtual environment with the wheel and its extras `broker` and `spark`. The commands and the program run in an
empty folder, with that environment first on PATH and without this checkout.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

from tests.documents import PRELUDE, as_program, check_readme

ROOT = Path(__file__).resolve().parents[1]

SESSION = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
"""
LIMIT_S = 600


def environment(venv: Path) -> dict[str, str]:
    """Return this process's environment as a shell has it after `source ENVIRONMENT/bin/activate`."""
    checkout = ("PYTHONPATH", "PYTHONSAFEPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PENSTOCK_URL")
    variables = {name: value for name, value in os.environ.items() if name not in checkout}
    return {**variables, "PATH": f"{venv / 'bin'}{os.pathsep}{os.environ['PATH']}", "VIRTUAL_ENV": str(venv)}


def main(venv: Path) -> int:
    """Run README.md, and return the exit code."""
    variables = environment(venv)
    with tempfile.TemporaryDirectory(prefix="penstock-release-") as name:
        folder = Path(name)
        serve = ["penstock", "serve", "--data", "data", "--amqp-port", "0", "--flight-port", "0", "--http-port", "0"]
        with open(folder / "broker.log", "wb") as log:
            broker = subprocess.Popen(serve, cwd=folder, env=variables, stdout=subprocess.PIPE, stderr=log)
        try:
            assert broker.stdout is not None
            line = broker.stdout.readline()
            assert line, (folder / "broker.log").read_text()
            program = PRELUDE + SESSION + as_program(ROOT / "README.md", json.loads(line)["amqp"], folder)
            subprocess.run("penstock conf spark > spark.conf", shell=True, cwd=folder, env=variables, check=True)
            if "\nspark.jars.packages" not in (folder / "spark.conf").read_text():  # a Spark without Delta
                program = program.replace('format("delta")', 'format("parquet")')
            (folder / "readme.py").write_text(program)
            submit = ["spark-submit", "--properties-file", "spark.conf", "readme.py"]
            done = subprocess.run(
                submit,
                cwd=folder,
                env=variables,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=LIMIT_S,
                check=False,
            )
        finally:
            broker.terminate()
            broker.wait()
        if done.returncode != 0:
            print(done.stdout[-3000:], done.stderr[-3000:], sep="\n", file=sys.stderr)
            return 1
        check_readme(done.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).absolute()))
