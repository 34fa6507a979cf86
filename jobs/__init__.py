"""Jobs for spark-submit (`ingest`, `replay`), the demo, and the session they share."""

import sys

from penstock.extras import require

try:
    require("pyspark", "a job")
except ImportError as error:
    if sys.argv[:1] != ["-m"]:  # what `python -m penstock.jobs.NAME` finds there until the job itself begins
        raise
    print(f"penstock: {error}", file=sys.stderr)
    sys.exit(2)
