"""Texts for missing or damaged files of a spool: the loss, and the remedy."""

from __future__ import annotations

_BATCH = (
    "Nothing of it was delivered, and the broker may no longer have its messages. Put back an intact copy of the file and start"
    " the query again; or set failOnDataLoss=false, and the query continues without these messages"
)


def missing(url: str, file: str) -> str:
    """Return the text for a missing file of a batch."""
    return f"{file} is not in the spool {url}: the folder was emptied, or this executor does not reach it. {_BATCH}"


def damaged(url: str, file: str, why: object) -> str:
    """Return the text for a damaged file of a batch."""
    return f"{file} of the spool {url} is damaged: {why}. {_BATCH}"


def unrecognised(url: str, file: str, why: object) -> str:
    """Return the text for a file of keys without which messages cannot be recognised."""
    return (
        f"{file} of the spool {url} {why}. Nothing was delivered. The file is needed to recognise messages that the broker sends"
        " again. Put back an intact copy and start the query again; or set failOnDataLoss=false, and the query continues, but"
        " such messages may come twice"
    )
