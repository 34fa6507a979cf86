"""Jobs for spark-submit, the demo, and the session they share.

ingest     a queue into a Delta table
replay     out of a queue's archive, into a table or a queue
archive    a queue's archive into a table elsewhere, or partitioned otherwise
redrive    dead letters that a condition chooses, back to where they came from
demo       `./dev demo`: flights through a queue, under kills
under_kills  its heart: send, read while driver and broker are killed, compare
artemis_demo  the same with a broker that is no Penstock
artemis    ActiveMQ Artemis on loopback: an instance and its process
lost_machine  a part of it: a broker goes on from its copy in S3
told       what the demo says
flights    the data of the demo and the notebook
session    the Spark session of all of them
arguments  what several jobs take on their command lines
progress   a running query, told in lines with units
"""

import sys

from penstock.extras import require

try:
    require("pyspark", "a job")
except ImportError as error:
    if sys.argv[:1] != ["-m"]:  # what `python -m penstock.jobs.NAME` finds there until the job itself begins
        raise
    print(f"penstock: {error}", file=sys.stderr)
    sys.exit(2)
