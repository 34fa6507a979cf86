"""The scenarios of the golden transcripts: one function, one file of the same name in transcripts/."""

from __future__ import annotations

import base64

from broker_core.amqp import Role, SaslClient, SaslServer
from broker_core.amqp.frames import encode_frame
from broker_core.amqp.performatives import (
    RECEIVER,
    SENDER,
    Accepted,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Error,
    Open,
    Received,
    Released,
    SaslChallenge,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
    Source,
    Target,
    Transfer,
)
from broker_core.amqp.scram import make_credentials

from .values import raw_frame
from .wire import Wire

# RFC 7677, section 3: its names, salt, nonces.
RFC_SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
RFC_USER = make_credentials("pencil", RFC_SALT, 4096)


def receive_and_accept() -> Wire:
    w = Wire().opened(hostname="broker", idle_time_out=30000)
    session = w.session()
    link = w.receiver(credit=3)
    w.transfer(0, b"t0", b"first")
    w.transfer(1, b"t1", b"second")
    w.transfer(2, b"t2", b"settled", settled=True)
    w.do("accept 0 and 1", lambda: session.dispose(list(session.incoming.values()), Accepted()))
    w.do("grant(10)", lambda: link.grant(10))
    w.peer(Detach(handle=0, closed=True))
    w.do("detach", link.detach)
    w.peer(End())
    w.do("end", session.end)
    w.peer(Close())
    w.do("close", w.us.close)
    return w


def send_and_dispose() -> Wire:
    w = Wire().opened()
    w.session(next_outgoing_id=0xFFFFFFFE)
    link = w.sender(credit=5)
    w.do("send a, b, c", lambda: link.send_many([b"a", b"b", b"c"], [b"1", b"2", b"3"]))
    w.peer(Disposition(role=RECEIVER, first=0, last=1, settled=True, state=Accepted()))
    w.peer(Disposition(role=RECEIVER, first=2, settled=True, state=Released()))
    w.do("send settled", lambda: link.send(b"d", b"4", settled=True))
    return w


def receiver_settles_second() -> Wire:
    w = Wire().opened()
    session = w.session()
    w.receiver(rcv_settle_mode=1)
    w.transfer(0, b"t0")
    w.note("the receiver says its state, the sender settles, the receiver forgets")
    w.do("accepted, not settled", lambda: session.dispose(list(session.incoming.values()), Accepted(), settled=False))
    w.peer(Disposition(role=SENDER, first=0, settled=True, state=Accepted()))
    return w


def sender_of_settle_second() -> Wire:
    w = Wire().opened()
    session = w.session()
    link = w.sender(rcv_settle_mode=1)
    delivery = w.do("send", lambda: link.send(b"t", b"m"))
    w.peer(Disposition(role=RECEIVER, first=0, state=Accepted()))
    w.do("settle", lambda: session.dispose([delivery], Accepted()))
    return w


def drain() -> Wire:
    w = Wire().opened()
    w.session()
    link = w.sender(credit=0)
    w.flow(handle=0, delivery_count=0, link_credit=5, drain=True)
    w.do("send the only message", lambda: link.send(b"t", b"m"))
    w.do("drained", link.drained)
    return w


def drain_a_peer() -> Wire:
    w = Wire().opened()
    w.session()
    link = w.receiver(credit=0)
    w.do("grant(5), drain", lambda: link.grant(5, drain=True))
    w.transfer(0, b"t")
    w.flow(next_outgoing_id=1, handle=0, delivery_count=5, link_credit=0, available=0, drain=True)
    return w


def echo() -> Wire:
    w = Wire().opened()
    w.session()
    w.receiver(credit=2)
    w.note("a session's state, then a link's; the peer's next-outgoing-id is taken over as it is")
    w.flow(echo=True, next_outgoing_id=5)
    w.flow(next_outgoing_id=5, handle=0, delivery_count=0, link_credit=2, available=7, echo=True)
    return w


def many_frames() -> Wire:
    w = Wire().opened(max_frame_size=512)
    w.session(incoming_window=2)
    link = w.sender()
    w.note("1100 octets in frames of 512, and a window of two frames")
    w.do("send", lambda: link.send(b"t", b"x" * 1100))
    w.flow(next_incoming_id=2, incoming_window=2)
    w.note("and in the other direction")
    w.receiver(handle=1)
    w.transfer(0, b"t0", b"one", handle=1, more=True)
    w.transfer(None, None, b"two", handle=1, message_format=None, more=True)
    w.transfer(None, None, b"three", handle=1, message_format=None)
    return w


