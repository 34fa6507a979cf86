"""Every error of Penstock. `code` is stable and travels over the wire, and into Spark's errors as `[PENSTOCK.QUEUE_NOT_FOUND]`;
the text is for people. docs/errors.md lists the codes; a test compares."""

from __future__ import annotations

import json
from typing import ClassVar


class PenstockError(Exception):
    """Base of all errors that Penstock itself reports.

    Attributes:
        code: Name for programs, such as `QUEUE_NOT_FOUND`; docs/errors.md lists them.
        fault: Side that is at fault: `caller` (the request is wrong, or no longer allowed), `peer` or `storage`.
    """

    code: ClassVar[str] = "ERROR"
    fault: ClassVar[str] = "caller"

    def to_json(self) -> bytes:
        return json.dumps({"code": self.code, "fault": self.fault, "message": str(self)}).encode()


class InvalidRequest(PenstockError):
    """A field that is missing, unknown, or wrong."""

    code = "INVALID_REQUEST"


class InvalidOption(InvalidRequest):
    """An option of Spark's read or write that is unknown, wrong or missing."""

    code = "INVALID_OPTION"


class InvalidColumn(InvalidRequest):
    """A column of a DataFrame or schema that is unknown, missing, or has a wrong type."""

    code = "INVALID_COLUMN"


class InvalidSelector(InvalidRequest):
    """A selector that cannot be parsed, or exceeds a limit. `position` is the first wrong character, from 1."""

    code = "INVALID_SELECTOR"

    def __init__(self, text: str, position: int = 1) -> None:
        super().__init__(text)
        self.position = position


class NotFound(PenstockError):
    """Something named that does not exist."""

    code = "NOT_FOUND"


class QueueNotFound(NotFound):
    """A queue that does not exist."""

    code = "QUEUE_NOT_FOUND"


class ExchangeNotFound(NotFound):
    """An exchange that does not exist."""

    code = "EXCHANGE_NOT_FOUND"


class LeaseNotFound(NotFound):
    """A lease that does not exist."""

    code = "LEASE_NOT_FOUND"


class StageNotFound(NotFound):
    """A stage that does not exist, or was discarded or published."""

    code = "STAGE_NOT_FOUND"


class MessageNotFound(NotFound):
    """Messages that the queue does not contain."""

    code = "MESSAGE_NOT_FOUND"


class UserNotFound(NotFound):
    """A user that does not exist."""

    code = "USER_NOT_FOUND"


class Unroutable(NotFound):
    """A message that matches no binding of an exchange."""

    code = "UNROUTABLE"


class AlreadyExists(PenstockError):
    """A name of an existing node with other options."""

    code = "ALREADY_EXISTS"


class InUse(PenstockError):
    """A node or lease that cannot be deleted or restarted while it holds messages."""

    code = "IN_USE"


class LeaseInUse(InUse):
    """A lease that another query holds, or whose batch is not finished."""

    code = "LEASE_IN_USE"


class Fenced(PenstockError):
    """A request of an older epoch of a lease, an ended batch, or an ended lock of a group."""

    code = "FENCED"


class DataLoss(PenstockError):
    """Messages of an offset that were deleted, or no longer belong to it (see `failOnDataLoss`)."""

    code = "DATA_LOSS"


class WrongOffset(PenstockError):
    """An offset of another broker, run, queue or lease."""

    code = "WRONG_OFFSET"


class IllegalTransition(PenstockError):
    """A transition that a message's state does not allow."""

    code = "ILLEGAL_TRANSITION"


class ResourceLimit(PenstockError):
    """A limit that is reached: the free-space mark, a size, a count."""

    code = "RESOURCE_LIMIT"


class QueueFull(ResourceLimit):
    """A queue without capacity for the messages. `queue`, `messages`: its name, and the refused number."""

    code = "QUEUE_FULL"
    queue: str | None = None
    messages = 0


class DiskFull(ResourceLimit):
    """A disk that has reached its free-space mark, or is full."""

    code = "DISK_FULL"


class UnknownTransaction(PenstockError):
    """A transaction id that is not open."""

    code = "UNKNOWN_TRANSACTION"


