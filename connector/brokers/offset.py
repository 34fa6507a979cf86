"""The offset of a stream over several brokers: `{"v":6,"turn":t,"held":[ID…],"brokers":{ID:OFFSET…}}`.

Each broker has the offset that a query over it alone would have (`connector.offset`), under the id of the broker: urls may
change. One from which nothing was taken yet is not there. `held` names the brokers that held a batch when the offset was made.
`turn` counts the query's batches, and decides which broker is asked first. A checkpoint of a query over one broker goes on here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ...broker_core.errors import WrongOffset
from ..offset import BROKERS, INITIAL, REPLAYED

#: Where an offset over one broker names that broker.
_ID = ("broker", "spool")
_FIELDS = {"v", "turn", "held", "brokers"}


class BrokerOffsets(NamedTuple):
    """An offset of each broker, in JSON, by the broker's id."""

    turn: int
    held: tuple[str, ...]  # ids
    parts: Mapping[str, Mapping[str, Any]]

    def of(self, broker: str) -> Mapping[str, Any]:
        """Return the offset of one broker; the initial one if the query has not read from it yet."""
        return self.parts.get(broker, INITIAL.to_json())

    def to_json(self) -> dict[str, Any]:
        """Return the form that Spark keeps in its checkpoint."""
        parts = {broker: dict(self.parts[broker]) for broker in sorted(self.parts)}
        return {"v": BROKERS, "turn": self.turn, "held": sorted(self.held), "brokers": parts}


def parse(data: Mapping[str, Any]) -> BrokerOffsets:
    """Parse an offset that Spark hands back, also that of a query over one broker. Raises WrongOffset."""
    if not isinstance(data, Mapping) or "v" not in data:
        raise WrongOffset(f"{data!r} is not an offset of the format amqp: is this the checkpoint of another source?")
    if data["v"] == BROKERS:
        return _parse(data)
    if data == INITIAL.to_json():
        return BrokerOffsets(0, (), {})
    if data["v"] == REPLAYED:
        raise WrongOffset("the checkpoint belongs to a query with mode=replay, which takes nothing: start with a new checkpoint")
    broker = next((data[name] for name in _ID if isinstance(data.get(name), str)), None)
    if broker is None:
        raise WrongOffset(f"the offset {dict(data)!r} names no broker")
    return BrokerOffsets(0, (broker,), {broker: data})


def _parse(data: Mapping[str, Any]) -> BrokerOffsets:
    turn, held, parts = (data.get(name) for name in ("turn", "held", "brokers"))
    counts = isinstance(turn, int) and not isinstance(turn, bool) and turn >= 0
    names = isinstance(held, list) and all(isinstance(each, str) for each in held)
    if set(data) != _FIELDS or not counts or not names or not isinstance(parts, Mapping) or not parts:
        raise WrongOffset(f"the offset {dict(data)!r} does not have exactly the fields {', '.join(sorted(_FIELDS))}")
    if not set(held or ()) <= set(parts) or not all(isinstance(part, Mapping) for part in parts.values()):
        raise WrongOffset(f"the offset {dict(data)!r} does not have an offset of each broker that it names")
    return BrokerOffsets(turn or 0, tuple(held or ()), parts)