def aborted() -> Wire:
    w = Wire().opened()
    w.session()
    w.receiver()
    w.transfer(0, b"t0", b"half", more=True)
    w.transfer(None, None, b"ignored", message_format=None, aborted=True)
    w.transfer(1, b"t0", b"again")
    link = w.sender(handle=1)
    delivery = w.do("send, more to come", lambda: link.send(b"s0", b"half", more=True))
    w.do("abort", lambda: link.abort(delivery))
    return w


def resume() -> Wire:
    w = Wire().opened()
    w.session()
    known = {b"t1": Received(section_number=0, section_offset=3)}
    w.receiver(unsettled={b"t1": None, b"t2": None}, mode={"unsettled": known})
    w.note("t1 is known here and goes on; t2 is not, and is ignored; a new delivery follows")
    w.transfer(0, b"t1", b"rest", resume=True)
    w.transfer(1, b"t2", b"all", resume=True)
    w.transfer(2, b"t3", b"new")
    return w


def error_resumed_twice() -> Wire:
    w = Wire().opened()
    w.session()
    w.receiver(unsettled={b"t1": None}, mode={"unsettled": {b"t1": None}})
    w.transfer(0, b"t1", b"all", resume=True)
    w.transfer(1, b"t1", b"all", resume=True)
    return w


def refused_attach() -> Wire:
    w = Wire().opened()
    w.session()
    attach = Attach(name="in", handle=0, role=SENDER, source=Source(), target=Target(address="none"), initial_delivery_count=0)
    link = w.peer(attach)[-1].link  # type: ignore[union-attr]
    w.do("refuse", lambda: link.refuse("amqp:not-found", "no such node"))
    w.peer(Detach(handle=0, closed=True))
    return w


def stolen_link() -> Wire:
    w = Wire().opened()
    w.session()
    w.receiver()
    w.receiver(handle=1)
    w.peer(Detach(handle=0, closed=True))
    return w


def simultaneous_ends() -> Wire:
    w = Wire().opened()
    session = w.session()
    link = w.receiver()
    w.do("detach", link.detach)
    w.transfer(0, b"late")
    w.peer(Detach(handle=0, closed=True))
    w.do("end", session.end)
    w.peer(End())
    w.do("close", w.us.close)
    w.note("what the peer had sent before it saw our close is dropped")
    w.peer(Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1))
    w.peer(Close())
    return w


def pipelined_peer() -> Wire:
    w = Wire()
    w.note("a peer that waits for nothing: header, open, begin, end, close in one go")
    begin = Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1)
    frames = [encode_frame(0, body.encode()) for body in (Open(container_id="peer"), begin, End(), Close())]
    found = w.octets(b"AMQP\x00\x01\x00\x00" + b"".join(frames))
    session = next(event.session for event in found if hasattr(event, "session"))
    w.do("open", w.us.open)
    w.do("begin", session.begin)
    w.do("end", session.end)
    w.do("close", w.us.close)
    return w


# --- SASL


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
    w.note("a peer without SASL, where SASL is asked for: the header says so, and that is all")
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


# --- the peer's errors, each with its condition


def error_garbage_header() -> Wire:
    w = Wire()
    w.octets(b"GET / HTTP/1.1\r\n", "GET / HTTP/1.1")
    return w


def error_frame_too_large() -> Wire:
    w = Wire(max_frame_size=1024).opened()
    w.octets((1025).to_bytes(4, "big") + b"\x02\x00\x00\x00", "a frame of 1025 octets")
    return w


def error_begin_answers_twice() -> Wire:
    w = Wire().opened()
    w.do("begin", w.us.begin)
    answer = Begin(remote_channel=0, next_outgoing_id=0, incoming_window=1, outgoing_window=1)
    w.peer(answer)
    w.peer(answer, channel=1)
    return w


def error_max_frame_size_of_the_peer() -> Wire:
    w = Wire()
    w.header()
    w.peer(Open(container_id="peer", max_frame_size=511))
    return w


