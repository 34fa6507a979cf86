"""Part 5: every mechanism from both sides, and refusals that look alike."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.broker_core.amqp import (
    Connection,
    ConnectionSettings,
    LocalProtocolError,
    RemoteProtocolError,
    Role,
    SaslClient,
    SaslServer,
    events,
    scram,
)
from penstock.broker_core.amqp.frames import SASL_FRAME, encode_frame, protocol_header
from penstock.broker_core.amqp.performatives import (
    Open,
    SaslChallenge,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
)
from penstock.broker_core.amqp.scram import MIN_ITERATIONS, ScramCredentials, ScramError, make_credentials, saslprep

from .values import STEADY

SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
USERS = {"user": make_credentials("pencil", SALT), "a=b,c": make_credentials("p\u00e4ss", b"s" * 16)}


def octets(count: int) -> bytes:
    return b"\x05" * count


def server(*mechanisms: str, **options: Any) -> SaslServer:
    return SaslServer(mechanisms, USERS.get, random=octets, secret=b"secret", **options)


def exchange(server: SaslServer, client: SaslClient) -> list[Any]:
    """Run both sides to the end. Return all frames."""
    frames, to_client = [], server.start()
    while to_client:
        frames += to_client
        to_server = [answer for body in to_client for answer in client.receive(body)]
        frames += to_server
        to_client = [answer for body in to_server for answer in server.receive(body)]
    return frames


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
@pytest.mark.parametrize(
    ("user", "password", "good"),
    [
        ("user", "pencil", True),
        ("user", "pencils", False),
        ("nobody", "pencil", False),
        ("a=b,c", "p\u00e4ss", True),
        ("a=b,c", "pa\u0308ss", True),  # the same after SASLprep
        ("", "", False),
    ],
)
def test_passwords(mechanism: str, user: str, password: str, good: bool) -> None:
    sasl_server, sasl_client = server(mechanism), SaslClient(user, password, random=octets)
    exchange(sasl_server, sasl_client)
    assert sasl_server.user == (user if good else None)
    assert (sasl_client.code == 0) is good
    assert (sasl_server.reason is None) is good


def test_the_example_of_rfc_7677() -> None:
    client = SaslClient("user", "pencil", random=octets)
    client.receive(SaslMechanisms(sasl_server_mechanisms=("SCRAM-SHA-256",)))
    client._first = "n=user,r=rOprNGfwEbeRWgbNEkqO"
    challenge = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    answer = client.receive(SaslChallenge(challenge=challenge))[0]
    assert isinstance(answer, SaslResponse)
    assert answer.response == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    client.receive(SaslOutcome(code=0, additional_data=b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="))
    assert client.code == 0


def test_a_known_exchange_of_scram_sha_512() -> None:
    """The exchange that other implementations test against."""
    nonce, salt = "rOprNGfwEbeRWgbNEkqO", "Yin2FuHTt/M0kJWb0t9OI32n2VmOGi3m+JfjOvuDF88="
    whole = f"{nonce}02431b08-2f89-4bad-a4e6-80c0564ec865"
    client = SaslClient(user="user", password="pencil", random=lambda count: base64.b64decode(nonce))
    client.receive(SaslMechanisms(sasl_server_mechanisms=("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")))
    assert client.mechanism == "SCRAM-SHA-512"
    (answer,) = client.receive(SaslChallenge(challenge=f"r={whole},s={salt},i=4096".encode()))
    proof = "Hc5yec3NmCD7t+kFRw4/3yD6/F3SQHc7AVYschRja+Bc3sbdjlA0eH1OjJc0DD4ghn1tnXN5/Wr6qm9xmaHt4A=="
    assert answer.response == f"c=biws,r={whole},p={proof}".encode()
    verifier = "BQuhnKHqYDwQWS5jAw4sZed+C9KFUALsbrq81bB0mh+bcUUbbMPNNmBIupnS2AmyyDnG5CTBQtkjJ9kyY4kzmw=="
    assert client.receive(SaslOutcome(code=0, additional_data=f"v={verifier}".encode())) == []


def test_refusals_look_alike() -> None:
    """A wrong password and an unknown user get the same frames. Also a first SCRAM challenge is the same, when repeated."""
    for mechanism in ("PLAIN", "SCRAM-SHA-256"):
        wrong = exchange(server(mechanism), SaslClient("user", "wrong", random=octets))
        unknown = exchange(server(mechanism), SaslClient("nobody", "wrong", random=octets))
        assert [type(f) for f in wrong] == [type(f) for f in unknown]
        assert wrong[-1] == unknown[-1] == SaslOutcome(code=1)
        again = exchange(server(mechanism), SaslClient("nobody", "wrong", random=octets))
        assert again == unknown
        if mechanism == "SCRAM-SHA-256":
            known, stranger = (scram.attributes(frames[2].challenge) for frames in (wrong, unknown))
            assert (len(known["s"]), known["i"]) == (len(stranger["s"]), stranger["i"])


@pytest.mark.parametrize(
    ("mechanism", "responses"),
    [
        ("PLAIN", [b""]),
        ("PLAIN", [b"user\0pencil"]),
        ("PLAIN", [b"other\0user\0pencil"]),
        ("PLAIN", [b"\0user\0\xff"]),
        ("PLAIN", [b"\0user\0pencil\0"]),
        ("EXTERNAL", [b""]),
        ("NOPE", [b""]),
        ("SCRAM-SHA-256", [b""]),
        ("SCRAM-SHA-256", [b"p=tls-unique,,n=user,r=a"]),
        ("SCRAM-SHA-256", [b"n,,n=user"]),
        ("SCRAM-SHA-256", [b"n,,r=a,n=user"]),
        ("SCRAM-SHA-256", [b"n,,n=user,r="]),
        ("SCRAM-SHA-256", [b"n,,n=us=er,r=a"]),
        ("SCRAM-SHA-256", [b"n,,m=x,n=user,r=a"]),
        ("SCRAM-SHA-256", [b"n,,n=user,r=a", b""]),
        ("SCRAM-SHA-256", [b"n,,n=user,r=a", b"c=biws,r=a,p=AAAA"]),
        ("SCRAM-SHA-256", [b"n,,n=user,r=a", b"c=biws,r=aBQUFBQUFBQUFBQUFBQUFBQUFBQUF,p=*"]),
        ("SCRAM-SHA-256", [b"n,,n=user,r=a", b"p=AAAA,c=biws,r=a"]),
        ("SCRAM-SHA-256", [b"n,a=other,n=user,r=a", b"c=biws,r=a,p=AAAA"]),
    ],
)
def test_what_a_server_refuses(mechanism: str, responses: list[bytes]) -> None:
    sasl_server = server("PLAIN", "SCRAM-SHA-256", "EXTERNAL")
    out = sasl_server.receive(SaslInit(mechanism=mechanism, initial_response=responses[0]))
    for response in responses[1:]:
        out = sasl_server.receive(SaslResponse(response=response))
    assert out == [SaslOutcome(code=1)]
    assert sasl_server.done
    assert sasl_server.user is None
    assert sasl_server.reason
    with pytest.raises(RemoteProtocolError):
        sasl_server.receive(SaslInit(mechanism="PLAIN", initial_response=b"\0user\0pencil"))


def test_external_and_anonymous() -> None:
    sasl_server = server("EXTERNAL", external="CN=me")
    exchange(sasl_server, SaslClient(external=True))
    assert sasl_server.user == "CN=me"
    sasl_server = server("EXTERNAL", external="CN=me")
    sasl_server.receive(SaslInit(mechanism="EXTERNAL", initial_response=b"CN=other"))
    assert sasl_server.user is None
    sasl_server = server("ANONYMOUS")
    exchange(sasl_server, SaslClient())
    assert sasl_server.user == "anonymous"


def test_a_client_takes_the_best_that_it_can() -> None:
    offered = SaslMechanisms(sasl_server_mechanisms=("ANONYMOUS", "PLAIN", "SCRAM-SHA-256"))
    for client, expected in [
        (SaslClient("u", "p", random=octets), "SCRAM-SHA-256"),
        (SaslClient("u", "p"), "PLAIN"),
        (SaslClient(), "ANONYMOUS"),
    ]:
        init = client.receive(offered)[0]
        assert isinstance(init, SaslInit)
        assert init.mechanism == expected
    with pytest.raises(RemoteProtocolError, match="unauthorized-access"):
        SaslClient(prefer=("EXTERNAL",)).receive(offered)


@pytest.mark.parametrize(
    "challenge",
    [
        b"",
        b"r=other,s=AAAA,i=4096",
        b"r={nonce},s=AAAA,i=4096",  # nothing added by the server
        b"r={nonce}x,s=*,i=4096",
        b"r={nonce}x,s=AAAA,i=4095",
        b"r={nonce}x,s=AAAA,i=1000000000000",
        b"r={nonce}x,s=AAAA,i=x",
    ],
)
def test_what_a_scram_client_refuses(challenge: bytes) -> None:
    client = SaslClient("user", "pencil", random=octets)
    client.receive(SaslMechanisms(sasl_server_mechanisms=("SCRAM-SHA-256",)))
    nonce = client._first.rsplit(",r=", 1)[1].encode()
    with pytest.raises(RemoteProtocolError):
        client.receive(SaslChallenge(challenge=challenge.replace(b"{nonce}", nonce)))


def test_a_scram_server_must_prove_itself() -> None:
    client = SaslClient("user", "pencil", random=octets)
    sasl_server = server("SCRAM-SHA-256")
    (init,) = client.receive(sasl_server.start()[0])
    (challenge,) = sasl_server.receive(init)
    client.receive(challenge)
    with pytest.raises(RemoteProtocolError, match="does not know"):
        client.receive(SaslOutcome(code=0))
    assert client.code != 0


@pytest.mark.parametrize(
    ("text", "result"),
    [("I\u00adX", "IX"), ("user", "user"), ("\u00aa", "a"), ("\u2168", "IX"), ("a\u00a0b", "a b")],
)
def test_saslprep(text: str, result: str) -> None:
    assert saslprep(text) == result


@pytest.mark.parametrize("text", ["\u0007", "\u0627\u0031", "\ue000"])
def test_saslprep_prohibits(text: str) -> None:
    with pytest.raises(ScramError):
        saslprep(text)


def test_secrets_do_not_show() -> None:
    assert "hush" not in repr(SaslClient("u", "hush")) + repr(SaslServer(["PLAIN"], secret=b"hush"))


def test_a_server_without_what_its_mechanisms_need() -> None:
    with pytest.raises(LocalProtocolError):
        SaslServer(["SCRAM-SHA-256"])
    with pytest.raises(LocalProtocolError):
        SaslServer(["MAGIC"])
    with pytest.raises(LocalProtocolError):
        SaslServer([])


def sasl_octets(*bodies: Any) -> bytes:
    return b"".join(encode_frame(0, body.encode(), frame_type=SASL_FRAME) for body in bodies)


@pytest.mark.parametrize("required", [True, False])
def test_a_peer_without_a_sasl_layer(required: bool) -> None:
    ours = Connection(Role.SERVER, ConnectionSettings(container_id="x"), server("PLAIN"), sasl_required=required)
    our_events = ours.receive_data(protocol_header(0) + encode_frame(0, Open(container_id="p").encode()))
    if required:
        assert ours.finished
        assert ours.data_to_send() == protocol_header(3)
    else:
        assert isinstance(our_events[0], events.Opened)
        assert ours.data_to_send() == protocol_header(0)


@pytest.mark.parametrize("body", [SaslOutcome(code=0), SaslChallenge(challenge=b""), SaslResponse(response=b"")])
def test_frames_of_the_other_side_or_out_of_order(body: Any) -> None:
    ours = Connection(Role.SERVER, ConnectionSettings(container_id="x"), server("PLAIN"))
    (event,) = ours.receive_data(protocol_header(3) + sasl_octets(body))
    assert isinstance(event, events.Violated)
    assert ours.finished


def test_nothing_is_read_after_a_failure() -> None:
    ours = Connection(Role.SERVER, ConnectionSettings(container_id="x"), server("PLAIN"))
    wrong = SaslInit(mechanism="PLAIN", initial_response=b"\0user\0wrong")
    our_events = ours.receive_data(protocol_header(3) + sasl_octets(wrong) + protocol_header(0))
    assert [type(event) for event in our_events] == [events.AuthenticationFailed]
    assert ours.receive_data(protocol_header(0)) == []
    assert protocol_header(0) not in ours.data_to_send()


@given(st.text(max_size=12).filter(lambda t: "\0" not in t), st.text(max_size=12).filter(lambda t: "\0" not in t))
@settings(STEADY, max_examples=25)
def test_any_name_and_password(name: str, password: str) -> None:
    try:
        users: dict[str, ScramCredentials] = {name: make_credentials(password, b"s" * 16, MIN_ITERATIONS)}
    except ScramError:
        return
    for mechanism in ("PLAIN", "SCRAM-SHA-256"):
        sasl_server = SaslServer([mechanism], users.get, random=octets, secret=b"x")
        exchange(sasl_server, SaslClient(name, password, random=octets))
        assert sasl_server.user == name


@pytest.mark.parametrize(
    ("header", "binding", "good"),
    [
        ("n,,", "n,,", True),
        ("y,,", "y,,", True),
        ("n,a=user,", "n,a=user,", True),
        ("n,,", "y,,", False),  # an attacker has changed the client's options
        ("n,a=other,", "n,a=other,", False),  # the right password, for another user
    ],
)
def test_a_right_proof_is_not_all(header: str, binding: str, good: bool) -> None:
    sasl_server = server("SCRAM-SHA-256")
    first = "n=user,r=abc"
    (challenge,) = sasl_server.receive(SaslInit(mechanism="SCRAM-SHA-256", initial_response=f"{header}{first}".encode()))
    assert isinstance(challenge, SaslChallenge)
    values = scram.attributes(challenge.challenge)
    final = f"c={scram.base64_text(binding.encode())},r={values['r']}"
    salted = scram.salted_password("pencil", scram.unbase64(values["s"]), int(values["i"]))
    proof = scram.client_proof(salted, f"{first},{challenge.challenge.decode()},{final}".encode())
    (outcome,) = sasl_server.receive(SaslResponse(response=f"{final},p={scram.base64_text(proof)}".encode()))
    assert isinstance(outcome, SaslOutcome)
    assert (outcome.code == 0) is good
    assert (sasl_server.user == "user") is good


def test_who_is_refused_since_the_first_step_is_not_let_in_by_the_last() -> None:
    """A guesser that begins many exchanges and continues all of them is stopped like one with single exchanges."""
    known = dict(USERS)
    sasl_server = SaslServer(["SCRAM-SHA-256"], known.get, random=octets, secret=b"secret")
    client = SaslClient("user", "pencil", random=octets)
    (init,) = (answer for body in sasl_server.start() for answer in client.receive(body))
    (challenge,) = sasl_server.receive(init)
    (proof,) = client.receive(challenge)
    del known["user"]
    (outcome,) = sasl_server.receive(proof)
    assert isinstance(outcome, SaslOutcome)
    assert outcome.code == 1
    assert sasl_server.user is None
