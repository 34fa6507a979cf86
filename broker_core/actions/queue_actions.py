"""Actions on queues: declare, alter, pause, delete; counts, options and messages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

from ..engine import commands as c
from ..engine.columns.limits import MAX_PURGED
from ..engine.model.batch_outcomes import shortened
from ..engine.model.options import OPTIONS, QueueOption
from . import message_rows
from .declaration import ActionCall, Reply, action
from .fields import About, Request
from .message_rows import Peek
from .move_actions import next_sequence
from .permissions import ANYONE, BROWSE, Need, admin, browse_needs, option_needs, visible
from .requests import Last, OfQueue, Reason
from .schemas import ANY, ARCHIVED, BOOL, COUNT, QUEUE, SECONDS, TEXT, component, list_of, map_of, nullable, object_of

Options = Annotated[dict[str, Any], About("options by name, as in docs/queues.md; null: the default")]


@dataclass(frozen=True, kw_only=True)
class _DeclareQueue(OfQueue):
    type: Annotated[str, About("fifo, priority or lastvalue")] = "fifo"
    options: Options = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class _DeleteQueue(OfQueue):
    force: Annotated[bool, About("whether to delete it with messages, consumers or leases")] = False
    if_empty: Annotated[bool, About("whether to delete it only if every message is settled")] = False
    if_unused: Annotated[bool, About("whether to delete it only without consumers and leases")] = False


@dataclass(frozen=True, kw_only=True)
class _AlterQueue(OfQueue):
    options: Options = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class _Discard(OfQueue):
    sequence: Annotated[int, About("sequence number of the message")]
    last: Last = None
    error: Reason = None


@action("queue.declare", admin("declare"), object_of(queue=TEXT, created=BOOL), needs=option_needs)
def _declare(call: ActionCall, request: _DeclareQueue) -> Reply:
    """Creates a queue. Does nothing if it exists with the same options."""
    created = call.service.submit(c.DeclareQueue(request.queue, request.type, request.options))
    return {"queue": request.queue, "created": created}


@action("queue.delete", admin("delete"), object_of(queue=TEXT, messages=COUNT))
def _delete(call: ActionCall, request: _DeleteQueue) -> Reply:
    """Deletes a queue."""
    lost = call.service.submit(c.DeleteQueue(request.queue, request.force, request.if_empty, request.if_unused))
    return {"queue": request.queue, "messages": lost}


@action("queue.list", ANYONE, object_of(queues=list_of(component("Queue"))), reads=True)
def _list(call: ActionCall, request: Request) -> Reply:
    """Lists the queues that the caller may see, with their counts."""
    return {"queues": visible(call.caller, call.service.submit(c.Stat()))}


@action(
    "queue.stat",
    Need(None, "seen", "see"),
    object_of(
        ("archive",),
        **QUEUE,
        archive=object_of(table=nullable(TEXT), diskFullIn=nullable(SECONDS), **ARCHIVED),
        deadLetters=map_of(COUNT),
        damaged=list_of(TEXT),
        oldest=nullable(component("Need")),
    ),
    reads=True,
)
def _stat(call: ActionCall, request: OfQueue) -> Reply:
    """Returns the counts and options of a queue."""
    service, queue = call.service, request.queue
    archive = {} if service.recorder is None else {"archive": service.recorder.of_queue(queue)}
    return {
        **service.submit(c.Stat(queue))[0],
        **archive,
        "deadLetters": service.counts.reasons(queue),
        "damaged": service.damaged(queue),
        "oldest": service.oldest(queue),
    }


@action(
    "queue.options",
    ANYONE,
    object_of(
        options=map_of(object_of(default=ANY, allowed=TEXT, alterable=BOOL, on_arrival=BOOL, help=TEXT, type=nullable(TEXT)))
    ),
    reads=True,
)
def _options(call: ActionCall, request: Request) -> Reply:
    """Describes the options of queues."""
    return {"options": {name: _described(option) for name, option in OPTIONS.items()}}


def _described(option: QueueOption) -> dict[str, Any]:
    allowed = option.allowed
    if isinstance(allowed, range):
        text = f"a whole number from {allowed.start} to {allowed.stop - 1}"
    else:
        text = allowed if isinstance(allowed, str) else ", ".join(allowed)
    return {**option._asdict(), "allowed": text}


@action(
    "queue.messages",
    BROWSE,
    object_of(("hints",), queue=TEXT, messages=list_of(component("Message")), next=nullable(COUNT), hints=list_of(TEXT)),
    needs=browse_needs,
    reads=True,
)
def _messages(call: ActionCall, request: Peek) -> Reply:
    """Returns messages of a queue for people, a few at a time, with long texts cut."""
    return message_rows.messages(call.browses, request)


@action("queue.alter", admin("alter"), object_of(queue=TEXT, altered=BOOL), needs=option_needs)
def _alter(call: ActionCall, request: _AlterQueue) -> Reply:
    """Changes options of a queue together."""
    return {"queue": request.queue, "altered": call.service.submit(c.AlterQueue(request.queue, request.options))}


@action("queue.pause", admin("pause"), object_of(queue=TEXT, changed=BOOL))
def _pause(call: ActionCall, request: OfQueue) -> Reply:
    """Stops deliveries of a queue, which still accepts messages."""
    return {"queue": request.queue, "changed": call.service.submit(c.PauseQueue(request.queue))}


@action("queue.resume", admin("resume"), object_of(queue=TEXT, changed=BOOL))
def _resume(call: ActionCall, request: OfQueue) -> Reply:
    """Resumes deliveries of a paused queue."""
    return {"queue": request.queue, "changed": call.service.submit(c.PauseQueue(request.queue, paused=False))}


@action("queue.purge", admin("purge"), object_of(purged=COUNT))
def _purge(call: ActionCall, request: OfQueue) -> Reply:
    """Removes all messages of a queue that have no holder."""
    end, purged, count = next_sequence(call.service, request.queue), 0, MAX_PURGED
    while count == MAX_PURGED:
        count = call.service.submit(c.Purge(request.queue, end=end, user=call.caller.known_user))
        purged += count
    return {"purged": purged}


@action("queue.discard", admin("discard messages of"), object_of(discarded=COUNT))
def _discard(call: ActionCall, request: _Discard) -> Reply:
    """Removes messages permanently, also from their holders."""
    last = request.sequence if request.last is None else request.last
    error = shortened(request.error) or "discarded by an operator"
    command = c.DiscardMessages(request.queue, request.sequence, last, error, call.caller.known_user)
    return {"discarded": call.service.submit(command)}
