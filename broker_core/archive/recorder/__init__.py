"""The recorder: a thread of the broker and a process.

recorder  the thread: it chooses the next queue to record, and the next table to maintain
process   the thread's interface to the process
worker    the process, which writes tables
estimate  when the disk of the archive will be full

The engine fixes the rows of a recording first. The process writes them to new files, and adds the files to the table in one
commit, with the recording's number as an application transaction. Then the broker logs the end of the recording. After a crash in
between, the process receives the same recording again, and writes nothing if the table has its number. Vacuum removes the files
of interrupted attempts.

A restored data directory inherits the recordings that had begun in its copy. The original may have committed them, perhaps with
other rows after a redrive. An inherited recording counts as recorded if the table has exactly its rows. Otherwise the restored
broker moves it to its own lineage (`journal.lineage`). Only the owner of a lineage commits under its name.
"""
