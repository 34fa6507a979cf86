"""The archiver: settled messages become rows of Delta tables, a table for each queue, each message once.

recorder    the thread of the broker that says what goes when: it begins passes, hands them to a process of its own, ends them
child       that process, as its parent sees it
worker      the process's main loop
rows        rows of a pass, from the journal's segments
parquet     Parquet files of these rows
commits     tables: commits, compaction, vacuum, retention
compaction  small files put together
merging     rows of several files in one order
stores      folders and object stores
estimate    when the disk ends, at the rate at which the archive grows

A pass is a set of rows that the engine has fixed before anything is written (`engine.model.passes`). The process writes them to
files of their own, and adds these to the table by one commit, which also notes the number of the pass, as a transaction of an
application. Then the broker logs that the pass has ended. Whatever dies in between, the same pass is given to the process again,
which asks the table first: where the number is noted there, nothing is written. Files of an attempt that died are part of no
version of the table, and vacuum removes them.

A pass that had begun when a data directory was restored is inherited: its original may have committed it, and may have changed
it before, by a redrive. It counts as recorded where the table has just its rows. Otherwise the restored broker makes it one of
its own lineage first (`journal.lineage`) and writes it then: under a lineage's name commits nobody but its own broker.
"""
