"""The recorder: the thread of the broker that begins recordings, and the process that writes tables.

recorder  the thread: which queue is recorded next, and when a table is maintained
process   the process as the thread sees it
worker    the main loop of the process
estimate  when the disk of the archive will be full

A recording is a set of rows that the engine has fixed before anything is written. The process writes them to new files and adds
these to the table in one commit, with the number of the recording as a transaction of an application. Then the broker logs the
end of the recording. After a crash in between, the process receives the same recording again, and writes nothing if the table
has that number. Vacuum removes the files of interrupted attempts.

A restored data directory inherits the recordings that had begun when its copy was taken. The original may have committed such a
recording, and may have changed its rows before, by a redrive. It counts as recorded if the table has exactly its rows.
Otherwise the restored broker moves it to its own lineage (`journal.lineage`). Only the broker that owns a lineage commits under
its name.
"""
