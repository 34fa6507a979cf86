"""Scenarios of peers that follow the specification: links, transfers, outcomes, credit, windows, resuming, ends."""

from __future__ import annotations

from penstock.broker_core.amqp.frames import encode_frame
from penstock.broker_core.amqp.performatives import (
    RECEIVER,
    SENDER,
    Accepted,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Open,
    Received,
    Released,
    Source,
    Target,
)

from .wire import Wire


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
    w.note("the receiver sends its state, the sender settles, the receiver forgets")
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
    w.note("t1 is known here and continues; t2 is unknown, and is ignored; a new delivery follows")
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
    w.note("frames that the peer sent before it saw our close are dropped")
    w.peer(Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1))
    w.peer(Close())
    return w


def pipelined_peer() -> Wire:
    w = Wire()
    w.note("a peer that waits for nothing: header, open, begin, end, close in one go")
    begin = Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1)
    frames = [encode_frame(0, body.encode()) for body in (Open(container_id="peer"), begin, End(), Close())]
    new_events = w.octets(b"AMQP\x00\x01\x00\x00" + b"".join(frames))
    session = next(event.session for event in new_events if hasattr(event, "session"))
    w.do("open", w.us.open)
    w.do("begin", session.begin)
    w.do("end", session.end)
    w.do("close", w.us.close)
    return w
