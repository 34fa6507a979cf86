"""The recorder: the thread of the broker that begins recordings, and the process that writes tables.

recorder  the thread
process   the process as the thread sees it
worker    the main loop of the process
estimate  when the disk of the archive will be full

A recording is a set of rows that the engine has fixed before anything is written. The process writes them to new files and adds
these to the table in one commit. The commit also contains the number of the recording, as a transaction of an application. Then
the broker logs the end of the recording. After a crash in between, the process receives the same recording again, and writes
nothing if the table has that number. Files of an interrupted attempt belong to no version of the table, and vacuum removes
them.

A restored data directory inherits the recordings that had begun when its copy was taken. The original may have committed such a
recording, and may have changed its rows before, by a redrive. It counts as recorded if the table has exactly its rows.
Otherwise the restored broker moves it to its own lineage (`journal.lineage`) and writes it. Only the broker that owns a lineage
commits under its name.
"""
