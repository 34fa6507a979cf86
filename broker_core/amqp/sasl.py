"""SASL (5.3): both sides of ANONYMOUS, PLAIN, EXTERNAL and SCRAM-SHA-256; the client also has SCRAM-SHA-512.

The server also has MSSBCBS, ANONYMOUS for clients of Azure Service Bus: they present tokens after the login.

A server gives a wrong password, an unknown user and a malformed response the same answer, after the same work. An unknown user is
checked against credentials derived from a secret, so that salt and effort look real. Only the caller gets the reason. A second
attempt needs a new connection (5.3.2).
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from . import scram
from .composites import Composite
from .errors import Condition, LocalProtocolError, RemoteProtocolError
from .performatives import SASL_AUTH, SASL_OK, SASL_SYS_TEMP, SaslChallenge, SaslInit, SaslMechanisms, SaslOutcome, SaslResponse
from .scram import ScramCredentials, ScramError

ANONYMOUS, PLAIN, EXTERNAL, SCRAM_SHA_256 = "ANONYMOUS", "PLAIN", "EXTERNAL", "SCRAM-SHA-256"
SCRAM_SHA_512 = "SCRAM-SHA-512"
MSSBCBS = "MSSBCBS"
_NAMELESS = (ANONYMOUS, MSSBCBS)
_DIGESTS = {SCRAM_SHA_256: scram.SHA_256, SCRAM_SHA_512: scram.SHA_512}
NONCE_OCTETS = 18

Lookup = Callable[[str], ScramCredentials | None]
Verify = Callable[[str, str], bool]
Random = Callable[[int], bytes]


class _WrongLogin(Exception):
    """Wrong credentials. The text is for the caller's log."""


