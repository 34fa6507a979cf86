"""Actions on the archive, and on browses."""

from __future__ import annotations

from . import browse_plans
from .declaration import ActionCall, Reply, action
from .fields import Request
from .permissions import ANYONE, BROWSE, REPLAY, browse_needs, visible
from .requests import ArchiveFiles, PlanBrowse
from .schemas import ARCHIVED, BOOL, COUNT, PARTS, SECONDS, TEXT, list_of, nullable, object_of, properties


@action(
    "archive.status",
    ANYONE,
    object_of(
        ("retention", "process", "unrecorded", "unrecordedBytes", "lag", "behind", "passes", "recorded", "diskFullIn"),
        archive=TEXT,
        retention=nullable(SECONDS),
        process=nullable(COUNT),
        **properties(COUNT, "unrecorded", "unrecordedBytes"),
        lag=SECONDS,
        behind=BOOL,
        **properties(COUNT, "passes", "recorded"),
        diskFullIn=nullable(SECONDS),
        queues=list_of(object_of(queue=TEXT, id=COUNT, deleted=BOOL, unrecorded=COUNT, unrecordedBytes=COUNT, **ARCHIVED)),
    ),
    reads=True,
)
def _status(call: ActionCall, request: Request) -> Reply:
    """Reports the messages that wait to be recorded in the archive, and errors."""
    recorder = call.service.recorder
    if recorder is None:
        return {"archive": "off", "queues": []}
    status = recorder.status()
    return {**status, "queues": visible(call.caller, status["queues"])}


@action("browse.plan", BROWSE, object_of(parts=PARTS), needs=browse_needs, reads=True)
def _plan_browse(call: ActionCall, request: PlanBrowse) -> Reply:
    """Divides a browse of a queue into parts with about the same number of messages."""
    return {"parts": browse_plans.plan(call.service, request)}


@action(
    "archive.plan",
    BROWSE,
    object_of(
        parts=PARTS,
        table=nullable(
            object_of(url=TEXT, broker=TEXT, queueId=COUNT, lineages=list_of({"type": ["string", "integer"]}), version=COUNT)
        ),
    ),
    needs=browse_needs,
    reads=True,
)
def _plan(call: ActionCall, request: PlanBrowse) -> Reply:
    """Plans a browse for a client that reads the archive's table on its own."""
    return call.archive.plan(request)


@action(
    "archive.files",
    REPLAY,
    object_of(version=nullable(COUNT), files=list_of(list_of({"type": ["string", "integer", "null"]})), outdated=BOOL),
    reads=True,
)
def _files(call: ActionCall, request: ArchiveFiles) -> Reply:
    """Lists the files of the archive's table that may have matching messages."""
    return call.archive.files(request)
