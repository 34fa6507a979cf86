"""The append-only log that everything durable goes through. Begin with `journal.py`; `recovery.py` gives the reasons."""

from penstock.broker_core.journal.disk import Disk, LocalDisk
from penstock.broker_core.journal.journal import Appended, Journal
from penstock.broker_core.journal.payloads import Located
from penstock.broker_core.journal.records import Record
from penstock.broker_core.journal.recovery import Repair
from penstock.broker_core.journal.segments import SegmentInfo
from penstock.broker_core.journal.snapshots import Snapshot

__all__ = ["Appended", "Disk", "Journal", "LocalDisk", "Located", "Record", "Repair", "SegmentInfo", "Snapshot"]