class TransactionRolledBack(PenstockError):
    """A transaction that the broker rolled back. Repeat its work in a new one."""

    code = "TRANSACTION_ROLLED_BACK"


class TransactionTimedOut(PenstockError):
    """A transaction that took too long and was rolled back."""

    code = "TRANSACTION_TIMED_OUT"


class Unauthenticated(PenstockError):
    """A request with missing, wrong or expired credentials."""

    code = "UNAUTHENTICATED"


class NotAllowed(PenstockError):
    """A known user without permission for this."""

    code = "NOT_ALLOWED"


class NotDelivered(PenstockError):
    """Messages that the broker returned: no queue is bound for them, or has capacity."""

    code = "NOT_DELIVERED"


class WrongInterpreter(PenstockError):
    """An interpreter of Spark's workers that cannot run the connector."""

    code = "WRONG_INTERPRETER"


class NotMappable(PenstockError):
    """Rows that are too scattered for a read from the segments."""

    code = "NOT_MAPPABLE"


class PeerError(PenstockError):
    """A peer that broke the protocol, went away, or cannot be reached."""

    code = "PEER"
    fault = "peer"


class Unreachable(PeerError):
    """A broker that does not answer."""

    code = "UNREACHABLE"


class WrongPort(PeerError):
    """A port of another protocol, such as AMQP instead of Flight."""

    code = "WRONG_PORT"


class MalformedMessage(PenstockError):
    """A stored message that is not well-formed AMQP."""

    code = "MALFORMED_MESSAGE"
    fault = "peer"


class StorageError(PenstockError):
    """A failed write or fsync. The broker stops, because the state of the disk is unknown."""

    code = "STORAGE"
    fault = "storage"


class DamagedJournal(StorageError):
    """Confirmed bytes that were read back wrong."""

    code = "DAMAGED_JOURNAL"


class DamagedMessages(DamagedJournal):
    """A damaged record of messages."""

    code = "DAMAGED_MESSAGES"
    queue, first, last = "", 0, 0

    @classmethod
    def of(cls, queue: str, first: int, last: int, error: DamagedJournal) -> DamagedMessages:
        messages, names, to = f"message {first}", "it", ""
        if last != first:
            messages, names, to = f"messages {first} to {last}", "them", f" --to {last}"
        result = cls(
            f"{messages} of queue {queue!r} cannot be read: {cls.text(error)}. To continue without {names}:"
            f" `penstock queue discard {queue} --sequence {first}{to}`"
        )
        result.queue, result.first, result.last = queue, first, last
        return result

    @staticmethod
    def text(error: DamagedJournal) -> str:
        """Return the text with the file's name instead of its path, which does not concern clients."""
        path, comma, rest = str(error).partition(", offset ")
        return f"damaged: {path.rpartition('/')[2]}{comma}{rest}"


class ArchiveUnreachable(PenstockError):
    """An archive's table or file that cannot be read from this process."""

    code = "ARCHIVE_UNREACHABLE"
    fault = "storage"


class ArchiveUnsupported(PenstockError):
    """An archive's table with a feature of Delta that Penstock does not support."""

    code = "ARCHIVE_UNSUPPORTED"
    fault = "storage"


class SparkUnsupported(PenstockError):
    """A version of Spark without the requested feature."""

    code = "SPARK_UNSUPPORTED"


class DirectoryLocked(StorageError):
    """A data directory that another broker holds."""

    code = "DIRECTORY_LOCKED"


def _kinds(of: type[PenstockError]) -> list[type[PenstockError]]:
    return [of, *(kind for subclass in of.__subclasses__() for kind in _kinds(subclass))]


BY_CODE = {kind.code: kind for kind in _kinds(PenstockError)}


def from_json(data: bytes) -> PenstockError:
    """An unknown code becomes a plain `PenstockError`, other bytes a `PeerError`."""
    try:
        fields = json.loads(data)
        return BY_CODE.get(fields["code"], PenstockError)(fields["message"])
    except (ValueError, KeyError, TypeError):
        return PeerError(f"the broker answered with an error that cannot be read: {data[:200]!r}")
