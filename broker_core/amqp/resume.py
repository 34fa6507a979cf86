"""Resuming of a link (2.6.13, 3.4.6): the action for each delivery that either end still holds unsettled.

The numbers in the comments are the delivery tags of the example in 3.4.6. If the specification leaves the choice to the
application, the action is RESTART or ABORT_THEN_RESTART. The application may report a loss instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from .messages import MAX_SECTIONS, skip
from .performatives import TERMINAL, DeliveryState, Received

Unsettled = Mapping[bytes, DeliveryState | None]


class Action(Enum):
    """Action of the sending end for a delivery."""

    RESTART = "send again as a new delivery, without resume."
    RESUME = "resume from a position."
    STATE = "resume without data, with the terminal state; settle if both agree."
    ABORT_THEN_RESTART = "resume, aborted immediately; then send again as a new delivery."
    ABORT = "resume, aborted immediately: the state is terminal."
    SETTLE = "settle locally: the receiver has forgotten it."
    IGNORE = "not ours: the receiver treats it as settled."
    UNKNOWN = "absent from a map that is incomplete: leave it for the next attach."


class Resolution(NamedTuple):
    """An action. `position` is (section-number, section-offset), for RESUME only."""

    action: Action
    position: tuple[int, int] | None = None


_START = (0, 0)


def resolve(sender: Unsettled, receiver: Unsettled, *, receiver_incomplete: bool = False) -> dict[bytes, Resolution]:
    """Return the sending end's action for every tag of either map. With `receiver_incomplete`, a tag missing from the receiver's
    map means nothing.
    """
    actions = {}
    for tag, mine in sender.items():
        if tag in receiver:
            actions[tag] = _both(mine, receiver[tag])
        elif receiver_incomplete:
            actions[tag] = Resolution(Action.UNKNOWN)
        else:
            actions[tag] = Resolution(Action.SETTLE if isinstance(mine, TERMINAL) else Action.RESTART)  # 10; 1, 5
    for tag in receiver:
        if tag not in sender:
            actions[tag] = Resolution(Action.IGNORE)
    return actions


def offset_of(message: bytes, position: tuple[int, int]) -> int:
    """Return the offset of a section number, and octets in that section, in an encoded message (3.4.1)."""
    section, offset = position
    begin = 0
    for _ in range(section):
        if begin >= len(message):
            break
        begin = skip(message, begin, len(message))
    return min(begin + offset, len(message))


def _both(mine: DeliveryState | None, theirs: DeliveryState | None) -> Resolution:
    if isinstance(mine, TERMINAL):
        if isinstance(theirs, TERMINAL):  # 12, 13: ours is definitive
            return Resolution(Action.STATE)
        return Resolution(Action.ABORT)  # 11, 14
    if isinstance(theirs, TERMINAL):  # 3, 8
        return Resolution(Action.STATE)
    first_mine, next_theirs = _position(mine), _position(theirs)
    if next_theirs < first_mine:  # 7, 9
        return Resolution(Action.ABORT_THEN_RESTART)
    return Resolution(Action.RESUME, next_theirs)  # 2, 4, 6


def _position(state: DeliveryState | None) -> tuple[int, int]:
    # `offset_of` walks the sections one by one. A receiver that claims to be so far gets the whole message.
    if not isinstance(state, Received) or state.section_number > MAX_SECTIONS:
        return _START
    return state.section_number, state.section_offset
