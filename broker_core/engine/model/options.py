"""What can be declared of a queue: types, options, and the rules that follow from them. docs/semantics.md says each in words.

An option's value that equals its default is not kept, so that the same declaration is the same however it was written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.broker_core.engine.columns.limits import MAX_DUPLICATE_WINDOW, MAX_KEYS, MAX_MILLISECONDS, MAX_NAME
from penstock.broker_core.engine.model.names import NODE_NAME, is_node_name
from penstock.broker_core.errors import InvalidRequest

TYPES = ("fifo", "priority", "lastvalue")
QUEUE_NAME = "the name of a queue"
PRIORITIES = 10  # of AMQP and JMS: 0 to 9
DEFAULT_PRIORITY = 4
DEFAULT_ATTEMPTS = 10  # of a queue with a dead-letter queue; without one, a message is tried for ever
_KEY = re.compile(r"groupId|subject|messageId|correlationId|properties\..{1,200}", re.DOTALL)


class Option(NamedTuple):
    """One option: its default, what is allowed (values, or the range of a number, or words for a person), whether a living queue
    can change it, and the type of queue that it belongs to (None: any)."""

    default: Any
    allowed: tuple[str, ...] | range | str
    alterable: bool = True
    type: str | None = None


_TIME = range(MAX_MILLISECONDS)
OPTIONS: dict[str, Option] = {
    # Before a sender is told *accepted*: is every message on disk, or only one whose header says durable?
    "durability": Option("all", ("all", "header")),
    # Milliseconds: what a message without a ttl gets, and the most that one with a ttl gets. 0: no limit.
    "messageTtl": Option(0, _TIME),
    "expired": Option("archive", ("archive", "deadLetter")),
    "rejected": Option("deadLetter", ("deadLetter", "archive", "return")),  # deadLetter without such a queue: archive
    "lostCounts": Option(True, ("true", "false")),  # is a delivery whose link was lost an attempt?
    "refusedByAll": Option("keep", ("keep", "deadLetter")),
    # Does an attempt that a source's default outcome ended, with its link, count towards maxAttempts?
    "defaultOutcomeCounts": Option(False, ("true", "false")),
    "maxAttempts": Option(None, range(1_000_000)),  # 0: no limit. None: DEFAULT_ATTEMPTS with a dead-letter queue, else 0
    "deadLetterQueue": Option(None, QUEUE_NAME),
    "lockTimeout": Option(0, _TIME),  # milliseconds that a link may hold a message unsettled; 0: as long as it likes
    "lockCounts": Option(True, ("true", "false")),
    "maxMessages": Option(0, range(1 << 48)),  # held, available, acquired and staged ones; 0: no limit
    "maxBytes": Option(0, range(1 << 56)),
    "overflow": Option("block", ("block", "reject", "ring")),
    "groups": Option("none", ("none", "held", "sticky"), alterable=False),
    "consumers": Option("all", ("all", "exclusive", "single")),
    "duplicateWindow": Option(0, range(MAX_DUPLICATE_WINDOW + 1), alterable=False),  # message ids remembered; 0: none
    "duplicateTime": Option(0, _TIME),  # milliseconds that they are remembered; 0: while they are in the window
    "lifetime": Option("permanent", ("permanent", "link", "unused", "empty", "unusedOrEmpty"), alterable=False),
    "levels": Option(PRIORITIES, range(1, PRIORITIES + 1), alterable=False, type="priority"),
    "key": Option(None, "groupId, subject, messageId, correlationId or properties.NAME", alterable=False, type="lastvalue"),
    "maxKeys": Option(100_000, range(1, MAX_KEYS + 1), type="lastvalue"),
}


class Wants(NamedTuple):
    """What of a message's inside the queue has to know on arrival, beside priority, expiry and delay."""

    group: bool = False
    key: str | None = None
    ids: bool = False


