"""Every error of Penstock: who is at fault, what happened, what to do.

`fault` is one of *caller* (the request is wrong, or no longer allowed), *peer* (the other side broke the protocol or went away)
and *storage* (the disk, or data on it). `code` is stable and travels over the wire; the text is for people.
"""

from __future__ import annotations

import json
from typing import ClassVar


class PenstockError(Exception):
    """Base of all errors that Penstock itself reports."""

    code: ClassVar[str] = "error"
    fault: ClassVar[str] = "caller"

    def to_json(self) -> bytes:
        """Return code, fault and text as UTF-8 JSON, for the wire."""
        return json.dumps({"code": self.code, "fault": self.fault, "message": str(self)}).encode()


class InvalidRequest(PenstockError):
    """A field that is missing, unknown, or has a value that is not allowed."""

    code = "invalid"


class InvalidSelector(InvalidRequest):
    """A message selector that cannot be parsed, or exceeds a limit. `position` is the first wrong character, from 1."""

    def __init__(self, text: str, position: int = 1) -> None:
        super().__init__(text)
        self.position = position


class NotFound(PenstockError):
    """A queue, lease or stage that does not exist."""

    code = "not-found"


class AlreadyExists(PenstockError):
    """A name that is taken by something declared differently."""

    code = "exists"


class InUse(PenstockError):
    """Something to be deleted or restarted that still holds messages for somebody."""

    code = "in-use"


class Fenced(PenstockError):
    """A request of an older epoch of a lease: another reader has taken the lease over since."""

    code = "fenced"


class DataLoss(PenstockError):
    """Messages named by an offset that are gone, or belong to it no longer (see `failOnDataLoss`)."""

    code = "data-loss"


class WrongOffset(PenstockError):
    """An offset of another broker, run, queue or lease."""

    code = "wrong-offset"


class IllegalTransition(PenstockError):
    """A message in a state from which the table does not allow this transition; nothing was changed."""

    code = "illegal-transition"


class ResourceLimit(PenstockError):
    """A named limit that is reached: the disk's free-space mark, a size, a count."""

    code = "resource-limit"


class QueueFull(ResourceLimit):
    """A queue without capacity for messages to be stored there."""

    code = "queue-full"


class UnknownTransaction(PenstockError):
    """A transaction id that is not open."""

    code = "unknown-transaction"


class TransactionRolledBack(PenstockError):
    """A transaction rolled back by the broker, for the reason in the text. Repeat its work in a new one."""

    code = "transaction-rolled-back"


class TransactionTimedOut(PenstockError):
    """A transaction that took too long and was rolled back."""

    code = "transaction-timed-out"


class Unauthenticated(PenstockError):
    """A request without credentials, with wrong ones, or with a token that has expired."""

    code = "unauthenticated"


class NotAllowed(PenstockError):
    """A known user without permission for this."""

    code = "not-allowed"


class NotDelivered(PenstockError):
    """Messages that the broker gave back: no queue was bound for them, or none can take them now."""

    code = "not-delivered"


class NotMappable(PenstockError):
    """Rows too scattered to be read from the segments in place; ask for the messages instead."""

    code = "not-mappable"


class PeerError(PenstockError):
    """A peer that broke the protocol, or cannot be reached."""

    code = "unreachable"
    fault = "peer"


class MalformedMessage(PenstockError):
    """A stored message that is not well-formed AMQP. Nothing of it was read; the text says how to go on without it."""

    code = "malformed"
    fault = "peer"

    @classmethod
    def of(cls, queue: str, sequence: int, reason: str) -> MalformedMessage:
        """Return the error for one message, by its sequence number in the queue."""
        return cls(
            f"message {sequence} of queue {queue!r} is no well-formed AMQP message, which is its sender's fault ({reason})."
            " It is still there: a batch read of the column 'message' alone gives its octets. To let a stream go on without it:"
            f" `penstock lease settle NAME --sequence {sequence} --outcome rejected`, and start the query again"
        )


class StorageError(PenstockError):
    """A failed write or fsync. The broker stops, since nobody can know what is on the disk."""

    code = "storage"
    fault = "storage"


class DamagedJournal(StorageError):
    """Confirmed bytes that read back wrong. The text names the file and the offset."""

    code = "damaged"


class DamagedMessages(DamagedJournal):
    """A damaged record that holds messages. The text names queue, messages, file and offset, and how to go on without them."""

    queue, first, last = "", 0, 0

    @classmethod
    def of(cls, queue: str, first: int, last: int, error: DamagedJournal) -> DamagedMessages:
        """Return the error for the messages `first` to `last`, by their sequence numbers in the queue."""
        messages, names, to = f"message {first}", "it", ""
        if last != first:
            messages, names, to = f"messages {first} to {last}", "them", f" --to {last}"
        found = cls(
            f"{messages} of queue {queue!r} cannot be read: {cls.text(error)}. To go on without {names}:"
            f" `penstock queue discard {queue} --sequence {first}{to}`"
        )
        found.queue, found.first, found.last = queue, first, last
        return found

    @staticmethod
    def text(error: DamagedJournal) -> str:
        """Return the error's text with the file's name instead of its path, which does not concern clients."""
        path, comma, rest = str(error).partition(", offset ")
        return f"damaged: {path.rpartition('/')[2]}{comma}{rest}"


class ArchiveUnreachable(PenstockError):
    """An archive's table, or a file of it, that cannot be read from here. The text names it."""

    code = "archive"
    fault = "storage"


class DirectoryLocked(StorageError):
    """A data directory that another broker holds; the text names its process."""

    code = "locked"


def _kinds(of: type[PenstockError]) -> list[type[PenstockError]]:
    return [of, *(kind for each in of.__subclasses__() for kind in _kinds(each))]


_BY_CODE = {kind.code: kind for kind in reversed(_kinds(PenstockError))}  # the base wins where several share a code


def from_json(data: bytes) -> PenstockError:
    """Return the error that `to_json` wrote. An unknown code becomes a plain `PenstockError`, other bytes a `PeerError`."""
    try:
        fields = json.loads(data)
        return _BY_CODE.get(fields["code"], PenstockError)(fields["message"])
    except (ValueError, KeyError, TypeError):
        return PeerError(f"the broker answered with an error that cannot be read: {data[:200]!r}")
