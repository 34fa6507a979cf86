"""The base class of commands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar


class Now(NamedTuple):
    """Times of a command, in microseconds: `wall` since 1970; `up` since the start, monotonic and without standstills of the
    broker; `resumed`: the `up` at the end of the last standstill, or 0."""

    wall: int
    up: int
    resumed: int = 0


R = TypeVar("R", covariant=True)


@dataclass(frozen=True)
class Command(Generic[R]):
    """A request with a reply of type `R`. `user` is named in the archive, `selector` is canonical, `timeout` in microseconds."""


class Maker(NamedTuple):
    """The user who makes a queue, an exchange or a publish key, and the limit for these."""

    user: str
    most: int
