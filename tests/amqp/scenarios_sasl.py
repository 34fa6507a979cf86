"""Scenarios of SASL, from either side, and of other input in its place."""

from __future__ import annotations

import base64

from penstock.broker_core.amqp import Role, SaslClient, SaslServer
from penstock.broker_core.amqp.frames import encode_frame
from penstock.broker_core.amqp.performatives import Open, SaslChallenge, SaslInit, SaslMechanisms, SaslOutcome, SaslResponse
from penstock.broker_core.amqp.scram import make_credentials

from .wire import Wire

# RFC 7677, section 3: its names, salt, nonces.
RFC_SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
RFC_USER = make_credentials("pencil", RFC_SALT, 4096)


def sasl_anonymous() -> Wire:
    w = Wire(sasl=SaslServer(["ANONYMOUS"]))
    w.header(3)
    w.sasl(SaslInit(mechanism="ANONYMOUS", initial_response=b"me"))
    return w.opened()


def sasl_plain() -> Wire:
    w = Wire(sasl=SaslServer(["PLAIN"], {"user": RFC_USER}.get))
    w.header(3)
    w.sasl(SaslInit(mechanism="PLAIN", initial_response=b"\0user\0pencil"))
    return w


def sasl_plain_wrong() -> Wire:
    w = Wire(sasl=SaslServer(["PLAIN"], {"user": RFC_USER}.get))
    w.header(3)
    w.sasl(SaslInit(mechanism="PLAIN", initial_response=b"\0user\0pencils"))
    return w


def sasl_external() -> Wire:
    w = Wire(sasl=SaslServer(["EXTERNAL"], external="CN=me"))
    w.header(3)
    w.sasl(SaslInit(mechanism="EXTERNAL"))
    w.sasl(SaslResponse(response=b""))
    return w


def sasl_scram() -> Wire:
    nonce = base64.b64decode("a" * 24)
    w = Wire(sasl=SaslServer(["SCRAM-SHA-256", "PLAIN"], {"user": RFC_USER}.get, random=lambda n: nonce, secret=b"s"))
    client = SaslClient("user", "pencil", random=lambda n: b"r" * n)
    w.header(3)
    offered = SaslMechanisms(sasl_server_mechanisms=("SCRAM-SHA-256", "PLAIN"))
    w.sasl(client.receive(offered)[0])
    first = client._first
    challenge = f"r={first.rsplit(',r=', 1)[1]}{'a' * 24},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    w.sasl(client.receive(SaslChallenge(challenge=challenge.encode()))[0])
    return w


def sasl_client() -> Wire:
    w = Wire(Role.CLIENT, sasl=SaslClient("user", "pencil", prefer=("PLAIN",)))
    w.header(3)
    w.sasl(SaslMechanisms(sasl_server_mechanisms=("EXTERNAL", "PLAIN")))
    w.sasl(SaslOutcome(code=0))
    w.header()
    w.do("open", w.us.open)
    w.peer(Open(container_id="peer"))
    return w


def sasl_skipped() -> Wire:
    w = Wire(sasl=SaslServer(["PLAIN"]))
    w.note("a peer without SASL, where SASL is asked for: the answer is a SASL header alone")
    w.header(0)
    return w


def sasl_amqp_frame_inside() -> Wire:
    w = Wire(sasl=SaslServer(["ANONYMOUS"]))
    w.header(3)
    w.peer(Open(container_id="peer"))
    return w


def sasl_two_values_in_a_frame() -> Wire:
    w = Wire(sasl=SaslServer(["ANONYMOUS"]))
    w.header(3)
    body = SaslInit(mechanism="ANONYMOUS").encode()
    w.octets(encode_frame(0, body + body, frame_type=1), "two inits in one frame")
    return w


def sasl_empty_frame() -> Wire:
    w = Wire(sasl=SaslServer(["ANONYMOUS"]))
    w.header(3)
    w.octets(encode_frame(0, b"", frame_type=1), "an empty SASL frame")
    return w


def error_tls_header() -> Wire:
    w = Wire()
    w.header(2)
    return w


def sasl_frame_too_large() -> Wire:
    w = Wire(sasl=SaslServer(["PLAIN"]))
    w.header(3)
    w.octets(b"\x00\x00\x02\x01\x02\x01\x00\x00", "a SASL frame of 513 octets")
    return w
