"""The node `$cbs`: a client puts a token for each entity that it uses."""

from __future__ import annotations

from typing import Protocol

from ... import errors
from ...amqp import Condition
from ...security import shared_access
from ...security.shared_access import SharedAccessSignature
from ..conditions import Refusal
from ..context import PlaneContext
from . import entities, vendor
from .claims import MAX_CLAIMS, EntityClaim, EntityClaims
from .requests import ACCEPTED, NodeRequest, NodeResponse

MAX_REQUEST = 4 * shared_access.MAX_TOKEN  # octets: a client without a token can send requests


class TokenLogin(Protocol):
    """A connection that presents tokens."""

    claims: EntityClaims
    context: PlaneContext

    def log_in_by(self, token: SharedAccessSignature) -> None:
        """Take the user of a token. Raises Unauthenticated, Refusal."""

    def check_entity(self, path: tuple[str, ...]) -> None:
        """Refuse an entity that the user may not use, or that does not exist. Raises Refusal."""

    def record_refused_login(self, name: str, error: str) -> None:
        """`name`: the claimed user."""


def answer(peer: TokenLogin, request: NodeRequest) -> NodeResponse:
    """Raises Refusal, Unauthenticated."""
    operation = request.text("operation")
    if operation != vendor.PUT_TOKEN:
        raise Refusal(Condition.NOT_IMPLEMENTED, f"$cbs has the operation {vendor.PUT_TOKEN}, not {operation!r:.80}")
    try:
        path, token = _checked(peer, request)
    except errors.Unauthenticated as error:
        peer.record_refused_login(shared_access.claimed_user(request.message.value), str(error))
        raise
    peer.check_entity(path)  # here, since the Python SDK reports no refusal of a sender's attach
    if not peer.claims.add(EntityClaim(path, token)):
        raise Refusal(Condition.RESOURCE_LIMIT_EXCEEDED, f"{MAX_CLAIMS} tokens a connection are allowed")
    return NodeResponse(ACCEPTED, "Accepted")


def _checked(peer: TokenLogin, request: NodeRequest) -> tuple[tuple[str, ...], SharedAccessSignature]:
    """Return the path of the claimed entity and the token, after the login of its user. Raises Refusal, Unauthenticated."""
    text = request.message.value
    if not isinstance(text, str) or not text.startswith(shared_access.SCHEME):  # the Python SDK calls every token a JWT
        raise errors.Unauthenticated(
            "JWTs are not accepted, because Penstock has no directory that issues them: use a connection string with "
            "SharedAccessKeyName and SharedAccessKey (`penstock user key`)"
        )
    token = shared_access.parse(text)
    path, signed = entities.path_of(request.text("name")), entities.path_of(token.resource)
    if path[: len(signed)] != signed:
        raise errors.Unauthenticated(f"the token is for {'/'.join(signed)!r:.80}, not for {'/'.join(path)!r:.80}")
    if token.expiry * 1000 <= peer.context.wall_ms():
        raise errors.Unauthenticated("the token has expired: compare the clocks of client and broker")
    peer.log_in_by(token)
    return path, token
