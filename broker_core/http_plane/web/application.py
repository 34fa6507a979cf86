"""Paths and their answers. Credentials come in `Authorization` or in a session's cookie; the broker checks them."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from array import array
from http import HTTPStatus
from pathlib import Path
from typing import Any

from prometheus_client import ProcessCollector
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from . import bodies, metrics, replies
from .channel import BrokerGone, Busy, Channel, ChannelAnswer, Silent
from .connections import HttpConnection
from .counts import CountColumns, CountsText
from .credentials import RequestCredentials
from .files import Files
from .guards import SAFE, Guards
from .sessions import PageSession, Sessions

MAX_PLOTS = 1000  # queues in one request
LIVE_S = 5.0  # the broker is alive if it answers within
CSRF_HEADER = "x-csrf-token"
PAGE = Path(__file__).parents[1] / "page"

log = logging.getLogger("penstock.http")


def application(channel: Channel, hello: dict[str, Any]) -> ASGIApp:
    answering = _Application(channel, hello)
    files = Files(PAGE)
    routes = [
        Route("/health/live", answering.live),
        Route("/health/ready", answering.ready),
        Route("/api/v1/openapi.json", answering.openapi),
        Route("/api/v1/session", answering.session, methods=["GET", "POST", "DELETE"]),
        Route("/api/v1/counts", answering.counts),
        Route("/api/v1/history", answering.history),
        Route("/metrics", answering.metrics),
        Route("/api/v1/{action}", answering.action, methods=["GET", "POST"]),
        Route("/", files.reply),
        Route("/page/{name:path}", files.reply),
    ]
    starlette = Starlette(
        routes=routes,
        exception_handlers={
            replies.RequestRefused: lambda request, error: error.reply,
            HTTPException: _http_error,
            ClientDisconnect: lambda request, error: Response(status_code=400),
            Exception: lambda *_: replies.error(500, "ERROR", "internal error: a bug in Penstock. See the broker's log"),
        },
    )
    return Guards(starlette, {hello["host"], *hello["http_names"]})


def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    phrase = HTTPStatus(error.status_code).phrase
    text = phrase.lower()
    if error.status_code == HTTPStatus.NOT_FOUND:
        text = "the path does not exist: the API is below /api/v1, and /api/v1/openapi.json describes it"
    return replies.error(error.status_code, phrase.upper().replace(" ", "_"), text, error.headers)


class _Application:
    def __init__(self, channel: Channel, hello: dict[str, Any]) -> None:
        self._channel = channel
        self._secure: bool = hello["http_tls"]
        # Browsers send a cookie to every port of a host: each broker needs its own name.
        self._cookie = f"{'__Host-' if self._secure else ''}penstock-{hello['port']}"
        limits = ("http_sessions", "http_sessions_per_user", "http_session_idle_s", "http_session_s")
        self._sessions = Sessions(*(hello[name] for name in limits))
        self._credentials = RequestCredentials()
        self._openapi: bytes | None = None
        self._most_queues: int = hello["http_metrics_queues"]
        self._process, self._queue_text = ProcessCollector(pid=lambda: hello["broker"], registry=None), metrics.QueueText()
        self._counts_text = CountsText()
        self._rendering = asyncio.Semaphore(1)
        self._probes: dict[str, asyncio.Future[ChannelAnswer]] = {}  # under way

    # --- without a login

    async def live(self, request: Request) -> Response:
        try:
            answer = await self._probe("live")
        except Silent:
            return replies.json(b'{"live": false}', 503)
        return replies.json(answer.body, answer.status)

    async def ready(self, request: Request) -> Response:
        try:
            answer = await self._probe("ready")
        except Silent:
            raise replies.RequestRefused(replies.error(504, "SILENT", "the broker has not answered in time")) from None
        return replies.json(answer.body, answer.status)

    async def _probe(self, op: str) -> ChannelAnswer:
        """Any client may send probes, so simultaneous ones share one question to the broker."""
        asking = self._probes.get(op)
        if asking is None:
            asking = asyncio.ensure_future(self._channel.probe(op, LIVE_S))
            self._probes[op] = asking
            asking.add_done_callback(lambda done: (self._probes.pop(op), done.cancelled() or done.exception()))
        return await asyncio.shield(asking)

    async def openapi(self, request: Request) -> Response:
        if self._openapi is None:
            self._openapi = self._accepted(await self._ask(request, "openapi", user=None)).body
        return replies.json(self._openapi)

    # --- sessions

    async def session(self, request: Request) -> Response:
        name = request.cookies.get(self._cookie)
        if request.method == "POST":
            return await self._log_in(request, name)
        if request.method == "DELETE":
            await self._authorization(request)
            self._sessions.end(name)
            reply = Response(status_code=204)
            reply.delete_cookie(self._cookie, path="/", secure=self._secure, httponly=True, samesite="strict")
            return reply
        session = self._sessions.find(name)
        authorization = await self._authorization(request)
        user = self._user_of(request, authorization)
        answer = await self._ask(request, "who", user=user, authorization=authorization)
        if answer.status == 401 and session is not None:
            self._sessions.end(name)
            answer = await self._ask(request, "who", user=None, authorization=None)
            session = None
        answer = self._accepted(answer)
        return replies.json(json.dumps({**json.loads(answer.body), "csrf": session.csrf if session else None}).encode())

    async def _log_in(self, request: Request, before: str | None) -> Response:
        fields = _object(await bodies.read(request, is_user=False))
        user, password = fields.get("user"), fields.get("password")
        if not isinstance(user, str) or not isinstance(password, str) or ":" in user or fields.keys() - {"user", "password"}:
            return replies.error(400, "INVALID_REQUEST", "a login is a JSON object with user, which has no colon, and password")
        basic = base64.b64encode(f"{user}:{password}".encode(errors="replace")).decode()
        answer = self._accepted(await self._ask(request, "login", user=None, authorization=f"Basic {basic}"))
        self._sessions.end(before)
        login = json.loads(answer.body)
        token = answer.header["token"]
        if token is None:  # there are no users
            return replies.json(json.dumps({**login, "csrf": None}).encode())
        self._credentials.remember(f"Bearer {token}", login["user"])
        name, session = self._sessions.begin(login["user"], token)
        reply = replies.json(json.dumps({**login, "csrf": session.csrf}).encode())
        reply.set_cookie(self._cookie, name, path="/", secure=self._secure, httponly=True, samesite="strict")
        return reply

    # --- actions

    async def action(self, request: Request) -> Response:
        authorization, user = await self._admitted(request)
        body = await bodies.read(request, is_user=user is not None) if request.method == "POST" else b""
        asked: dict[str, Any] = {"name": request.path_params["action"], "query": request.query_params.multi_items()}
        asked |= {"method": request.method, "authorization": authorization}
        return self._reply(await self._ask(request, "action", body or b"{}", user=user, **asked))

    # --- numbers

    async def counts(self, request: Request) -> Response:
        answer = await self._numbers(request, "counts", broker=False)
        return replies.json(self._counts_text.form(CountColumns(json.loads(answer.body), answer.more[0])))

    async def history(self, request: Request) -> Response:
        answer = await self._numbers(request, "history", queues=request.query_params.getlist("queue")[:MAX_PLOTS])
        header = json.loads(answer.body)
        numbers, samples = array("I", answer.more[0]), header["samples"]
        rows = iter(range(0, len(numbers), samples or 1))
        plots = {
            queue: {column: numbers[(at := next(rows, 0)) : at + samples].tolist() for column in header["columns"]}
            for queue in header["queues"]
        }
        return replies.json(json.dumps({"time": header["time"], "period": header["period"], "queues": plots}).encode())

    async def metrics(self, request: Request) -> Response:
        authorization, user = await self._admitted(request)  # first: strangers do not wait in line with users
        async with self._rendering:  # one after another
            answer = self._accepted(await self._ask(request, "counts", user=user, authorization=authorization, broker=True))
            numbers = (json.loads(answer.body), answer.more[0], self._most_queues, self._process, self._queue_text)
            parts, kind = await asyncio.to_thread(metrics.text_of, *numbers, request.headers.get("accept", ""))
        return replies.Parts(parts, kind)

    async def _numbers(self, request: Request, op: str, **header: Any) -> ChannelAnswer:
        authorization, user = await self._admitted(request)
        return self._accepted(await self._ask(request, op, user=user, authorization=authorization, **header))

    # --- users

    async def _admitted(self, request: Request) -> tuple[str | None, str | None]:
        """Return the credentials that the broker accepts, and their user, for which the rest of the request counts; None before a
        login. Raises RequestRefused."""
        authorization = await self._authorization(request)
        user = self._user_of(request, authorization)
        if user is None:
            answer = self._accepted(await self._ask(request, "admit", user=None, authorization=authorization))
            user = answer.header["user"]
            if user is not None:
                self._credentials.remember(authorization, user)
        request.state.connection.assign(user)
        return authorization, user

    def _user_of(self, request: Request, authorization: str | None) -> str | None:
        """Return the user of credentials that the broker accepted before."""
        user = self._credentials.user_of(authorization)
        request.state.connection.assign(user)
        return user

    async def _authorization(self, request: Request) -> str | None:
        """Raises RequestRefused if a change has only a cookie."""
        header = request.headers.get("authorization")
        if header is not None:
            return header
        session = self._sessions.find(request.cookies.get(self._cookie))
        if session is None:
            return None
        if request.method not in SAFE and not session.proves(request.headers.get(CSRF_HEADER)):
            text = f"a change needs the header {CSRF_HEADER}: GET /api/v1/session returns its value"
            raise replies.RequestRefused(replies.error(403, "CSRF_TOKEN", text))
        await self._renew(session, request)
        return f"Bearer {session.token}"

    async def _renew(self, session: PageSession, request: Request) -> None:
        if self._sessions.wants_renewal(session):
            answer = await self._ask(request, "renew", user=session.user, authorization=f"Bearer {session.token}")
            if answer.status == 200 and answer.header["token"] is not None:
                session.token = answer.header["token"]
                self._credentials.remember(f"Bearer {session.token}", session.user)

    async def _ask(self, request: Request, op: str, body: bytes = b"", *, user: str | None, **header: Any) -> ChannelAnswer:
        """`user`: None before a login."""
        connection: HttpConnection = request.state.connection
        try:
            is_gone = connection.transport.is_closing
            answer = await self._channel.ask(op, body, user, is_gone, peer=connection.peer, door=_door(request), **header)
        except BrokerGone:
            raise ClientDisconnect from None
        except Busy:
            busy = "too many requests wait for the broker: try again"
            raise replies.RequestRefused(replies.error(503, "BUSY", busy, {"retry-after": "1"})) from None
        except Silent:
            silent = "the broker has not answered in time; the request may still be carried out"
            raise replies.RequestRefused(replies.error(504, "SILENT", silent)) from None
        if answer.status == 401:
            self._credentials.forget(header.get("authorization"))
        if not answer.header["open"]:
            self._credentials.forget(None)
        return answer

    def _accepted(self, answer: ChannelAnswer) -> ChannelAnswer:
        """Raises RequestRefused with the broker's error."""
        if answer.status != 200:
            raise replies.RequestRefused(self._reply(answer))
        return answer

    @staticmethod
    def _reply(answer: ChannelAnswer) -> Response:
        headers = {}
        if answer.status == 401:
            headers["www-authenticate"] = 'Bearer realm="penstock"'  # not Basic: a browser would open its own window
        if "allow" in answer.header:
            headers["allow"] = answer.header["allow"]
        return replies.json(answer.body, answer.status, headers)


def _door(request: Request) -> str:
    """Only browsers send this header, so the request comes from the page."""
    return "page" if "sec-fetch-site" in request.headers else "api"


def _object(body: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}