@dataclass(frozen=True)
class Rules:
    """The options of one queue, each with its value. Times are milliseconds."""

    durability: str
    message_ttl: int
    expired: str
    rejected: str
    lost_counts: bool
    refused_by_all: str
    default_outcome_counts: bool
    max_attempts: int
    dead_letter_queue: str | None
    lock_timeout: int
    lock_counts: bool
    max_messages: int
    max_bytes: int
    overflow: str
    groups: str
    consumers: str
    duplicate_window: int
    duplicate_time: int
    lifetime: str
    levels: int
    key: str | None
    max_keys: int

    @cached_property
    def wants(self) -> Wants:
        return Wants(self.groups != "none", self.key, self.duplicate_window > 0)


_SNAKE = {name: re.sub("[A-Z]", lambda letter: "_" + letter.group().lower(), name) for name in OPTIONS}
assert set(_SNAKE.values()) == {field.name for field in fields(Rules)}


def checked(type_: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The options that say something else than their default, values in their own types; InvalidRequest names what is wrong."""
    if type_ not in TYPES:
        raise InvalidRequest(f"type {type_!r:.80} is not known; known are {', '.join(TYPES)}")
    known = [name for name, option in OPTIONS.items() if option.type in (None, type_)]
    found = {}
    for name, value in given.items():
        if name not in known:
            raise InvalidRequest(f"option {name!r:.80} is not known of type {type_}; known are {', '.join(known)}")
        found[name] = _value(name, OPTIONS[name], value)
    if type_ == "lastvalue" and found.get("key") is None:
        raise InvalidRequest(f"option 'key' is needed by a lastvalue queue: {OPTIONS['key'].allowed}")
    return {name: value for name, value in found.items() if value != OPTIONS[name].default}


def _value(name: str, option: Option, value: Any) -> Any:
    """Numbers and booleans also as text, as a command line has them."""
    if value is None:
        return option.default
    if isinstance(option.allowed, range):
        number = int(value) if isinstance(value, str) and re.fullmatch("[0-9]{1,18}", value) else value
        if isinstance(number, bool) or not isinstance(number, int) or number not in option.allowed:
            low, high = option.allowed.start, option.allowed.stop - 1
            raise InvalidRequest(f"option {name!r}: {value!r:.80} is not a whole number from {low} to {high}")
        return number
    if isinstance(option.allowed, tuple):
        text = str(value).lower() if isinstance(value, bool) else value
        if text not in option.allowed:
            raise InvalidRequest(f"option {name!r}: {value!r:.80} is not one of {', '.join(option.allowed)}")
        return text == "true" if isinstance(option.default, bool) else text
    if not isinstance(value, str) or not 0 < len(value) <= MAX_NAME or (name == "key" and not _KEY.fullmatch(value)):
        raise InvalidRequest(f"option {name!r}: {value!r:.80} is not {option.allowed}")
    return value


def check_names(given: Mapping[str, Any]) -> None:
    """Raise InvalidRequest where one of the options names a queue that nobody can declare. Not a part of `checked`, which reads
    old journals too: those may have such."""
    for name, value in given.items():
        if name in OPTIONS and OPTIONS[name].allowed == QUEUE_NAME and value is not None and not is_node_name(value):
            raise InvalidRequest(f"option {name!r}: {value!r:.80} is not {QUEUE_NAME}, {NODE_NAME}")


def rules(type_: str, options: Mapping[str, Any]) -> Rules:
    """The rules of a queue of this type with these checked options."""
    values = {_SNAKE[name]: options.get(name, option.default) for name, option in OPTIONS.items()}
    if type_ != "priority":
        values["levels"] = 1
    if values["max_attempts"] is None:
        values["max_attempts"] = DEFAULT_ATTEMPTS if values["dead_letter_queue"] else 0
    return Rules(**values)


def level_of_priority(levels: int) -> npt.NDArray[np.uint8]:
    """By stored priority (0: not said, else the priority plus one) the level, 0 the lowest: the mapping of AMQP 0-10.

    With N levels the priorities up to 5 - ceil(N/2) are the lowest, those from 4 + floor(N/2) on the highest, and each between
    has a level of its own.
    """
    if levels == 1:
        return np.zeros(PRIORITIES + 1, np.uint8)
    lowest = 5 - -(-levels // 2)
    by_priority = np.clip(np.arange(PRIORITIES) - lowest, 0, levels - 1)
    return np.concatenate([by_priority[[DEFAULT_PRIORITY]], by_priority]).astype(np.uint8)
