"""Every error of Penstock: who is at fault, what happened, what to do.

`fault` is one of *caller* (the request is wrong, or no longer allowed), *peer* (the other side broke the protocol or went
away) and *storage* (the disk, or what is on it). `code` is stable and travels over the wire; the text is for people.
"""

from __future__ import annotations

import json
from typing import ClassVar


class PenstockError(Exception):
    """The base: catch this for everything that Penstock itself reports."""

    code: ClassVar[str] = "error"
    fault: ClassVar[str] = "caller"

    def to_json(self) -> bytes:
        return json.dumps({"code": self.code, "fault": self.fault, "message": str(self)}).encode()


class InvalidRequest(PenstockError):
    """A field is missing, unknown, or has a value that is not allowed."""

    code = "invalid"


class InvalidSelector(InvalidRequest):
    """A message selector that cannot be parsed, or passes a limit. `position` is the first character that is wrong, from 1."""

    def __init__(self, text: str, position: int = 1) -> None:
        super().__init__(text)
        self.position = position


class NotFound(PenstockError):
    """A queue, lease or stage of that name does not exist."""

    code = "not-found"


class AlreadyExists(PenstockError):
    """The name is taken by something declared differently."""

    code = "exists"


class InUse(PenstockError):
    """What is to be deleted or begun again still holds messages for somebody."""

    code = "in-use"


class Fenced(PenstockError):
    """An older epoch of a lease asks for something: another reader has taken the lease up since."""

    code = "fenced"


class DataLoss(PenstockError):
    """Messages that the offset names are no longer there, or no longer its own (see `failOnDataLoss`)."""

    code = "data-loss"


class WrongOffset(PenstockError):
    """An offset of another broker, run, queue or lease."""

    code = "wrong-offset"


class IllegalTransition(PenstockError):
    """A message is not in a state from which the table allows this; nothing was changed."""

    code = "illegal-transition"


class ResourceLimit(PenstockError):
    """A named limit is reached: the disk's free-space mark, a size, a count."""

    code = "resource-limit"


class QueueFull(ResourceLimit):
    """A queue has no room for what was to be stored there."""

    code = "queue-full"


class UnknownTransaction(PenstockError):
    """No transaction of that number is open."""

    code = "unknown-transaction"


class TransactionRolledBack(PenstockError):
    """Nothing of a transaction was done, or will be; the text says why. Do its work again in a new one."""

    code = "transaction-rolled-back"


class TransactionTimedOut(PenstockError):
    """The work of a transaction took too long: nothing of it was done."""

    code = "transaction-timed-out"


class Unauthenticated(PenstockError):
    """Nobody knows who asks: no credentials, wrong ones, or a token that has expired."""

    code = "unauthenticated"


class NotAllowed(PenstockError):
    """The user is known, and has no permission for this."""

    code = "not-allowed"


class NotDelivered(PenstockError):
    """The broker took the messages and gave them back: no queue was for them, or none can take them now."""

    code = "not-delivered"


class NotMappable(PenstockError):
    """The rows lie too scattered to be read from the segments in place; ask for the messages instead."""

    code = "not-mappable"


class PeerError(PenstockError):
    """The other side broke the protocol, or cannot be reached."""

    code = "unreachable"
    fault = "peer"


class MalformedMessage(PenstockError):
    """A stored message, sent in AMQP's encoding, whose octets are none. Nothing was read of it; the text says how to get past."""

    code = "malformed"
    fault = "peer"

    @classmethod
    def of(cls, queue: str, sequence: int, reason: str) -> MalformedMessage:
        return cls(
            f"message {sequence} of queue {queue!r} is no well-formed AMQP message, which is its sender's fault ({reason})."
            " It is still there: a batch read of the column 'message' alone gives its octets. To let a stream go on without it:"
            f" `penstock lease settle NAME --sequence {sequence} --outcome rejected`, and start the query again"
        )


class StorageError(PenstockError):
    """A write or fsync failed; the broker stops, since nobody can know what is on the disk."""

    code = "storage"
    fault = "storage"


class DamagedJournal(StorageError):
    """Bytes that were confirmed read back wrong: names the file and the offset."""

    code = "damaged"


class DamagedMessages(DamagedJournal):
    """The record that holds messages read back wrong: names queue, messages, file and offset, and how to go on without them."""

    queue, first, last = "", 0, 0

    @classmethod
    def of(cls, queue: str, first: int, last: int, error: DamagedJournal) -> DamagedMessages:
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
        """The error with the file's name instead of its path, which is nobody's business elsewhere."""
        path, comma, rest = str(error).partition(", offset ")
        return f"damaged: {path.rpartition('/')[2]}{comma}{rest}"


class DirectoryLocked(StorageError):
    """Another broker holds the data directory; the text says which process."""

    code = "locked"


def _kinds(of: type[PenstockError]) -> list[type[PenstockError]]:
    return [of, *(kind for each in of.__subclasses__() for kind in _kinds(each))]


_BY_CODE = {kind.code: kind for kind in reversed(_kinds(PenstockError))}  # of kinds with the same code, the general one


def from_json(data: bytes) -> PenstockError:
    """The error that `to_json` wrote; an unknown code becomes a plain `PenstockError`."""
    try:
        fields = json.loads(data)
        return _BY_CODE.get(fields["code"], PenstockError)(fields["message"])
    except (ValueError, KeyError, TypeError):
        return PeerError(f"the broker answered with an error that cannot be read: {data[:200]!r}")
