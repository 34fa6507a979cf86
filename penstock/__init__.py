"""Penstock: message queues as Spark tables, and back. All that is installed begins with this name.

broker_core/   the broker, its planes and its clients
connector/     the data source and sink for Spark
jobs/          jobs for spark-submit, and the demo

In the repository the three stand at the top and are links here; a wheel has them in this folder. Importing this package imports
nothing else, since Spark's executors need only a part of it.
"""
