"""Answers to the questions of the HTTP process, which decides nothing. A question has an `op`, and the client's address and
`authorization`: a token for a login of the page."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from .. import errors
from ..actions.actions import ACTIONS, Actions
from ..actions.callers import Caller, Callers
from ..actions.fields import from_query
from ..children.frames import ChildFrame
from ..security import ANONYMOUS, Access
from ..service.broker import BrokerService
from ..settings.keys import Settings
from . import openapi, statuses
from .health import Health
from .numbers import BrokerNumbers, Connected

_T = TypeVar("_T")
Answer = tuple[dict[str, Any], Sequence[bytes]]

log = logging.getLogger("penstock.http")


class Planes(NamedTuple):
    """The other planes of the broker."""

    beat: Callable[[Callable[[], None]], None] | None  # calls a function in the loop of the AMQP plane, if there is one
    connected: Connected


class _HttpError(Exception):
    def __init__(self, status: int, code: str, message: str, **more: str) -> None:
        super().__init__(message)
        self.status, self.code, self.more = status, code, more


class Answers:
    """Answers questions in any thread."""

    def __init__(self, settings: Settings, access: Access) -> None:
        self._settings, self._access = settings, access
        self._callers = Callers(access, encrypted=settings.http_tls, turned_on_by="http_tls")
        self._health = Health()
        self._numbers: BrokerNumbers | None = None
        self._actions: Actions | None = None
        self._ops: dict[str, Callable[[ChildFrame], Answer]] = {
            "live": self._live,
            "ready": self._ready,
            "openapi": lambda frame: ({"status": 200}, [openapi.document()]),
            "action": self._action,
            "login": self._login,
            "renew": self._renew,
            "admit": self._admit,
            "who": self._who,
            "counts": self._counts,
            "history": self._history,
        }

    def open(self, service: BrokerService, actions: Actions, planes: Planes) -> None:
        self._health.open(service, planes.beat)
        self._numbers = BrokerNumbers(service, self._settings, planes.connected)
        self._actions = actions
        self._callers.audit = service.audit.add

    def of(self, frame: ChildFrame) -> Answer:
        """Return a header and a body in JSON. The header has a `status`, and `open` if the broker has no users. Raises
        nothing."""
        header, attachments = self._of(frame)
        return {**header, "open": not self._access.enforced}, attachments

    def _of(self, frame: ChildFrame) -> Answer:
        try:
            return self._ops[frame.header["op"]](frame)
        except _HttpError as error:
            return {"status": error.status, **error.more}, [statuses.body_of(error.code, str(error))]
        except errors.PenstockError as error:
            return {"status": statuses.status_of(type(error))}, [statuses.body_of(error.code, str(error))]
        except RecursionError:
            return {"status": 400}, [statuses.body_of("INVALID_REQUEST", "the request is nested too deep")]
        except Exception:
            peer = frame.header.get("peer")
            log.exception("%s: %.100s failed", peer, frame.header.get("op"), extra={"peer": peer})
            return {"status": 500}, [statuses.body_of("ERROR", statuses.MISTAKE)]

    # --- health

    def _live(self, frame: ChildFrame) -> Answer:
        lives = self._health.lives()
        return _json({"live": lives}, status=200 if lives else 503)

    def _ready(self, frame: ChildFrame) -> Answer:
        reasons = self._health.reasons()
        body = {"ready": not reasons, "reasons": reasons, "warnings": self._health.warnings()}
        return _json(body, status=503 if reasons else 200)

    # --- actions

    def _action(self, frame: ChildFrame) -> Answer:
        name, method = frame.header["name"], frame.header["method"]
        if name not in ACTIONS:
            raise _HttpError(404, "UNKNOWN_ACTION", f"there is no action {name!r:.80}: GET /api/v1/openapi.json lists them")
        if method != "POST" and not ACTIONS[name].reads:
            raise _HttpError(405, "METHOD_NOT_ALLOWED", f"{name} may change something: it is a POST", allow="POST")
        caller = self._caller(frame)
        body = frame.attachments[0]
        if method != "POST":
            body = from_query(name, frame.header["query"], ACTIONS[name].operation.request)
        return {"status": 200}, [self._opened(self._actions).carry_out(caller, name, body)]

    # --- numbers

    def _counts(self, frame: ChildFrame) -> Answer:
        caller, numbers = self._caller(frame), self._opened(self._numbers)
        answer, table = numbers.queues(caller)
        return _json({**answer, "broker": numbers.broker(caller) if frame.header["broker"] else None}, table)

    def _history(self, frame: ChildFrame) -> Answer:
        return _json(*self._opened(self._numbers).history(self._caller(frame), frame.header["queues"]))

    # --- users

    def _login(self, frame: ChildFrame) -> Answer:
        caller = self._caller(frame)
        return _json(self._about(caller), token=self._token(caller.user))

    def _renew(self, frame: ChildFrame) -> Answer:
        return _json({}, token=self._token(self._caller(frame).user))

    def _admit(self, frame: ChildFrame) -> Answer:
        """Check credentials before the rest of a request is read. `user`: for whom it counts; None before a login."""
        caller = self._caller(frame)
        return _json({}, user=None if caller.enforced and caller.user == ANONYMOUS else caller.user)

    def _who(self, frame: ChildFrame) -> Answer:
        """Without a login the user is null, and the page shows its form."""
        if frame.header["authorization"] is None and self._access.enforced:
            return _json({"user": None, "rights": self._access.permissions_of(ANONYMOUS), "login": True})
        return _json(self._about(self._caller(frame)))

    def _about(self, caller: Caller) -> dict[str, Any]:
        return {"user": caller.user, "rights": self._access.permissions_of(caller.user), "login": caller.enforced}

    def _token(self, user: str) -> str | None:
        return None if user == ANONYMOUS else self._access.token(user)

    def _caller(self, frame: ChildFrame) -> Caller:
        return self._callers.of(frame.header["authorization"], frame.header["peer"], door=frame.header.get("door", ""))

    @staticmethod
    def _opened(part: _T | None) -> _T:
        if part is None:
            raise _HttpError(503, "RECOVERING", "the broker is recovering: try again in a while")
        return part


def _json(answer: dict[str, Any], *more: bytes, **header: Any) -> Answer:
    return {"status": 200, **header}, [json.dumps(answer).encode(), *more]