def error_open_on_a_channel() -> Wire:
    w = Wire()
    w.header()
    w.peer(Open(container_id="peer"), channel=1)
    return w


def error_empty_frame_before_open() -> Wire:
    w = Wire()
    w.header()
    w.peer(None)
    return w


def heartbeats_mean_nothing() -> Wire:
    w = Wire().opened()
    w.peer(None)
    w.peer(None, channel=7)
    return w


def error_open_too_large() -> Wire:
    w = Wire()
    w.header()
    w.note("513 octets before the peer's open: a limit that Settings.first_frame_size can raise")
    w.octets((513).to_bytes(4, "big") + b"\x02\x00\x00\x00", "a frame of 513 octets")
    return w


def large_open_allowed() -> Wire:
    w = Wire(first_frame_size=1024)
    return w.opened(properties={"padding": "x" * 600})


def error_frame_too_small() -> Wire:
    w = Wire().opened()
    w.octets(b"\x00\x00\x00\x07\x02\x00\x00", "a frame of 7 octets")
    return w


def error_data_offset() -> Wire:
    w = Wire().opened()
    w.octets(raw_frame(b"", doff=1), "a data offset of 1")
    return w


def error_data_offset_beyond_the_frame() -> Wire:
    w = Wire().opened()
    w.octets(raw_frame(b"\x00\x00\x00\x00", doff=4), "a data offset of 16 octets in a frame of 12")
    return w


def extended_header() -> Wire:
    w = Wire().opened()
    w.octets(raw_frame(b"\xff\xff\xff\xff" + Close().encode(), doff=3), "a close after four octets of extended header")
    w.do("close", w.us.close)
    return w


def error_frame_type() -> Wire:
    w = Wire().opened()
    w.octets(raw_frame(b"", kind=1), "a SASL frame after SASL")
    return w


def error_decode() -> Wire:
    w = Wire().opened()
    w.octets(raw_frame(b"\x00\x53\x11\xc0\x03\x01\x70\x00"), "a begin cut short inside")
    w.note("what still comes is discarded until the close")
    w.peer(Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1))
    w.peer(Close())
    return w


def error_missing_field() -> Wire:
    w = Wire().opened()
    w.octets(raw_frame(b"\x00\x53\x11\x45"), "a begin without its mandatory fields")
    return w


def error_frame_before_open() -> Wire:
    w = Wire()
    w.header()
    w.peer(Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1))
    return w


def error_second_open() -> Wire:
    w = Wire().opened()
    w.peer(Open(container_id="peer"))
    return w


def error_channel_max() -> Wire:
    w = Wire(channel_max=3).opened()
    w.peer(Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1), channel=4)
    return w


def error_no_session() -> Wire:
    w = Wire().opened()
    w.peer(Detach(handle=0))
    return w


def error_handle_max() -> Wire:
    w = Wire(handle_max=1).opened()
    w.session()
    w.peer(Attach(name="x", handle=2, role=RECEIVER))
    return w


def error_handle_in_use() -> Wire:
    w = Wire().opened()
    w.session()
    w.receiver()
    w.peer(Attach(name="other", handle=0, role=RECEIVER))
    return w


def error_unattached_handle() -> Wire:
    w = Wire().opened()
    w.session()
    w.transfer(0, b"t")
    w.note("the session discards until its end")
    w.transfer(1, b"t")
    w.peer(End())
    return w


def error_window_violation() -> Wire:
    w = Wire(incoming_window=2).opened()
    w.session()
    w.receiver(credit=10)
    w.note("our window is renewed at half; the peer does not wait for that")
    w.peer(*[Transfer(handle=0, delivery_id=0, delivery_tag=b"t", message_format=0, more=True) for _ in range(3)])
    return w


def error_transfer_limit_exceeded() -> Wire:
    w = Wire().opened()
    w.session()
    w.receiver(credit=1)
    w.transfer(0, b"t0")
    w.transfer(1, b"t1")
    w.peer(Detach(handle=0, closed=True, error=Error(condition="amqp:internal-error")))
    return w


