"""From a url and credentials to an open connection: which mechanisms may be used where."""

from __future__ import annotations

import os
import secrets

from broker_core import amqp
from broker_core.amqp.sasl import ANONYMOUS, EXTERNAL, PLAIN, SCRAM_SHA_256
from broker_core.amqp_client import transport
from broker_core.amqp_client.address import parse
from broker_core.amqp_client.connection import TIMEOUT_S, Connection
from broker_core.errors import InvalidRequest

#: Octets of a frame that we take. Larger messages come in several.
MAX_FRAME_OCTETS = 64 * 1024
#: Octets of a SASL frame: a server with many mechanisms needs more than the 512 of the text.
MAX_SASL_FRAME_OCTETS = 8 * 1024
#: Transfer frames that may be under way to us, on top of what credit says.
WINDOW_FRAMES = 8192
#: Milliseconds: a broker that says nothing for twice as long is given up.
IDLE_TIME_OUT_MS = 60_000


def connect(
    url: str,
    user: str | None = None,
    password: str | None = None,
    *,
    ca_file: str | None = None,
    cert_file: str | None = None,
    key_file: str | None = None,
    timeout_s: float = TIMEOUT_S,
) -> Connection:
    """An open connection to `amqp://HOST[:PORT]` or `amqps://HOST[:PORT]`.

    A user name logs in with SCRAM-SHA-256, or with PLAIN over TLS or on this machine; else a certificate with EXTERNAL; else it
    is ANONYMOUS. `timeout_s` bounds every wait. Raises InvalidRequest for what is given wrong, PeerError when no broker answers,
    Unauthenticated when it does not let us in.
    """
    address = parse(url)
    if (user is None) != (password is None):
        raise InvalidRequest("a user needs a password and a password a user: give both, or neither")
    if not address.tls and (ca_file or cert_file or key_file):
        raise InvalidRequest(f"certificates have no meaning for {address}: use amqps://, or leave them out")
    context = transport.tls_context(ca_file, cert_file, key_file) if address.tls else None
    wire = transport.dial(address, context, timeout_s)
    try:
        if user is not None:
            mechanisms = (SCRAM_SHA_256, PLAIN) if wire.secure else (SCRAM_SHA_256,)
        else:
            mechanisms = (EXTERNAL,) if cert_file is not None else (ANONYMOUS,)
        sasl = amqp.SaslClient(user, password, cert_file is not None, hostname=address.host, prefer=mechanisms, random=os.urandom)
        settings = amqp.Settings(
            container_id=f"penstock-client-{secrets.token_hex(8)}",
            hostname=address.host,
            max_frame_size=MAX_FRAME_OCTETS,
            first_frame_size=MAX_FRAME_OCTETS,
            sasl_frame_size=MAX_SASL_FRAME_OCTETS,
            incoming_window=WINDOW_FRAMES,
            idle_time_out=IDLE_TIME_OUT_MS,
        )
        connection = Connection(wire, amqp.Connection(amqp.Role.CLIENT, settings, sasl), str(address), timeout_s)
        connection.open()
    except BaseException:
        wire.close()
        raise
    return connection
