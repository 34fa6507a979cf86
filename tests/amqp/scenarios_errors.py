"""Scenarios of a peer that breaks a rule, each with the condition of the answer, and of input that looks invalid and is valid."""

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
    End,
    Error,
    Open,
    Source,
    Target,
    Transfer,
)

from .values import raw_frame
from .wire import Wire


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
    w.note("later input is discarded until the close")
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
    w.note("a peer that waits neither for our open nor for credit: its link alone ends, behind our open, begin and attach")
    begin = Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1)
    attach = Attach(name="in", handle=0, role=SENDER, source=Source(), target=Target(), initial_delivery_count=0)
    transfer = Transfer(handle=0, delivery_id=0, delivery_tag=b"t", message_format=0)
    frames = [encode_frame(0, body.encode()) for body in (Open(container_id="peer"), begin, attach, transfer)]
    _, begun, attached, _ = w.octets(b"AMQP\x00\x01\x00\x00" + b"".join(frames))
    w.do("open", w.us.open)
    w.do("begin", begun.session.begin)  # type: ignore[union-attr]
    w.do("attach", attached.link.attach)  # type: ignore[union-attr]
    return w


def error_begun_transfer_without_credit() -> Wire:
    w = Wire().opened()
    w.note("the same after our open, and the peer ends its session before it is begun")
    begin = Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1)
    attach = Attach(name="in", handle=0, role=SENDER, source=Source(), target=Target(), initial_delivery_count=0)
    begun, *_ = w.peer(begin, attach, Transfer(handle=0, delivery_id=0, delivery_tag=b"t", message_format=0))
    w.peer(End())
    w.do("begin", begun.session.begin)  # type: ignore[union-attr]
    w.do("end", begun.session.end)  # type: ignore[union-attr]
    return w


def error_in_a_session_not_begun() -> Wire:
    w = Wire().opened()
    w.note("the end waits for our begin; the peer's input meanwhile is discarded, also a second error")
    begun, _ = w.peer(Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1), Detach(handle=7), Detach(handle=8))
    w.do("begin", begun.session.begin)  # type: ignore[union-attr]
    w.peer(End())
    return w


def error_in_a_connection_not_opened() -> Wire:
    w = Wire()
    w.note("the close waits for our open")
    w.octets(b"AMQP\x00\x01\x00\x00" + encode_frame(0, Open(container_id="peer").encode()) + encode_frame(1, End().encode()))
    w.do("open", w.us.open)
    w.peer(Close())
    return w


def error_then_an_end() -> Wire:
    w = Wire().opened()
    w.note("the peer ends the session behind its error: our end still has the error, and is the last frame")
    begun, _ = w.peer(Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1), Detach(handle=7), End())
    w.do("begin", begun.session.begin)  # type: ignore[union-attr]
    return w


def error_then_a_detach() -> Wire:
    w = Wire().opened()
    w.session()
    w.note("the peer detaches behind its error: our detach still has the error")
    attach = Attach(name="in", handle=0, role=SENDER, source=Source(), target=Target(), initial_delivery_count=0)
    transfer = Transfer(handle=0, delivery_id=0, delivery_tag=b"t", message_format=0)
    attached, _ = w.peer(attach, transfer, Detach(handle=0, closed=True))
    w.do("attach", attached.link.attach)  # type: ignore[union-attr]
    return w


def error_answered_by_the_application() -> Wire:
    w = Wire(answers_violations=False).opened()
    session = w.session()
    w.receiver(credit=1)
    w.note("the outcome of the message before the error leaves before the detach")
    message, second = (Transfer(handle=0, delivery_id=n, delivery_tag=b"%d" % n, message_format=0) for n in range(2))
    delivered, violated = w.peer(message, second)
    w.do("accept", lambda: session.dispose(delivered.deliveries, Accepted()))  # type: ignore[union-attr]
    w.do("answer", lambda: w.us.answer(violated))  # type: ignore[arg-type]
    w.do("answer again", lambda: w.us.answer(violated))  # type: ignore[arg-type]
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
    w.note("an attach without a resume, sent before the peer has seen our detach")
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
