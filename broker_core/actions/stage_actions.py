"""Actions on staged writes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

from .. import errors
from ..engine import commands as c
from ..engine.commands import PublishKey
from ..engine.model.stages import attempt_name
from .declaration import ActionCall, Reply, action
from .fields import About, Request, parse_fields
from .permissions import ANYONE, STAGE, discard_needs, stage_needs, visible
from .requests import AttemptNumbers, StageNames, WriteId, spark_batch
from .schemas import BOOL, COUNT, SECONDS, TEXT, list_of, nullable, object_of


@dataclass(frozen=True, kw_only=True)
class _Publish(Request):
    stages: StageNames = field(default_factory=list)
    write: WriteId = None
    base: Annotated[int, About("number from which the attempts count", least=0)] = 0
    attempts: AttemptNumbers = field(default_factory=list)
    key: Annotated[
        dict[str, Any] | None, About("kind, id and number of the publish, which identify a repetition; null: none")
    ] = None
    elsewhere: Annotated[str | None, About("parts of the write on other brokers, kept with the key; null: none")] = None
    query: Annotated[str | None, About("id of the Spark query, with queryBatch")] = None
    query_batch: Annotated[int | None, About("number of the batch of that query")] = None


@dataclass(frozen=True, kw_only=True)
class _PublishKey(Request):
    kind: Annotated[str, About("stream, or txn")]
    id: Annotated[str, About("id of the stream or transaction that publishes")]
    number: Annotated[int, About("number of the publish")]

    def key(self, request: str) -> PublishKey:
        if self.kind not in ("stream", "txn"):
            raise errors.InvalidRequest(f"{request}: key.kind must be 'stream' or 'txn'")
        return PublishKey(self.kind, self.id, self.number)


@dataclass(frozen=True, kw_only=True)
class _DiscardStages(Request):
    stages: StageNames = field(default_factory=list)
    write: WriteId = None
    attempts: AttemptNumbers = field(default_factory=list)


@action("stage.publish", STAGE, object_of(published=COUNT, repeated=BOOL), needs=stage_needs)
def _publish(call: ActionCall, request: _Publish) -> Reply:
    """Publishes staged messages together."""
    key = None if request.key is None else parse_fields("stage.publish: key", request.key, _PublishKey).key("stage.publish")
    _check_stages("stage.publish", request)
    published, repeated = call.service.submit(
        c.Publish(
            stages=request.stages,
            key=key,
            write=request.write,
            attempts=[request.base + attempt for attempt in request.attempts],
            reader=spark_batch(request),
            maker=c.Maker(call.caller.user, call.service.settings.max_publish_keys_per_user),
            elsewhere=request.elsewhere,
        )
    )
    return {"published": published, "repeated": repeated}


@action("stage.published", ANYONE, object_of(published=BOOL, elsewhere=nullable(TEXT)), reads=True)
def _published(call: ActionCall, request: _PublishKey) -> Reply:
    """Returns whether a publish with this key would be a repetition."""
    published, elsewhere = call.service.submit(c.IsPublished(request.key("stage.published")))
    return {"published": published, "elsewhere": elsewhere}


@action("stage.discard", STAGE, object_of(discarded=COUNT), needs=discard_needs)
def _discard(call: ActionCall, request: _DiscardStages) -> Reply:
    """Drops staged messages."""
    _check_stages("stage.discard", request)
    stages, write = request.stages, request.write
    if write is not None and request.attempts:
        stages, write = [attempt_name(write, attempt) for attempt in request.attempts], None
    return {"discarded": call.service.submit(c.Discard(stages, write))}


@action(
    "stage.list",
    ANYONE,
    object_of(
        stages=list_of(
            object_of(stage=TEXT, queues=list_of(TEXT), attempts=COUNT, messages=COUNT, bytes=COUNT, age=nullable(SECONDS))
        )
    ),
    reads=True,
)
def _list(call: ActionCall, request: Request) -> Reply:
    """Lists staged writes that are not published."""
    return {"stages": visible(call.caller, call.service.submit(c.ListStages()))}


def _check_stages(name: str, request: _Publish | _DiscardStages) -> None:
    if request.write is not None and request.stages:
        raise errors.InvalidRequest(f"{name}: field 'stages' must be left out where there is a 'write'")
    if request.write is None and request.attempts:
        raise errors.InvalidRequest(f"{name}: field 'attempts' must be left out where there is no 'write'")
