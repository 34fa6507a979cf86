"""Rights that each request needs: one table. docs/security.md shows it; a test compares it with the requests there are."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from ..engine.model import exchange_options, options
from ..engine.model.state import BrokerState, StageParts
from ..security.rights import Right
from ..service.broker import BrokerService
from .callers import Caller
from .requests import stage_of, strings


class Need(NamedTuple):
    """A right, and on which queues: `queue` (the fields `queue` and `exchange` name them), `lease`, `stages` (theirs),
    `staged` (with those of their outcomes), `all` (there are and will be), or `seen` (any right will do)."""

    right: Right | None
    on: str | None
    what: str  # in the refusal: "user may not …"


NEEDS: dict[str, Need] = {
    "hello": Need(None, None, ""),
    "broker.status": Need(None, None, ""),
    "broker.journal": Need(None, None, ""),  # as queue.list
    "connection.list": Need(None, None, ""),  # shows one's own, and all to who has admin on everything
    "connection.close": Need(None, None, ""),  # the same
    "user.list": Need(Right.ADMIN, "all", "see the users of"),
    "queue.declare": Need(Right.ADMIN, "queue", "declare"),
    "queue.delete": Need(Right.ADMIN, "queue", "delete"),
    "queue.list": Need(None, None, ""),  # shows what its user may know of
    "queue.stat": Need(None, "seen", "see"),
    "archive.status": Need(None, None, ""),  # as queue.list
    "queue.options": Need(None, None, ""),
    "queue.messages": Need(Right.BROWSE, "queue", "browse"),  # as the ticket `browse`
    "queue.alter": Need(Right.ADMIN, "queue", "alter"),
    "queue.pause": Need(Right.ADMIN, "queue", "pause"),
    "queue.resume": Need(Right.ADMIN, "queue", "resume"),
    "queue.purge": Need(Right.ADMIN, "queue", "purge"),
    "queue.move": Need(Right.ADMIN, "queue", "move messages of"),  # and, as of a copy, FROM and INTO
    "queue.copy": Need(Right.ADMIN, "queue", "copy messages of"),
    "queue.discard": Need(Right.ADMIN, "queue", "discard messages of"),
    "queue.redrive": Need(Right.ADMIN, "queue", "redrive"),  # and ORIGINS
    "exchange.declare": Need(Right.ADMIN, "queue", "declare"),
    "exchange.delete": Need(Right.ADMIN, "queue", "delete"),
    "exchange.list": Need(None, None, ""),  # as queue.list
    "exchange.bind": Need(Right.ADMIN, "queue", "bind"),  # both of them
    "exchange.unbind": Need(Right.ADMIN, "queue", "unbind"),
    "stage.publish": Need(Right.SEND, "stages", "send to"),
    "stage.published": Need(None, None, ""),  # who writes under a key knows it
    "stage.list": Need(None, None, ""),  # as queue.list: the stages on queues of which its user may know
    "stage.discard": Need(Right.SEND, "stages", "send to"),
    "lease.advance": Need(Right.RECEIVE, "lease", "receive from"),
    "lease.plan": Need(Right.RECEIVE, "lease", "receive from"),
    "lease.settle": Need(Right.RECEIVE, "lease", "receive from"),
    "lease.renew": Need(Right.RECEIVE, "lease", "receive from"),
    "lease.list": Need(None, None, ""),  # as queue.list
    "lease.release": Need(Right.SETTLE, "lease", "settle for others on"),
    "lease.settleRow": Need(Right.SETTLE, "lease", "settle for others on"),
    "lease.setAside": Need(Right.RECEIVE, "lease", "receive from"),
    "lease.delete": Need(Right.SETTLE, "lease", "settle for others on"),
    "browse.plan": Need(Right.BROWSE, "queue", "browse"),  # as the ticket
    "archive.plan": Need(Right.BROWSE, "queue", "browse"),  # as the ticket `browse`
    "archive.files": Need(Right.REPLAY, "queue", "replay"),
    # tickets and puts, by their `op`
    "batch": Need(Right.RECEIVE, "lease", "receive from"),
    "map": Need(Right.RECEIVE, "lease", "receive from"),
    "browse": Need(Right.BROWSE, "queue", "browse"),
    "archive": Need(Right.REPLAY, "queue", "replay"),
    "enqueue": Need(Right.SEND, "queue", "send to"),
    "stage": Need(Right.SEND, "stages", "send to"),
    "settle": Need(Right.RECEIVE, "lease", "receive from"),
}
OUTCOMES = Need(Right.RECEIVE, "outcomes", "receive from")  # of a stage that says what becomes of messages of leases
OTHERS = Need(Right.ADMIN, "staged", "discard what another user has staged for")  # of who discards a write that is not its own
FROM = Need(Right.RECEIVE, "queue", "receive from")
INTO = Need(Right.SEND, "target", "send to")
ORIGINS = Need(Right.SEND, "origins", "send to")
NAMED = Need(Right.SEND, "options", "send to")  # of who declares an option that names a queue or exchange: messages arrive there
BOUND = Need(Right.SEND, "bound", "send to")  # of who binds a queue: messages arrive there
#: The options of queues and exchanges that name another one.
NODE_OPTIONS = (
    *(name for name, option in options.OPTIONS.items() if option.allowed == options.QUEUE_NAME),
    *(name for name, allowed in exchange_options.OPTIONS.items() if allowed is None),
)
_SHIFTS = ("queue.move", "queue.copy")
REPLAY = Need(Right.REPLAY, "queue", "replay")  # a browse of what is archived

Check = Callable[[], None]


class Permissions:
    """Holds a request against the table."""

    def __init__(self, service: BrokerService) -> None:
        self._service = service

    def check(self, caller: Caller, request: str, fields: dict[str, Any]) -> Check:
        """Raises NotAllowed or Unauthenticated; returns the same check, for a call that goes on and on.

        A queue that the caller may not use and one that is not there get the same answer, and so do leases and stages.
        """
        needs = [NEEDS[request]]
        if request in ("browse", "browse.plan", "archive.plan", "queue.messages"):
            states = strings("states", fields["states"])
            needs = [REPLAY] if "archived" in states else []
            if not states or set(states) - {"archived"}:
                needs.append(NEEDS[request])
        if "stage" in fields or "stages" in fields:
            stages = self._stages(fields)
            says = any(stage.outcomes for stage in stages)
            if says and "stages" in fields and not any(stage.parts for stage in stages):
                needs = []  # nothing is sent
            if says:
                needs.append(OUTCOMES)
            if request == "settle" and any(stage.parts for stage in stages):
                needs.append(NEEDS["stage"])
        if request == "stage.discard" and caller.enforced and not _is_own(caller, fields["write"]):
            needs = [OTHERS]
        if request in _SHIFTS:
            needs += [FROM, INTO]
        if request == "queue.redrive" and self._origins(fields):
            needs.append(ORIGINS)
        if request == "queue.redrive" and fields["selector"] is not None:  # what matches tells what is in the messages
            needs.append(NEEDS["browse"])
        if _named_by_options(fields):
            needs.append(NAMED)
        if request == "exchange.bind":
            needs.append(BOUND)
        held = [(need, *self._queues(caller, need, fields)) for need in needs if need.on is not None]

        def check() -> None:
            for need, queues, named in held:
                if not _may(caller, need, queues):
                    raise caller.refuse(f"{need.what} {named}", need.right)

        check()

        def again() -> None:
            caller.renewed()
            check()

        return again

    def _queues(self, caller: Caller, need: Need, fields: dict[str, Any]) -> tuple[list[str], str]:
        """The queues that a request is about, none where what it names is not there, and what a refusal calls them."""
        state = self._service.state
        named = [fields[what] for what in ("exchange", "queue") if fields.get(what) is not None]
        if need.on == "lease":
            lease = state.leases.get(fields["lease"])
            if lease is not None:
                named.append(lease.queue)
            return named, f"the queue of lease {fields['lease']!r:.300}"
        if need.on == "all":
            return [], "every queue"
        if need.on == "target":
            return [fields["target"]], f"queue {fields['target']!r:.300}"
        if need.on == "options":
            nodes = _named_by_options(fields)
            return nodes, " and ".join(f"{node!r:.300}" for node in nodes)
        if need.on == "bound":
            return [fields["queue"]], f"queue {fields['queue']!r:.300}"
        if need.on == "origins":
            return self._origins(fields), "the queues where its dead letters come from"
        if need.on == "outcomes":
            leases = {each.lease for stage in self._stages(fields) for each in list(stage.outcomes)}
            return sorted({state.leases[name].queue for name in leases if name in state.leases}), "the queues of these stages"
        if need.on == "staged":
            return queues_of(state, self._stages(fields)), "the queues of these stages"
        if need.on == "stages":
            found = self._stages(fields)
            # Who may send to an exchange may send to whatever it leads to.
            queues = {part.exchange or part.queue for stage in found for part in list(stage.parts)}
            return [*named, *sorted(queues - set(named))], "the queues of these stages"
        said = [f"{what} {fields[what]!r:.300}" for what in ("exchange", "queue") if fields.get(what) is not None]
        return named, " and ".join(said)

    def _origins(self, fields: dict[str, Any]) -> list[str]:
        """The queues that a redrive may send messages to."""
        queues = self._service.state.queues
        queue = queues.get(fields["queue"])
        return [] if queue is None else [name for name in list(queue.origins) if name in queues]

    def _stages(self, fields: dict[str, Any]) -> list[StageParts]:
        """Return those of the named stages that are there."""
        state = self._service.state
        if "stage" in fields:
            names = [stage_of(fields)]
        elif fields.get("write") is not None:
            names = state.stages_of(fields["write"])
        else:
            names = strings("stages", fields.get("stages", []))
        return [known for known in map(state.stages.get, names) if known is not None]


def queues_of(state: BrokerState, stages: Iterable[StageParts]) -> list[str]:
    """The queues and exchanges that stages hold messages for, and the queues of the leases that they hold outcomes of."""
    found: set[str] = set()
    for stage in stages:
        found.update(part.exchange or part.queue for part in list(stage.parts))
        found.update(state.leases[each.lease].queue for each in list(stage.outcomes) if each.lease in state.leases)
    return sorted(found)


def _is_own(caller: Caller, write: str | None) -> bool:
    return write is None or write.startswith(caller.own(""))


def _named_by_options(fields: dict[str, Any]) -> list[str]:
    """The queues and exchanges that the options of a declaration name."""
    given = fields.get("options") or {}
    return [str(given[name]) for name in NODE_OPTIONS if given.get(name) is not None]


def _may(caller: Caller, need: Need, queues: list[str]) -> bool:
    if need.right is None:
        return all(caller.sees(queue) for queue in queues)
    if need.on == "all":
        return caller.may_everywhere(need.right)
    if not queues:  # that it is not there is for those to know who might have had it
        return caller.may_somewhere(need.right)
    return all(caller.may(need.right, queue) for queue in queues)


def visible(caller: Caller, rows: Iterable[Any]) -> list[Any]:
    """Of stats, leases or stages, those on queues that the caller may know of, of the stages on all of theirs."""
    return [row for row in rows if all(map(caller.sees, row.get("queues") or [row.get("queue") or row.get("exchange", "")]))]
