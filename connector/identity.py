"""Identities: of a broker; of a query at it, which is the name of its lease, and what must not change under a checkpoint."""

from __future__ import annotations

import secrets
from typing import NamedTuple

from ..broker_core.client.flight import Client
from ..broker_core.errors import WrongOffset
from .offset import Offset, Offsets
from .options import RANDOM_LEASE, Options


class Identity(NamedTuple):
    """Id of a broker, and its product with the version."""

    broker: str
    product: str


def identity_of(client: Client) -> Identity:
    """Ask a broker. Raises PenstockError."""
    answer = client.call("hello")
    return Identity(answer["broker"], answer["product"])


def begun(options: Options, broker: str) -> Offset:
    """Return the initial offset, with names, of a query without a checkpoint."""
    return Offset(broker, options["lease"] or f"q-{secrets.token_hex(16)}", secrets.token_hex(8), 0)


def check_names(options: Options, broker: str, known: Offset | Offsets) -> None:
    """Raise WrongOffset if the checkpoint contradicts the options, or belongs to another broker."""
    if known.broker != broker:
        raise WrongOffset(
            f"the checkpoint belongs to broker {known.broker}, but the one at {options['url']} is {broker}:"
            " point the option url at the broker (or the data directory) the query began with, or start with a new checkpoint"
        )
    lease = options["lease"]
    if lease is not None and lease != known.lease:
        raise WrongOffset(
            f"the checkpoint belongs to lease {known.lease!r}, but the option lease says {lease!r}:"
            " put the option back as it was, or start with a new checkpoint"
        )
    if lease is None and not RANDOM_LEASE.fullmatch(known.lease):
        raise WrongOffset(
            f"the checkpoint belongs to lease {known.lease!r}, but the option lease is not set:"
            " put it back as it was, or start with a new checkpoint"
        )


def check_same(offset: Offset | Offsets, known: Offset | Offsets) -> None:
    """Raise WrongOffset if an offset, not the initial one, is of another lease or run than the query began with."""
    if (offset.broker, offset.lease, offset.run) != (known.broker, known.lease, known.run):
        raise WrongOffset(
            f"the offset names lease {offset.lease!r}, run {offset.run}, but this query reads lease {known.lease!r},"
            f" run {known.run}: the checkpoint was changed while the query ran; start the query again"
        )
