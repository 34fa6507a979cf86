"""Framing of requests: h11's rules, and the choices of RFC 9112 that h11 leaves to its user.

A proxy and this server must agree on the end of a request. Otherwise a client can hide a request in another one's body (request
smuggling). So a head that two parsers may read differently is refused.
"""

from __future__ import annotations

import h11
from h11._receivebuffer import ReceiveBuffer

MAX_HEAD_BYTES = 32 << 10  # of a request's first line and headers, and of trailers
MAX_HEADERS = 100  # lines in a head; a browser sends about 20. Each costs several objects
FRAMING_BYTES = 8  # that chunked encoding may add to each byte of a body: 1-byte chunks add 5
FRAMING_SLACK_BYTES = 64 << 10  # beyond that: chunk extensions are read and ignored, and must end

_FRAMING = (b"content-length", b"transfer-encoding")


class StrictConnection(h11.Connection):
    """`next_event` raises RemoteProtocolError for a request that is refused."""

    def __init__(self) -> None:
        super().__init__(h11.SERVER, MAX_HEAD_BYTES)
        self._receive_buffer = _StrictBuffer()
        self._framing = 0  # received for the current body, minus the bytes that its data justifies
        self.refusal: h11.RemoteProtocolError | None = None  # why parsing has stopped

    @property
    def buffered(self) -> int:
        """Bytes that were received and not parsed yet."""
        return len(self._receive_buffer)

    def receive_data(self, data: bytes) -> None:
        self._framing += len(data)
        super().receive_data(data)

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        try:
            event = super().next_event()
            if type(event) is h11.Request:
                self._framing = 0
            elif type(event) is h11.Data:
                self._framing = max(0, self._framing - FRAMING_BYTES * len(event.data))
            if self._framing > FRAMING_SLACK_BYTES:
                raise h11.RemoteProtocolError("the chunks of the body are mostly framing: send larger chunks without extensions")
            return event
        except h11.RemoteProtocolError as error:
            self.refusal = error
            raise


class _StrictBuffer(ReceiveBuffer):
    """Refuses heads and trailers with bare LF, folded lines or more than one framing."""

    def maybe_extract_lines(self) -> list[bytearray] | None:
        if self._data[:2] != b"\r\n":  # otherwise the block is empty
            end = self._data.find(b"\r\n\r\n")
            _check_block(self._data if end < 0 else self._data[: end + 4])
        return super().maybe_extract_lines()


def _check_block(block: bytearray) -> None:
    """The block may be incomplete."""
    lines = block.count(b"\r\n")
    if block.count(b"\n") != lines:
        raise h11.RemoteProtocolError("a line of the head ends without CR: end each line with CR LF")
    if b"\r\n " in block or b"\r\n\t" in block:
        raise h11.RemoteProtocolError("a header continues in a second line: send each header in one line")
    if len(block) > MAX_HEAD_BYTES:
        raise h11.RemoteProtocolError(f"the head has more than {MAX_HEAD_BYTES:,} bytes", error_status_hint=431)
    if lines > MAX_HEADERS + 2:  # the first line and the empty one
        raise h11.RemoteProtocolError(f"the head has more than {MAX_HEADERS} headers", error_status_hint=431)
    if not block.endswith(b"\r\n\r\n"):
        return
    names = [bytes(line.partition(b":")[0]).strip().lower() for line in block.split(b"\r\n")]
    if sum(map(names.count, _FRAMING)) > 1:
        raise h11.RemoteProtocolError("the length of the body is given twice: send one Content-Length or one Transfer-Encoding")
    if names.count(b"authorization") > 1:
        raise h11.RemoteProtocolError("there are several Authorization headers: send one")
