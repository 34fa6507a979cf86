"""Jobs for `python -m penstock.jobs.NAME` and for spark-submit.

- ingest: a queue into a Delta table
- replay: archived messages into a table or a queue
- archive: a queue's archive into another table
- redrive: dead letters that a condition selects back to their queues
- session, arguments, progress: the Spark session, options and output of jobs
- flights: the data of the notebooks and the demo
"""

import sys

from penstock.extras import require

try:
    require("pyspark", "a job")
except ImportError as error:
    if sys.argv[:1] != ["-m"]:  # while `python -m penstock.jobs.NAME` imports this package
        raise
    print(f"penstock: {error}", file=sys.stderr)
    sys.exit(2)
