"""The date on which a certificate ends: read from its DER (RFC 5280, section 4.1), since `ssl` tells it of peers alone."""

from __future__ import annotations

import ssl
from calendar import timegm
from collections.abc import Iterator
from pathlib import Path
from time import strptime

_VERSION, _UTC_TIME = 0xA0, 0x17  # tags
_VALIDITY = 3  # after serial number, algorithm and issuer


def ends_at(path: Path) -> float:
    """Return when the first certificate of a PEM file ends, seconds since 1970. Raises OSError; ValueError where it has none."""
    text = path.read_text(encoding="ascii", errors="replace")
    begin = text.find(ssl.PEM_HEADER)
    end = text.find(ssl.PEM_FOOTER, begin)
    if begin < 0 or end < 0:
        raise ValueError(f"{path} holds no certificate in PEM")
    try:
        return _not_after(ssl.PEM_cert_to_DER_cert(text[begin : end + len(ssl.PEM_FOOTER)]))
    except (IndexError, ValueError) as error:
        raise ValueError(f"{path}: the certificate cannot be read: {error}") from None


def _not_after(der: bytes) -> float:
    (_, certificate), *_ = _elements(der)
    (_, signed), *_ = _elements(certificate)
    fields = [content for tag, content in _elements(signed) if tag != _VERSION]
    _, (tag, content) = _elements(fields[_VALIDITY])
    text = content.decode("ascii")
    if tag == _UTC_TIME:  # two digits of the year: up to 2049
        text = ("19" if text[:2] >= "50" else "20") + text
    return float(timegm(strptime(text, "%Y%m%d%H%M%SZ")))


def _elements(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Iterate over the elements that follow one another: tag and content."""
    at = 0
    while at < len(data):
        tag, length, at = data[at], data[at + 1], at + 2
        if length & 0x80:
            size = length & 0x7F
            length, at = int.from_bytes(data[at : at + size], "big"), at + size
        yield tag, data[at : at + length]
        at += length
