"""Declaration of a queue: types, and options (docs/queues.md).

Defaults are not stored, so equal declarations are equal in any form.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ...errors import InvalidRequest
from ...quantities import MAX_MILLISECONDS
from ...similar import suggestion
from ..columns.limits import MAX_DUPLICATE_WINDOW, MAX_KEYS, MAX_NAME
from .names import NODE_NAME, is_node_name

TYPES = ("fifo", "priority", "lastvalue")
QUEUE_NAME = "the name of a queue"
PRIORITIES = 10  # 0 to 9
DEFAULT_PRIORITY = 4
DEFAULT_ATTEMPTS = 20  # as in RabbitMQ's quorum queues
# To change a default that existing queues keep, store a version of the defaults in `QueueDeclared` and in the snapshot. Then
# `rules` can use the earlier default for the earlier version.
MAX_BACKOFF = 100
_KEY = re.compile(r"groupId|subject|messageId|correlationId|properties\..{1,200}", re.DOTALL)


class QueueOption(NamedTuple):
    """See `option`."""

    default: Any
    allowed: tuple[str, ...] | range | str  # values, a range of numbers, or a description
    alterable: bool
    on_arrival: bool  # unless it is the default, it may refuse or drop arriving messages
    help: str
    type: str | None  # of queue; None: any


def option(
    default: Any,
    allowed: tuple[str, ...] | range | str,
    help: str,
    *,
    alterable: bool = True,
    on_arrival: bool = False,
    type: str | None = None,
) -> Any:
    """Declare an option as a field of `Rules`. The public name, the check of values, `queue stat`, `queue alter`, policies,
    `--help` and `Rules.unrestricted` follow from it, as tests/engine/test_queue_options.py checks."""
    return field(metadata={"option": QueueOption(default, allowed, alterable, on_arrival, help, type)})


_TIME = range(MAX_MILLISECONDS)
_NO_YES = ("true", "false")


class Wants(NamedTuple):
    """Attributes that the queue needs, in addition to priority, expiry and delay."""

    group: bool = False
    key: str | None = None
    ids: bool = False


@dataclass(frozen=True)
class Rules:
    """The options of a queue. Times are milliseconds. Public names are in camel case."""

    durability: str = option(
        "all",
        ("all", "header"),
        "Messages that must be on disk before their sender receives *accepted*: all, or the durable ones.",
    )
    message_ttl: int = option(
        0, _TIME, "Longest time to live in milliseconds; a message without a ttl gets this one; 0: no limit."
    )
    expired: str = option("archive", ("archive", "deadLetter"), "Destination of expired messages.")
    rejected: str = option(
        "deadLetter",
        ("deadLetter", "archive", "return"),
        "Destination of rejected messages; deadLetter without a dead-letter queue is archive.",
    )
    lost_counts: bool = option(
        True, _NO_YES, "Count a delivery whose link was lost as an attempt, if its client had begun to work on the message."
    )
    refused_by_all: str = option("keep", ("keep", "deadLetter"), "Destination of messages that every link has refused.")
    default_outcome_counts: bool = option(
        False, _NO_YES, "Count a delivery that the source's default outcome ended, at the end of its link, as an attempt."
    )
    max_attempts: int = option(DEFAULT_ATTEMPTS, range(1_000_000), "Most attempts for a message; 0: no limit.")
    retry_delay: int = option(0, _TIME, "Milliseconds that a message waits after a failed attempt; 0: none.")
    retry_backoff: int = option(
        1, range(1, MAX_BACKOFF + 1), "Factor by which retryDelay grows with each further failed attempt."
    )
    max_retry_delay: int = option(
        0, _TIME, "Longest wait for a retry in milliseconds, also one that a consumer asks for; 0: no limit."
    )
    dead_letter_queue: str | None = option(None, QUEUE_NAME, "Queue for dead letters; without one they are archived.")
    lock_timeout: int = option(0, _TIME, "Milliseconds that a link may hold a message unsettled; 0: no limit.")
    lock_counts: bool = option(True, _NO_YES, "Count a delivery that lockTimeout ended as an attempt.")
    max_messages: int = option(
        0,
        range(1 << 48),
        "Most messages in the queue: available, delayed, acquired and staged ones; 0: no limit.",
        on_arrival=True,
    )
    max_bytes: int = option(0, range(1 << 56), "Most bytes of bodies and properties in the queue; 0: no limit.", on_arrival=True)
    overflow: str = option(
        "block",
        ("block", "reject", "ring"),
        "A full queue lets senders wait (block), refuses messages (reject), or drops the oldest ones (ring).",
    )
    groups: str = option(
        "none",
        ("none", "held", "sticky"),
        "Messages of one group-id go to one consumer: while it holds any of them (held), or until its link ends (sticky).",
        alterable=False,
        on_arrival=True,
    )
    consumers: str = option(
        "all",
        ("all", "exclusive", "single"),
        "Consumers that get messages: all, one while others are refused (exclusive), one while others wait (single).",
    )
    duplicate_window: int = option(
        0,
        range(MAX_DUPLICATE_WINDOW + 1),
        "Most message ids that the queue remembers to drop duplicates; 0: none.",
        alterable=False,
        on_arrival=True,
    )
    duplicate_time: int = option(0, _TIME, "Milliseconds for which a message id is remembered; 0: while it is in the window.")
    archive: bool = option(
        None,
        _NO_YES,
        "Record settled messages in the queue's table (docs/operate.md). Default: true, but false with a lifetime other "
        "than permanent.",
    )
    archive_message: str = option(
        None,
        ("exact", "columns"),
        "Whether the queue's table keeps the exact bytes of AMQP messages, or columns only. Default: the broker's setting.",
    )
    lifetime: str = option(
        "permanent",
        ("permanent", "link", "unused", "empty", "unusedOrEmpty"),
        "End of the queue: never (permanent), with the link that made it, or without links, messages, or both.",
        alterable=False,
    )
    levels: int = option(PRIORITIES, range(1, PRIORITIES + 1), "Number of priority levels.", alterable=False, type="priority")
    key: str | None = option(
        None,
        "groupId, subject, messageId, correlationId or properties.NAME",
        "Field that is the key of a last-value queue, which needs one.",
        alterable=False,
        on_arrival=True,
        type="lastvalue",
    )
    max_keys: int = option(
        100_000, range(1, MAX_KEYS + 1), "Most keys of the queue; a message with one more is refused.", type="lastvalue"
    )

    @cached_property
    def wants(self) -> Wants:
        return Wants(self.groups != "none", self.key, self.duplicate_window > 0)

    @cached_property
    def unrestricted(self) -> bool:
        """True: arriving messages need no check."""
        return all(getattr(self, name) == option.default for name, option in _BY_FIELD.items() if option.on_arrival)


_BY_FIELD: dict[str, QueueOption] = {option.name: option.metadata["option"] for option in fields(Rules)}
_SNAKE = {re.sub("_([a-z])", lambda letter: letter[1].upper(), name): name for name in _BY_FIELD}
#: By public name, for AMQP, JSON and the command line.
OPTIONS: dict[str, QueueOption] = {name: _BY_FIELD[field_name] for name, field_name in _SNAKE.items()}


def described() -> str:
    lines = []
    for name, entry in OPTIONS.items():
        values = entry.allowed
        if isinstance(values, range):
            values = f"{values.start} to {values.stop - 1}"
        elif isinstance(values, tuple):
            values = ", ".join(values)
        if entry.default is not None:
            default = str(entry.default).lower() if isinstance(entry.default, bool) else entry.default
            values += f"; default: {default}"
        also = [f"--type {entry.type}"] * bool(entry.type) + ["fixed at the declaration"] * (not entry.alterable)
        lines.append(f"  {name}: {'; '.join([values, *also])}\n      {entry.help}")
    return "\n".join(lines)


def checked(type_: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that differ from their defaults, typed. Raises InvalidRequest."""
    if type_ not in TYPES:
        raise InvalidRequest(f"type {type_!r:.80} is not known; known are {', '.join(TYPES)}")
    known = [name for name, option in OPTIONS.items() if option.type in (None, type_)]
    values = {}
    for name, value in options.items():
        if name not in known:
            meant = suggestion(name, known)
            raise InvalidRequest(f"option {name!r:.80} is not known of type {type_}{meant}; known are {', '.join(known)}")
        values[name] = _value(name, OPTIONS[name], value)
    if type_ == "lastvalue" and values.get("key") is None:
        raise InvalidRequest(f"option 'key' is needed by a lastvalue queue: {OPTIONS['key'].allowed}")
    return {name: value for name, value in values.items() if value != OPTIONS[name].default}


