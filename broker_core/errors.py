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
