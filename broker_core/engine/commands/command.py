"""The type of a command: a request to the engine, with the type of its reply."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar


class Now(NamedTuple):
    """Time is an argument. `wall` is microseconds since 1970; `up` is monotonic, in microseconds, anew after each start, without
    the time in which the broker stood still; `resumed` is the `up` at which it last went on after that, 0 where it never did."""

    wall: int
    up: int
    resumed: int = 0


R = TypeVar("R", covariant=True)


@dataclass(frozen=True)
class Command(Generic[R]):
    """A request to the engine. `R` is the type of its reply."""


class Maker(NamedTuple):
    """The user who makes queues and exchanges by links or first uses, or publish keys, and how many that user may have."""

    user: str
    most: int
