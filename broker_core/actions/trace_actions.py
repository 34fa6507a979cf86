"""The action on the history of a message."""

from __future__ import annotations

from . import traces
from .declaration import ActionCall, Reply, action
from .permissions import BROWSE
from .schemas import BOOL, COUNT, TEXT, component, list_of, nullable, object_of
from .traces import Trace

_PLACE = object_of(queue=TEXT, sequence=COUNT, archive=BOOL, version=nullable(COUNT), file=COUNT, row=COUNT)


@action(
    "message.trace",
    BROWSE,
    object_of(
        ("hints",),
        messages=list_of(component("History")),
        searched=COUNT,
        next=nullable(_PLACE),
        hints=list_of(TEXT),
    ),
    reads=True,
)
def _trace(call: ActionCall, request: Trace) -> Reply:
    """Finds messages by id, in queues and the archive, with their events."""
    return traces.trace(call, request)