def error_pipelined_transfer_without_credit() -> Wire:
    w = Wire()
    w.note("a peer that waits neither for our open nor for credit: there is no session yet to end, so the connection closes")
    begin = Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1)
    attach = Attach(name="in", handle=0, role=SENDER, source=Source(), target=Target(), initial_delivery_count=0)
    transfer = Transfer(handle=0, delivery_id=0, delivery_tag=b"t", message_format=0)
    frames = [encode_frame(0, body.encode()) for body in (Open(container_id="peer"), begin, attach, transfer)]
    w.octets(b"AMQP\x00\x01\x00\x00" + b"".join(frames))
    return w


def error_begun_transfer_without_credit() -> Wire:
    w = Wire().opened()
    w.note("the same after our open: the session is begun and ended at once")
    begin = Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1)
    attach = Attach(name="in", handle=0, role=SENDER, source=Source(), target=Target(), initial_delivery_count=0)
    w.peer(begin, attach, Transfer(handle=0, delivery_id=0, delivery_tag=b"t", message_format=0))
    w.peer(End())
    return w


def nothing_is_read_after_a_close() -> Wire:
    w = Wire().opened()
    w.peer(Close(), Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1))
    w.octets(b"\xff" * 20, "garbage")
    w.do("close", w.us.close)
    return w


def errant_input_tolerated() -> Wire:
    w = Wire(errant_link_ends_session=False).opened()
    w.session()
    link = w.receiver(credit=1)
    w.do("detach with an error", lambda: link.detach(error=Error(condition="amqp:resource-deleted")))
    w.transfer(0, b"t0")
    w.peer(Detach(handle=0, closed=True))
    return w


def error_message_size_exceeded() -> Wire:
    w = Wire(max_message_size=10).opened()
    w.session()
    w.receiver()
    w.transfer(0, b"t0", b"0123456", more=True)
    w.transfer(None, None, b"789a", message_format=None)
    return w


def error_errant_link() -> Wire:
    w = Wire().opened()
    w.session()
    link = w.receiver(credit=1)
    w.do("detach with an error", lambda: link.detach(error=Error(condition="amqp:resource-deleted")))
    w.transfer(0, b"t0")
    return w


def error_reattach_of_a_link_in_error() -> Wire:
    w = Wire().opened()
    w.session()
    link = w.receiver()
    w.do("detach with an error", lambda: link.detach(error=Error(condition="amqp:resource-deleted")))
    w.note("an attach that is no resume, sent before the peer has seen our detach")
    w.peer(Attach(name="in", handle=1, role=SENDER, source=Source(), target=Target(), initial_delivery_count=0))
    return w


def resume_of_a_link_in_error() -> Wire:
    w = Wire().opened()
    w.session()
    link = w.receiver()
    w.do("detach with an error", lambda: link.detach(error=Error(condition="amqp:resource-deleted")))
    w.note("an unsettled map, even an empty one, makes it a resume")
    w.receiver(handle=1, unsettled={})
    w.transfer(0, b"t0", handle=1)
    return w


def error_delivery_id_again() -> Wire:
    w = Wire().opened()
    w.session()
    w.receiver()
    w.transfer(5, b"t0")
    w.transfer(5, b"t1")
    return w


def error_tag_again() -> Wire:
    w = Wire().opened()
    w.session()
    w.receiver()
    w.transfer(0, b"t0")
    w.transfer(1, b"t0")
    return w


def error_settle_mode() -> Wire:
    w = Wire().opened()
    w.session()
    w.receiver(snd_settle_mode=1)
    w.transfer(0, b"t0")
    return w


def error_contradicting_continuation() -> Wire:
    w = Wire().opened()
    w.session()
    w.receiver()
    w.transfer(0, b"t0", more=True)
    w.transfer(None, None, message_format=1)
    return w


def error_flow_without_handle() -> Wire:
    w = Wire().opened()
    w.session()
    w.flow(link_credit=5)
    return w


def error_sender_without_delivery_count() -> Wire:
    w = Wire().opened()
    w.session()
    w.peer(Attach(name="in", handle=0, role=SENDER, source=Source(), target=Target()))
    return w


def error_begin_answers_nothing() -> Wire:
    w = Wire().opened()
    w.peer(Begin(remote_channel=7, next_outgoing_id=0, incoming_window=1, outgoing_window=1))
    return w


SCENARIOS = [f for name, f in sorted(globals().items()) if getattr(f, "__module__", "") == __name__ and name[0].islower()]