@dataclass
class SaslServer:
    """The server's side of one exchange.

    `mechanisms` are offered, best first. `verify` checks a password in clear text, by default with `lookup`. `external` is the
    name that the transport has proved, such as a TLS certificate's. `secret` stays the same for the life of a server. After the
    exchange `user` is the authenticated name (`anonymous` for ANONYMOUS), or `reason` why it failed. `claimed` is the tried name.
    """

    mechanisms: Sequence[str]
    lookup: Lookup = field(default=lambda name: None)
    verify: Verify | None = None
    external: str | None = None
    random: Random | None = None
    secret: bytes = field(default=b"", repr=False)
    iterations: int = scram.MIN_ITERATIONS
    user: str | None = field(default=None, init=False)
    mechanism: str | None = field(default=None, init=False)
    claimed: str | None = field(default=None, init=False)
    reason: str | None = field(default=None, init=False)
    code: int = field(default=SASL_OK, init=False)
    done: bool = field(default=False, init=False)
    _scram: tuple[str, ScramCredentials, bool, str, str, str] | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        unknown = set(self.mechanisms) - {*_NAMELESS, PLAIN, EXTERNAL, SCRAM_SHA_256}
        if unknown or not self.mechanisms:
            raise LocalProtocolError(f"mechanisms that do not exist here: {', '.join(sorted(unknown)) or 'none given'}")
        if SCRAM_SHA_256 in self.mechanisms and self.random is None:
            raise LocalProtocolError("SCRAM-SHA-256 needs random octets")

    def start(self) -> list[Composite]:
        return [SaslMechanisms(sasl_server_mechanisms=tuple(self.mechanisms))]

    def receive(self, body: Composite) -> list[Composite]:
        if self.done or isinstance(body, SaslInit) == (self.mechanism is not None):
            raise RemoteProtocolError(Condition.NOT_ALLOWED, f"{body.SYMBOL} out of place")
        try:
            if isinstance(body, SaslInit):
                return self._begin(body)
            if isinstance(body, SaslResponse):
                return self._continue(body.response)
        except (_WrongLogin, ScramError) as error:
            return self._end(SASL_AUTH, str(error))
        raise RemoteProtocolError(Condition.NOT_ALLOWED, f"{body.SYMBOL} is not a client's to send")

    def _begin(self, init: SaslInit) -> list[Composite]:
        self.mechanism = init.mechanism
        if init.mechanism not in self.mechanisms:
            raise _WrongLogin(f"the mechanism {init.mechanism} was not offered")
        if init.initial_response is None and init.mechanism not in _NAMELESS:
            return [SaslChallenge(challenge=b"")]
        return self._continue(init.initial_response or b"")

    def _continue(self, response: bytes) -> list[Composite]:
        if self.mechanism == SCRAM_SHA_256:
            return self._scram_first(response) if self._scram is None else self._scram_final(response)
        if self.mechanism in _NAMELESS:
            self.user = "anonymous"
        elif self.mechanism == EXTERNAL:
            self.user = self._external(response)
        else:
            self.user = self._plain(response)
        return self._end(SASL_OK)

    def _end(self, code: int, reason: str | None = None, data: bytes | None = None) -> list[Composite]:
        self.done, self.code, self.reason = True, code, reason
        if code != SASL_OK:
            self.user = None
        return [SaslOutcome(code=code, additional_data=data)]

    def _external(self, response: bytes) -> str:
        if self.external is None:
            raise _WrongLogin("the transport has proved no name")
        if response and response != self.external.encode():
            raise _WrongLogin("EXTERNAL for another authorization identity")
        return self.external

    def _plain(self, response: bytes) -> str:
        parts = response.split(b"\0")
        try:
            authorize, name, password = (part.decode("utf-8") for part in parts)
        except ValueError:  # do the same work as for a valid response
            self._is_right("", "")
            raise _WrongLogin("a malformed PLAIN response") from None
        self.claimed = name
        if not self._is_right(name, password):
            raise _WrongLogin(f"wrong name or password for {name!r}")
        if authorize not in ("", name):
            raise _WrongLogin(f"{name!r} acting as {authorize!r}")
        return name

    def _is_right(self, name: str, password: str) -> bool:
        if self.verify is not None:
            return self.verify(name, password)
        credentials, known = self._find(name)
        return scram.check_password(credentials, password) and known

    def _find(self, name: str) -> tuple[ScramCredentials, bool]:
        credentials = self.lookup(name)
        salt = hmac.digest(self.secret, b"salt" + name.encode("utf-8", "surrogatepass"), "sha256")[:16]
        key = hmac.digest(self.secret, b"key" + name.encode("utf-8", "surrogatepass"), "sha256")
        return (ScramCredentials(salt, self.iterations, key, key), False) if credentials is None else (credentials, True)

    def _scram_first(self, response: bytes) -> list[Composite]:
        try:
            flag, authorize, first = response.decode("utf-8").split(",", 2)
        except ValueError:
            raise ScramError("a malformed first message") from None
        if flag not in ("n", "y") or (authorize and not authorize.startswith("a=")):
            raise ScramError("channel binding, or a malformed header")
        values = scram.attributes(first.encode())
        if list(values)[:2] != ["n", "r"] or not values["r"]:
            raise ScramError("a first message without name or nonce")
        name = self.claimed = scram.unescape_name(values["n"])
        credentials, known = self._find(name)
        if authorize and scram.unescape_name(authorize[2:]) != name:
            known = False
        assert self.random is not None
        nonce = values["r"] + scram.base64_text(self.random(NONCE_OCTETS))
        server_first = f"r={nonce},s={scram.base64_text(credentials.salt)},i={credentials.iterations}"
        header = scram.base64_text(f"{flag},{authorize},".encode())
        self._scram = (name, credentials, known, nonce, header, f"{first},{server_first}")
        return [SaslChallenge(challenge=server_first.encode())]

    def _scram_final(self, response: bytes) -> list[Composite]:
        assert self._scram is not None
        name, credentials, known, nonce, header, so_far = self._scram
        values = scram.attributes(response)
        if list(values)[:2] != ["c", "r"] or list(values)[-1] != "p":
            raise ScramError("a malformed final message")
        without_proof = response.decode()[: response.decode().rindex(",p=")]
        message = f"{so_far},{without_proof}".encode()
        proved = scram.check_proof(credentials, scram.unbase64(values["p"]), message)
        same = hmac.compare_digest(values["r"].encode(), nonce.encode()) and values["c"] == header
        now = self._find(name)  # again: too many other attempts may have locked the name meanwhile
        if not (proved and same and known and now == (credentials, True)):
            raise _WrongLogin(f"wrong name or password for {name!r}")
        self.user = name
        verifier = "v=" + scram.base64_text(scram.signed(credentials, message))
        return self._end(SASL_OK, data=verifier.encode())


