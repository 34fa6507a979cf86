"""The append-only log of everything durable. It stores bytes, and has no notion of queues.

journal            `Journal`: begin here
recovery           the part of the log that counts after a crash. Read it before you change the order of writes
writer             the thread that writes and syncs
record_groups      a group of records while it is filled
segment_writer     the segment being written
records, segments  the log's format, and its files
versions           the check of format versions
lineage            the owner of numbers
manifest, holes    the segments that must exist, the dropped ones, the known length of the log
holds              readers of dropped segments
snapshots          the whole state at one position
replay, tail       the log in order; the last segment, which a crash can tear
payloads, view     bytes of a record; those of another process's journal
disk, locks        all I/O; the directory's holder
reserve            space for writes that must not fail on a full disk
descriptors        file descriptors in reserve
shortages          waits for either

An error after an append fails the journal, and the broker stops.
"""

from .disk import Disk, LocalDisk
from .holds import Hold
from .journal import Journal
from .segments import SegmentInfo
from .writer import JournalOptions

__all__ = ["Disk", "Hold", "Journal", "JournalOptions", "LocalDisk", "SegmentInfo"]
