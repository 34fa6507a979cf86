"""Opening a connection from a url and credentials: which SASL mechanisms may be used where."""

from __future__ import annotations

import os
import secrets
import ssl

from ... import amqp
from ...amqp.sasl import ANONYMOUS, EXTERNAL, PLAIN, SCRAM_SHA_256, SCRAM_SHA_512
from ...errors import InvalidRequest
from ..credentials import Credentials
from . import transport
from .address import parse
from .claims import Claims, SignsTokens
from .connection import TIMEOUT_S, Connection

#: Largest frame that we accept, octets. Larger messages come in several.
MAX_FRAME_OCTETS = 64 * 1024
#: Largest SASL frame, octets: a server with many mechanisms needs more than the 512 of the specification (5.3.1).
MAX_SASL_FRAME_OCTETS = 8 * 1024
#: Incoming window: transfer frames that may be on their way to us, whatever the credit.
WINDOW_FRAMES = 8192
#: Largest message that we take unless the caller says more, octets. All of it stands in memory before anybody sees it.
MAX_MESSAGE_OCTETS = 256 << 20
#: So many of the largest messages may be half received at once on a connection, each by a link.
UNFINISHED_MESSAGES = 4
#: Idle time-out, milliseconds. A broker silent for twice as long has failed: that is noticed within a minute.
IDLE_TIME_OUT_MS = 25_000


def new_container_id() -> str:
    """Return a container id that no other client has."""
    return f"penstock-client-{secrets.token_hex(8)}"


def connect(
    url: str,
    user: str | None = None,
    password: str | None = None,
    *,
    ca_file: str | None = None,
    cert_file: str | None = None,
    key_file: str | None = None,
    timeout_s: float = TIMEOUT_S,
    max_message_octets: int = MAX_MESSAGE_OCTETS,
) -> Connection:
    """Open a connection to `amqp://HOST[:PORT]` or `amqps://HOST[:PORT]`.

    A user name logs in with SCRAM, or with PLAIN over TLS or on this machine; without one, a certificate logs in with
    EXTERNAL, and without that the login is ANONYMOUS.

    Args:
        url: Address of the broker.
        user: User name.
        password: The user's password.
        ca_file: PEM file of the authority that signed the broker's certificate. None: those of the system.
        cert_file: PEM file of a client certificate to log in with.
        key_file: PEM file of its key. None: it is in `cert_file`.
        timeout_s: Seconds that each wait for the broker takes at most.
        max_message_octets: Largest message that is received; a broker that sends a larger one loses the link.

    Returns:
        An open connection; close it, or use `with`.

    Raises:
        InvalidRequest: A wrong argument.
        PeerError: No broker answers.
        Unauthenticated: The broker refuses the login.
    """
    credentials = Credentials.from_files(user, password, ca_file, cert_file, key_file)
    tls = parse(url).tls
    if not tls and credentials.certificates:
        raise InvalidRequest(f"certificates have no meaning for {url}: use amqps://, or leave them out")
    return login(
        url,
        user,
        password,
        tls=credentials.tls_context() if tls else None,
        external=cert_file is not None,
        timeout_s=timeout_s,
        max_message_octets=max_message_octets,
    )


def login(
    url: str,
    user: str | None,
    password: str | None,
    *,
    tls: ssl.SSLContext | None,
    external: bool,
    timeout_s: float,
    kind: type[Connection] = Connection,
    container_id: str | None = None,
    key: SignsTokens | None = None,
    max_message_octets: int = MAX_MESSAGE_OCTETS,
) -> Connection:
    """Connect with a TLS context that is made already.

    Args:
        url: Address of the broker.
        user: User name.
        password: The user's password.
        tls: Context of TLS; None for `amqp://`.
        external: Whether the context holds a certificate to log in with.
        timeout_s: Seconds that each wait for the broker takes at most.
        kind: Class of the connection.
        container_id: Id to keep over several connections. None: a new one.
        key: Signs a token for the address of each link, which it precedes; the login is ANONYMOUS then. None: no tokens.
        max_message_octets: Largest message that is received; a broker that sends a larger one loses the link.

    Returns:
        An open connection of the class `kind`.

    Raises:
        PeerError: No broker answers.
        Unauthenticated: The broker refuses the login.
    """
    address = parse(url)
    wire = transport.dial(address, tls, timeout_s)
    try:
        mechanisms: tuple[str, ...]
        if user is not None:
            mechanisms = (SCRAM_SHA_512, SCRAM_SHA_256, PLAIN) if wire.secure else (SCRAM_SHA_512, SCRAM_SHA_256)
        else:
            mechanisms = (EXTERNAL,) if external else (ANONYMOUS,)
        sasl = amqp.SaslClient(
            user=user, password=password, external=external, hostname=address.host, prefer=mechanisms, random=os.urandom
        )
        settings = amqp.Settings(
            container_id=container_id or new_container_id(),
            hostname=address.host,
            max_frame_size=MAX_FRAME_OCTETS,
            first_frame_size=MAX_FRAME_OCTETS,
            sasl_frame_size=MAX_SASL_FRAME_OCTETS,
            incoming_window=WINDOW_FRAMES,
            idle_time_out=IDLE_TIME_OUT_MS,
            max_message_size=max_message_octets,
            max_unfinished_size=UNFINISHED_MESSAGES * max_message_octets,
            errant_link_ends_session=False,  # what was on its way when a link ended must not hide why it did
        )
        connection = kind(wire, amqp.Connection(amqp.Role.CLIENT, settings, sasl), address, timeout_s)
        connection.open()
        if key is not None:
            connection.claims = Claims(connection, settings.container_id, key)
    except BaseException:
        wire.close()
        raise
    return connection