@dataclass
class SaslClient:
    """The client's side of one exchange. It takes the first of `prefer` that the server offers and that it can use.

    `external` allows EXTERNAL. Afterwards `code` is the server's outcome (0 is success). A SCRAM server that cannot prove itself
    is a RemoteProtocolError.
    """

    user: str | None = None
    password: str | None = field(default=None, repr=False)
    external: bool = False
    hostname: str | None = None
    prefer: Sequence[str] = (EXTERNAL, SCRAM_SHA_512, SCRAM_SHA_256, PLAIN, ANONYMOUS)
    random: Random | None = None
    mechanism: str | None = field(default=None, init=False)
    code: int = field(default=SASL_AUTH, init=False)
    reason: str | None = field(default=None, init=False)
    done: bool = field(default=False, init=False)
    _first: str = field(default="", init=False, repr=False)
    _verifier: bytes | None = field(default=None, init=False, repr=False)
    _verified: bool = field(default=False, init=False, repr=False)

    def start(self) -> list[Composite]:
        return []

    def receive(self, body: Composite) -> list[Composite]:
        if self.done or isinstance(body, SaslMechanisms) == (self.mechanism is not None):
            raise RemoteProtocolError(Condition.NOT_ALLOWED, f"{body.SYMBOL} out of place")
        if isinstance(body, SaslMechanisms):
            return self._choose(body)
        try:
            if isinstance(body, SaslChallenge):
                return [SaslResponse(response=self._answer(body.challenge))]
            if isinstance(body, SaslOutcome):
                return self._finish(body)
        except ScramError as error:
            raise RemoteProtocolError(Condition.UNAUTHORIZED_ACCESS, f"SCRAM: {error}") from None
        raise RemoteProtocolError(Condition.NOT_ALLOWED, f"{body.SYMBOL} is not a server's to send")

    def _choose(self, offered: SaslMechanisms) -> list[Composite]:
        able = {ANONYMOUS: True, EXTERNAL: self.external, PLAIN: self.password is not None}
        able |= dict.fromkeys(_DIGESTS, self.password is not None and self.random is not None)
        for mechanism in self.prefer:
            if mechanism in offered.sasl_server_mechanisms and able.get(mechanism):
                self.mechanism = mechanism
                return [SaslInit(mechanism=mechanism, initial_response=self._initial(), hostname=self.hostname)]
        raise RemoteProtocolError(
            Condition.UNAUTHORIZED_ACCESS, f"none of {', '.join(offered.sasl_server_mechanisms)} can be used"
        )

    def _initial(self) -> bytes:
        if self.mechanism == PLAIN:
            return f"\0{self.user or ''}\0{self.password}".encode()
        if self.mechanism in _DIGESTS:
            assert self.random is not None
            nonce = scram.base64_text(self.random(NONCE_OCTETS))
            self._first = f"n={scram.escape_name(self.user or '')},r={nonce}"
            return b"n,," + self._first.encode()
        return b"anonymous" if self.mechanism == ANONYMOUS else b""

    def _answer(self, challenge: bytes) -> bytes:
        if self.mechanism not in _DIGESTS:
            if challenge:
                raise RemoteProtocolError(Condition.NOT_ALLOWED, f"a challenge that {self.mechanism} does not have")
            return self._initial()
        if self._verifier is None:
            return self._scram_final(challenge)
        self._verify(challenge)  # some servers prove themselves before the outcome
        return b""

    def _scram_final(self, challenge: bytes) -> bytes:
        values = scram.attributes(challenge)
        nonce = self._first.rsplit(",r=", 1)[1]
        if list(values)[:3] != ["r", "s", "i"] or not values["r"].startswith(nonce) or values["r"] == nonce:
            raise ScramError("a malformed challenge")
        if not values["i"].isdecimal() or not scram.MIN_ITERATIONS <= int(values["i"][:9]) <= scram.MAX_ITERATIONS:
            raise ScramError(f"{values['i'][:20]} iterations")
        assert self.mechanism is not None
        digest = _DIGESTS[self.mechanism]
        salted = scram.salted_password(self.password or "", scram.unbase64(values["s"]), int(values["i"]), digest)
        without_proof = f"c=biws,r={values['r']}"
        message = f"{self._first},{challenge.decode()},{without_proof}".encode()
        self._verifier = b"v=" + scram.base64_text(scram.server_signature(salted, message, digest)).encode()
        return f"{without_proof},p={scram.base64_text(scram.client_proof(salted, message, digest))}".encode()

    def _verify(self, data: bytes) -> None:
        if self._verifier is None or not hmac.compare_digest(data, self._verifier):
            raise ScramError("the server does not know the password")
        self._verified = True

    def _finish(self, outcome: SaslOutcome) -> list[Composite]:
        self.done, self.code = True, outcome.code
        self.reason = None if outcome.code == SASL_OK else "refused by the server"
        if outcome.code == SASL_OK and self.mechanism in _DIGESTS and not self._verified:
            self.code = SASL_SYS_TEMP  # unless the server proves itself
            self._verify(outcome.additional_data or b"")
            self.code = SASL_OK
        return []
