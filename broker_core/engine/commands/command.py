"""The base class of commands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar


class Now(NamedTuple):
    """Times of a command, in microseconds. `wall` counts from 1970. `up` is monotonic: it counts from the start, without
    standstills of the broker. `resumed` is the `up` at the end of the last standstill, or 0."""

    wall: int
    up: int
    resumed: int = 0


R = TypeVar("R", covariant=True)


@dataclass(frozen=True)
class Command(Generic[R]):
    """A request with a reply of type `R`."""


class Maker(NamedTuple):
    """The user who makes a queue, an exchange or a publish key, and the user's limit."""

    user: str
    most: int
