"""The user id of an encoded message is read from every form, as the reference decoder reads it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.broker_core.amqp import Message, decode_message
from penstock.broker_core.amqp.errors import RemoteProtocolError
from penstock.broker_core.amqp.messages import scan
from penstock.broker_core.amqp.performatives import Header, Properties
from penstock.broker_core.amqp.types import ULong
from penstock.broker_core.messages.encoding.fields import user_id_of

IDS = st.one_of(st.none(), st.text(max_size=300), st.binary(max_size=300), st.integers(0, 2**64 - 1).map(ULong), st.uuids())
USERS = st.one_of(st.none(), st.binary(max_size=300))
NOTES = st.one_of(st.none(), st.dictionaries(st.just("x"), st.text(max_size=300), min_size=1))


def _long(payload: bytes) -> bytes:
    """Write the same message, each of its sections with a descriptor of nine octets."""
    out = b""
    for section in scan(payload):
        out += b"\x00\x80" + section.code.to_bytes(8, "big") + payload[section.value : section.end]
    return out


@given(IDS, USERS, st.booleans(), NOTES, st.text(max_size=300))
def test_it_is_found_in_every_form(message_id: object, user: bytes | None, header: bool, notes: object, to: str) -> None:
    message = Message(data=[b"m"], header=Header(durable=True) if header else None, message_annotations=notes)  # type: ignore[arg-type]
    message.properties = Properties(message_id=message_id, user_id=user, to=to)  # type: ignore[arg-type]
    payload = message.encode()
    assert user_id_of(payload) == (user or None)
    assert user_id_of(_long(payload)) == (user or None)
    assert user_id_of(Message(data=[b"m"]).encode()) is None


@given(st.binary(max_size=60), st.binary(max_size=20), st.integers(0, 100))
def test_no_octets_make_it_fail_or_say_what_the_plain_way_does_not(octets: bytes, user: bytes, cut: int) -> None:
    payload = bytearray(Message(data=[b"m"], properties=Properties(message_id="id", user_id=user)).encode())
    payload[cut : cut + len(octets)] = octets
    user_id = user_id_of(bytes(payload))
    try:
        plain = decode_message(bytes(payload)).properties
    except RemoteProtocolError:
        return
    assert user_id == (None if plain is None else plain.user_id or None)
