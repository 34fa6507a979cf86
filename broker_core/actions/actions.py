"""Every action: a request's fields into commands, replies into answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from .. import __version__, errors
from ..engine import commands as c
from ..engine.columns.limits import SECOND
from ..engine.model.stages import attempt_name
from ..security.access import Access
from ..selectors import parse_optional
from ..service.broker import BrokerService
from ..service.copying import status_of
from . import browsing, malformed, namespaces, operating, shown
from .browses import Browses
from .callers import Caller
from .exchanges import exchange_actions
from .hinting import with_hints
from .leasing import advance
from .moves import move_actions
from .permissions import Permissions, visible
from .recorded import RecordedMessages
from .requests import ACTIONS, HEAD, key_of, numbers, parse, reader_of, strings

# Answers of which a caller gets what it may know of.
LISTS = {
    "queue.list": "queues",
    "broker.journal": "queues",
    "exchange.list": "exchanges",
    "lease.list": "leases",
    "stage.list": "stages",
    "archive.status": "queues",
}
CALLED = ("connection.list", "connection.close", "user.list", "lease.advance")  # these ask who calls
MAX_WAIT_MS = 100  # a long-poll: all sources of a Spark query are asked in one thread
MAX_LEASE_TIMEOUT_S = 10 * 365 * 86400


class Actions:
    """The actions of docs/protocols/flight.md on one broker; `url` is where it is reached."""

    def __init__(
        self, service: BrokerService, permissions: Permissions, recorded: RecordedMessages, access: Access | None = None
    ) -> None:
        self.url = ""
        self._access = access
        browses = Browses(service, recorded)
        self._service = service
        self._permissions = permissions
        self._actions: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "hello": self._hello,
            "broker.status": lambda f: status_of(service.journal, service.copier, service.alarms),
            "broker.journal": lambda f: service.cleaner.report(),
            "queue.declare": self._declare,
            "queue.delete": self._delete,
            "queue.list": lambda f: {"queues": self._service.submit(c.Stat())},
            "queue.stat": self._stat,
            "archive.status": self._archive,
            **move_actions(service, browses),
            **exchange_actions(service),
            **operating.operating_actions(service, access),
            "queue.messages": lambda f: shown.messages(browses, f),
            "browse.plan": lambda f: {"parts": browsing.plan(self._service, f)},
            "archive.plan": recorded.plan,
            "archive.files": recorded.files,
            "stage.publish": self._publish,
            "stage.published": self._published,
            "stage.discard": self._discard,
            "stage.list": lambda f: {"stages": self._service.submit(c.ListStages())},
            "lease.advance": self._advance,
            "lease.plan": self._plan,
            "lease.settle": self._settle,
            "lease.renew": self._renew,
            "lease.list": lambda f: {"leases": self._service.submit(c.ListLeases())},
            "lease.release": self._release,
            "lease.settleRow": self._settle_row,
            "lease.setAside": lambda f: malformed.asked(service, f),
            "lease.delete": self._delete_lease,
        }

    def carry_out(self, caller: Caller, name: str, body: bytes) -> bytes:
        """The answer to one action, both in JSON; raises PenstockError."""
        handler = self._actions.get(name)
        if handler is None:
            raise errors.InvalidRequest(f"unknown action {name!r:.80}; known are {', '.join(ACTIONS)}")
        fields = parse(name, body, ACTIONS[name])
        namespaces.resolve(self._service.state, caller, name, fields)
        self._permissions.check(caller, name, fields)
        if name == "stage.publish":
            fields["maker"] = c.Maker(caller.user, self._service.settings.max_publish_keys_per_user)
        if name == "lease.advance":
            self._service.create_on_use(fields["queue"], caller.user)
        if name in CALLED:
            fields["caller"] = caller
        answer = handler(fields)
        if name == "broker.status":
            answer |= operating.about(self._service, self._access, caller)
        if name in LISTS:
            answer[LISTS[name]] = visible(caller, answer[LISTS[name]])
        if name == "broker.journal" and answer["oldest"] is not None and not visible(caller, [answer["oldest"]]):
            answer["oldest"] = {field: answer["oldest"][field] for field in ("position", "time") if field in answer["oldest"]}
        if name == "broker.status":
            answer["alarms"] = [each for each in answer["alarms"] if each["queue"] is None or caller.sees(each["queue"])]
        if name == "lease.list":
            answer["leases"] = namespaces.named(caller, answer["leases"])
        return json.dumps(answer).encode()

    def _hello(self, f: dict[str, Any]) -> dict[str, Any]:
        return {
            "version": 1,
            "product": f"penstock/{__version__}",
            "broker": self._service.broker_id,
            "dataDir": "",  # connectors of before ask for it: they get messages, not files
            "flight": self.url,
        }

    def _stat(self, f: dict[str, Any]) -> dict[str, Any]:
        recorder, queue = self._service.recorder, f["queue"]
        archive = {} if recorder is None else {"archive": recorder.of_queue(queue)}
        return {
            **self._service.submit(c.Stat(queue))[0],
            **archive,
            "deadLetters": self._service.counts.reasons(queue),
            "damaged": self._service.damaged(queue),
            "oldest": self._service.oldest(queue),
        }

    def _archive(self, f: dict[str, Any]) -> dict[str, Any]:
        recorder = self._service.recorder
        return {"archive": "off", "queues": []} if recorder is None else recorder.status()

    def _declare(self, f: dict[str, Any]) -> dict[str, Any]:
        return {"queue": f["queue"], "created": self._service.submit(c.DeclareQueue(f["queue"], f["type"], f["options"]))}

    def _delete(self, f: dict[str, Any]) -> dict[str, Any]:
        lost = self._service.submit(c.DeleteQueue(f["queue"], f["force"], f["ifEmpty"], f["ifUnused"]))
        return {"queue": f["queue"], "messages": lost}

    def _publish(self, f: dict[str, Any]) -> dict[str, Any]:
        key = None if f["key"] is None else key_of("stage.publish", f["key"])
        _either("stage.publish", f)
        stages, base = strings("stages", f["stages"]), f["base"]
        attempts = [base + attempt for attempt in numbers("attempts", f["attempts"])]
        published, repeated = self._service.submit(
            c.Publish(stages, key, f["write"], attempts, reader_of(f), f["maker"], f["elsewhere"])
        )
        return {"published": published, "repeated": repeated}

    def _published(self, f: dict[str, Any]) -> dict[str, Any]:
        published, elsewhere = self._service.submit(c.IsPublished(key_of("stage.published", f)))
        return {"published": published, "elsewhere": elsewhere}

    def _discard(self, f: dict[str, Any]) -> dict[str, Any]:
        _either("stage.discard", f)
        stages, write = strings("stages", f["stages"]), f["write"]
        if f["attempts"]:
            stages, write = [attempt_name(write, attempt) for attempt in numbers("attempts", f["attempts"])], None
        return {"discarded": self._service.submit(c.Discard(stages, write))}

    def _enter(self, f: dict[str, Any]) -> c.EnterLease:
        timeout = f.get("leaseTimeout")
        if timeout is not None and not 0 < timeout <= MAX_LEASE_TIMEOUT_S:  # NaN fails too
            raise errors.InvalidRequest(
                f"field 'leaseTimeout' must be seconds above 0, at most {MAX_LEASE_TIMEOUT_S}, not {timeout}"
            )
        micros = None if timeout is None else int(timeout * SECOND)
        keep = "leaseTimeout" not in f  # `lease.advance` alone carries it
        chosen = parse_optional(f.get("selector"))
        selector = None if chosen is None else chosen.text
        named = (("finished", "sign"), ("after", "afterSign"), ("batch", "batchSign"))
        signs = tuple((f[number], f[sign]) for number, sign in named if f.get(sign) is not None)
        head = None
        if f["head"] is not None:
            said = parse("field 'head'", json.dumps(f["head"]).encode(), HEAD)
            head = (said["lease"], said["epoch"])
        fresh, waiting = f.get("fresh", False), f.get("waiting", False)
        return c.EnterLease(f["queue"], f["lease"], f["run"], f["epoch"], fresh, micros, keep, selector, signs, head, waiting)

    def _advance(self, f: dict[str, Any]) -> dict[str, Any]:
        enter = self._enter(f)
        finish = c.FinishBatches(f["lease"], f["finished"], True, f["exclude"], f["failOnDataLoss"])
        wanted = c.AcquireBatch(
            f["queue"],
            f["lease"],
            f["run"],
            f["finished"],
            f["messages"],
            f["bytes"],
            f["until"],
            f["exclude"],
            enter.timeout,
            f["failOnDataLoss"],
            enter.selector,
            alone=f["alone"],
        )
        caller: Caller = f["caller"]
        wait_s = min(f["waitMs"], MAX_WAIT_MS) / 1000
        found, more = advance(self._service, enter, finish, wanted, wait_s, lambda: caller.gone)
        answer: dict[str, Any] = {"epoch": found.epoch, "batch": found.batch, **({"more": True} if more else {})}
        answer |= {"sign": found.sign} if found.sign is not None else {}
        answer |= {"unread": found.unread} if found.unread else {}
        if f["measure"]:
            answer["messages"], answer["bytes"] = self._service.submit(c.MeasureBatch(f["lease"], found.batch))
        if f["plan"]:
            plan = _planning(f, f["finished"], found.batch)  # ahead: Spark writes the batch's offset after this answer
            answer["parts"] = [] if found.batch == f["finished"] else self._service.submit(plan)[1]
        if f["counts"]:
            answer["counts"] = self._backlog(f["queue"])
        selector = parse_optional(f["selector"])
        return answer if selector is None else with_hints(answer, self._service.matching.compared_hints(f["queue"], selector))

    def _backlog(self, queue: str) -> dict[str, int | float | None]:
        counts = self._service.counts.of_queue(queue)
        age = max(0, self._service.wall_ms() - counts["oldest"] // 1000) / 1000
        return {
            "available": counts["available"],
            "oldestSeconds": age if counts["oldest"] else None,
            "inFlight": counts["acquired"],
            "redelivered": counts["redelivered"],
            "deadLettered": counts["deadLettered"],
            "bytes": counts["bytes"],
        }

    def _plan(self, f: dict[str, Any]) -> dict[str, Any]:
        epoch, parts = self._service.submit(self._enter(f), replace(_planning(f, f["after"], f["batch"]), written=True))
        return {"epoch": epoch, "parts": parts}

    def _settle(self, f: dict[str, Any]) -> dict[str, Any]:
        finish = c.FinishBatches(f["lease"], f["finished"], strict=False, fail_on_data_loss=f["failOnDataLoss"])
        epoch, settled, unread = self._service.submit(self._enter(f), finish)
        return {"epoch": epoch, "settled": settled, "unread": unread}

    def _renew(self, f: dict[str, Any]) -> dict[str, Any]:
        self._service.submit(c.RenewLease(f["lease"], f["epoch"], f["run"]))
        return {"lease": f["lease"]}

    def _release(self, f: dict[str, Any]) -> dict[str, Any]:
        if f["how"] not in ("settle", "return"):
            raise errors.InvalidRequest("lease.release: field 'how' must be 'settle' or 'return'")
        return {"messages": self._service.submit(c.ReleaseLease(f["lease"], f["how"] == "settle"))}

    def _settle_row(self, f: dict[str, Any]) -> dict[str, Any]:
        self._service.submit(c.SettleRow(f["lease"], f["sequence"], f["outcome"], f["error"]))
        return {"sequence": f["sequence"]}

    def _delete_lease(self, f: dict[str, Any]) -> dict[str, Any]:
        self._service.submit(c.DeleteLease(f["lease"]))
        return {"lease": f["lease"]}


def _planning(f: dict[str, Any], after: int, batch: int) -> c.PlanBatches:
    return c.PlanBatches(f["lease"], after, batch, f["minPartitions"], f["maxMessages"], f["failOnDataLoss"])


def _either(what: str, f: dict[str, Any]) -> None:
    if f["write"] is not None and f["stages"]:
        raise errors.InvalidRequest(f"{what}: field 'stages' must be left out where there is a 'write'")
    if f["write"] is None and f.get("attempts"):
        raise errors.InvalidRequest(f"{what}: field 'attempts' must be left out where there is no 'write'")
