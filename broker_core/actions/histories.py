"""The history of a message, from its stays in queues. Pure Python: the command line joins the stays of several brokers.

A *stay* is the time of a message in one queue. A dead letter, a redriven or a moved message has several. Stays with one message
id belong to one message.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

Stay = Mapping[str, Any]
Event = dict[str, Any]

#: These values identify a stay, which two brokers or two rows of the archive may have.
_KEY = ("broker", "queue", "queueId", "sequenceNumber", "settledTime")
_ENDS = {"replaced": "replaced by a newer message with its key", "dropped": "dropped by the full ring"}
_REDRIVEN = "redriven"  # a cause
#: Names of `Cause` with other words.
_FAILURES = {
    "modified by default": "modified when its link ended",
    "rejected by default": "rejected when its link ended",
    "link lost": "the connection was lost",
    "rollback": "the transaction was rolled back",
    "lease read": "the query ended its batch without success",
}


def histories(stays: Iterable[Stay]) -> list[dict[str, Any]]:
    """Return the messages by first arrival, each with its stays and events."""
    groups: dict[tuple[str, ...], list[Stay]] = {}
    for stay in _once(stays):
        groups.setdefault(_message_of(stay), []).append(stay)
    ordered = sorted(groups.values(), key=lambda group: str(group[0]["enqueuedTime"]))
    return [_history(group) for group in ordered]


def _once(stays: Iterable[Stay]) -> list[Stay]:
    """A message may be recorded while it is searched: then only the row of the archive remains."""
    unique: dict[tuple[Any, ...], Stay] = {}
    for stay in stays:
        key = tuple(stay.get(name) for name in _KEY)
        if key not in unique or stay["recorded"]:
            unique[key] = stay
    return sorted(
        unique.values(), key=lambda stay: (stay["enqueuedTime"], stay["sequenceNumber"], stay.get("settledTime") or "~")
    )


def _message_of(stay: Stay) -> tuple[str, ...]:
    """Return a key that all stays of a message share; without an id, the place in the first queue."""
    if "messageId" in stay:
        return ("id", stay["messageId"])
    if "payload" in stay:
        return ("payload", stay.get("broker", ""), stay["payload"])
    death = stay.get("death")
    queue, sequence = (death["queue"], death["sequence"]) if death else (stay["queue"], stay["sequenceNumber"])
    former = str(stay.get("queueId", "")) if queue == stay["queue"] else ""
    return ("place", stay.get("broker", ""), queue, former, str(sequence))


def _history(stays: Sequence[Stay]) -> dict[str, Any]:
    # Only the time of an arrival is exact. Others are rounded down to a millisecond, perhaps to before the arrival.
    timed: list[tuple[str, Event]] = []
    following = {id(stay): _next(stay, stays) for stay in stays}
    followers = {id(stay) for stay in following.values() if stay is not None}
    ends: dict[tuple[Any, ...], str] = {}  # by place, the last one
    for stay in stays:
        moment = stay["enqueuedTime"]
        place = (stay.get("broker"), stay["queue"], stay.get("queueId"), stay["sequenceNumber"])
        if place not in ends and id(stay) not in followers:
            timed.append((moment, _event(stay, moment, "arrived", _arrival(stay))))
        redrive = _redrive(stay)
        if redrive is not None or place in ends:  # a dead letter that stayed in its queue
            time, by = (None, "") if redrive is None else (redrive["time"], _by(redrive.get("holder")))
            moment = max(moment, time or ends[place])
            timed.append((moment, _event(stay, time, "redriven", f"redriven in {_queue(stay)}{by}")))
        for event in _between(stay):
            moment = max(moment, event["time"] or moment)
            timed.append((moment, event))
        end = stay.get("settledTime")
        if end is not None:
            moment = max(moment, end)
            timed.append((moment, _end(stay, following[id(stay)])))
            ends[place] = end
        if stay["recorded"]:
            timed.append((moment, _event(stay, None, "recorded", f"recorded in the archive of {_queue(stay)}")))
    timed.sort(key=lambda entry: entry[0])
    live = [event for stay in stays if stay["state"] != "archived" for event in [_now(stay)]]
    events = [event for _, event in timed] + live
    first = stays[0]
    ids = {name: first[name] for name in ("messageId", "correlationId", "subject") if name in first}
    where = "; ".join(event["text"] for event in live) or _last_end(timed)
    return {**ids, "where": where, "events": events, "stays": [dict(stay) for stay in stays]}


def _last_end(timed: Sequence[tuple[str, Event]]) -> str:
    return next((event["text"] for _, event in reversed(timed) if event["event"] not in ("recorded", "arrived")), "")


def _event(stay: Stay, time: str | None, event: str, text: str) -> Event:
    optional = {name: stay[name] for name in ("broker", "deleted") if name in stay}
    place = {"queue": stay["queue"], "sequenceNumber": stay["sequenceNumber"]}
    return {"time": time, "event": event, **place, "text": text, **optional}


def _arrival(stay: Stay) -> str:
    text = f"arrived in {_place(stay)}"
    death = stay.get("death")
    if death and (death["queue"], death["sequence"]) != (stay["queue"], stay["sequenceNumber"]):  # else it stayed in its queue
        return f"{text}, as a dead letter of {death['queue']} (sequence number {death['sequence']:,}): {_reason(death)}"
    return f"{text}, sent by {stay['userId']}" if "userId" in stay else text


def _queue(stay: Stay) -> str:
    return f"{stay['queue']} (deleted)" if stay.get("deleted") else str(stay["queue"])


def _place(stay: Stay) -> str:
    return f"{stay['queue']} ({'deleted, ' if stay.get('deleted') else ''}sequence number {stay['sequenceNumber']:,})"


def _reason(death: Mapping[str, Any]) -> str:
    return f"{death['reason']}: {death['error']}" if death.get("error") else str(death["reason"])


def _between(stay: Stay) -> list[Event]:
    events = []
    for batch in stay.get("batches", ()):
        reads = " and ".join(f"batch {read['batch']:,} of query {read['query']}" for read in batch["reads"])
        text = f"in batch {batch['batch']:,} of lease {batch['lease']}, {batch['state']}"
        events.append(_event(stay, None, "read", f"{text}: read in {reads}" if reads else text))
    failures = [failure for failure in stay.get("failures", ()) if failure["cause"] != _REDRIVEN]
    others = stay.get("deliveryCount", 0) - len(failures)
    if others > 0:
        events.append(_event(stay, None, "failed", _others(stay, others, are_all=not failures)))
    return [*events, *(_event(stay, failure["time"], "failed", _failed(stay, failure)) for failure in failures)]


def _others(stay: Stay, count: int, *, are_all: bool) -> str:
    """Describe failed deliveries of which only the number is known."""
    if are_all:
        return f"delivered from {_queue(stay)} {'once' if count == 1 else f'{count:,} times'} without success"
    return f"{count:,} other {'delivery' if count == 1 else 'deliveries'} from {_queue(stay)} without success"


def _failed(stay: Stay, failure: Mapping[str, Any]) -> str:
    taker = f" to {failure['holder']}" if "holder" in failure else ""
    error = f": {failure['error']}" if "error" in failure else ""
    return f"delivered from {_queue(stay)}{taker} without success: {_FAILURES.get(failure['cause'], failure['cause'])}{error}"


def _redrive(stay: Stay) -> Mapping[str, Any] | None:
    """Return the last redrive in the same queue, unless several deliveries have failed since."""
    return next((failure for failure in stay.get("failures", ()) if failure["cause"] == _REDRIVEN), None)


def _by(name: str | None) -> str:
    return "" if name is None else f" by {name}"


def _next(stay: Stay, stays: Iterable[Stay]) -> Stay | None:
    """Return the stay in another queue that began when this one ended, a time that is rounded down to a millisecond."""
    if stay.get("outcome") not in ("dead-lettered", "moved"):
        return None
    end = stay["settledTime"][:23]
    for later in stays:
        is_elsewhere = later["queue"] != stay["queue"] and later.get("broker") == stay.get("broker")
        if is_elsewhere and later["enqueuedTime"] >= stay["settledTime"] and _milliseconds(later["enqueuedTime"], end) <= 1:
            return later
    return None


def _milliseconds(later: str, earlier: str) -> float:
    return (datetime.fromisoformat(later[:23]) - datetime.fromisoformat(earlier)).total_seconds() * 1000


def _end(stay: Stay, following: Stay | None) -> Event:
    outcome = stay.get("outcome", "")
    holder = _by(stay.get("holder"))
    error = f": {stay['error']}" if "error" in stay else ""
    kind = "settled"
    if outcome == "dead-lettered":
        kind = outcome
        target = f"to {_place(following)}" if following else f"in {_queue(stay)}"
        death = (following or stay).get("death")
        text = f"dead-lettered {target}: {_reason(death)}" if death else f"dead-lettered {target}{error}"
        text += f"; last delivered to {stay['holder']}" if holder else ""
    elif outcome == "moved":
        is_back = following is not None and following["queue"] == (stay.get("death") or {}).get("queue")
        kind = "redriven" if is_back else outcome
        text = f"{kind} from {_queue(stay)}" + (f" to {_place(following)}" if following else "") + holder
    else:
        end = outcome if error else _ENDS.get(outcome, outcome)  # an edited message has an error text that names the copy
        text = f"settled in {_queue(stay)} as {end}{holder}{error}"
    return _event(stay, stay["settledTime"], kind, text)


def _now(stay: Stay) -> Event:
    place, state = _place(stay), stay["state"]
    if state == "acquired":
        text = f"held in {place}{_by(stay.get('holder'))}"
    elif state == "delayed":
        text = f"delayed in {place}" + (f" until {stay['due']}" if "due" in stay else "")
    elif state == "deferred":
        text = f"deferred in {place}, until a consumer asks for it"
    else:
        text = f"waits in {place}"
    return _event(stay, None, state, text)