def _value(name: str, option: QueueOption, value: Any) -> Any:
    """`value` may be text."""
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
        return text == "true" if option.allowed is _NO_YES else text
    if not isinstance(value, str) or not 0 < len(value) <= MAX_NAME or (name == "key" and not _KEY.fullmatch(value)):
        raise InvalidRequest(f"option {name!r}: {value!r:.80} is not {option.allowed}")
    return value


def check_names(options: Mapping[str, Any]) -> None:
    """Raise InvalidRequest if an option names a queue that cannot exist. `checked`, which also reads the journal, allows it."""
    for name, value in options.items():
        if name in OPTIONS and OPTIONS[name].allowed == QUEUE_NAME and value is not None and not is_node_name(value):
            raise InvalidRequest(f"option {name!r}: {value!r:.80} is not {QUEUE_NAME}, {NODE_NAME}")


def rules(type_: str, options: Mapping[str, Any]) -> Rules:
    values = {_SNAKE[name]: options.get(name, option.default) for name, option in OPTIONS.items()}
    if type_ != "priority":
        values["levels"] = 1
    if values["archive"] is None:
        values["archive"] = values["lifetime"] == "permanent"
    return Rules(**values)


def level_of_priority(levels: int) -> npt.NDArray[np.uint8]:
    """Return the level by stored priority (plus one; 0: not set), 0 the lowest, as in AMQP 0-10.

    Priorities up to 5 - ceil(N/2) are the lowest of N levels, those from 4 + floor(N/2) on are the highest.
    """
    if levels == 1:
        return np.zeros(PRIORITIES + 1, np.uint8)
    lowest = 5 - -(-levels // 2)
    by_priority = np.clip(np.arange(PRIORITIES) - lowest, 0, levels - 1)
    return np.concatenate([by_priority[[DEFAULT_PRIORITY]], by_priority]).astype(np.uint8)
