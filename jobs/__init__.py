"""Jobs for `python -m penstock.jobs.NAME` and for spark-submit.

- ingest: copies a queue into a Delta table.
- replay: copies archived messages into a table or a queue.
- archive: copies a queue's archive into another table, with other columns or partitions.
- redrive: moves dead letters that a condition selects back to their queues.
- session, arguments, progress: the Spark session, command-line options and output of several jobs.
- flights: the data of the notebooks and the demo.
"""

import sys

from penstock.extras import require

try:
    require("pyspark", "a job")
except ImportError as error:
    if sys.argv[:1] != ["-m"]:  # the value while `python -m penstock.jobs.NAME` imports this package
        raise
    print(f"penstock: {error}", file=sys.stderr)
    sys.exit(2)
