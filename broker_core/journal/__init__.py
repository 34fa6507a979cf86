"""The append-only log that everything durable goes through: group commit, snapshots, recovery. Knows bytes, and no queue.

journal            `Journal`: puts the parts together; begin here
recovery           what of the log counts after a crash; read it before changing what is written, or when
writer, groups     the thread that writes and syncs; a group being filled
segment_writer     the segment that is being written
records, segments  the format of the log, and its files
versions           versions of persisted formats
lineage            what numbers given by a state belong to, once a directory was restored
manifest, holes    which segments must be there, which were dropped, and how far the log is on the disk
holds              readers for whose sake dropped segments stay on the disk for a while
snapshots          the whole state at one position
replay, tail       the log in order; the last segment, where a crash shows
payloads           bytes of a record, mapped and checked when they are first read
view               payloads of a journal that another process writes
disk, locks         all I/O: `Disk`, and the local directory; who has it
reserve             space on the disk for writes that must not fail when it is full
descriptors         file descriptors in reserve
shortages           waits of the writer for either

What is durable and what is verified is known here alone. Whatever is raised after an append fails the journal, and the broker
stops.
"""

from .disk import Disk, LocalDisk
from .holds import Hold
from .journal import Journal
from .payloads import Located
from .records import Record
from .recovery import Repair
from .segments import SegmentInfo
from .snapshots import Snapshot
from .writer import Appended, JournalOptions

__all__ = [
    "Appended",
    "Disk",
    "Hold",
    "Journal",
    "JournalOptions",
    "LocalDisk",
    "Located",
    "Record",
    "Repair",
    "SegmentInfo",
    "Snapshot",
]
