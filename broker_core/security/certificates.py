"""The expiry date of the certificate in a file, because `ssl` returns it only for peers."""

from __future__ import annotations

import ssl
from pathlib import Path

from ..wrong_port import end_of


def ends_at(path: Path) -> float:
    """Return the expiry of the first certificate, in seconds since 1970. Raises OSError and ValueError."""
    text = path.read_text(encoding="ascii", errors="replace")
    begin = text.find(ssl.PEM_HEADER)
    end = text.find(ssl.PEM_FOOTER, begin)
    if begin < 0 or end < 0:
        raise ValueError(f"{path} contains no certificate in PEM")
    try:
        return end_of(ssl.PEM_cert_to_DER_cert(text[begin : end + len(ssl.PEM_FOOTER)])).timestamp()
    except (IndexError, ValueError) as error:
        raise ValueError(f"{path}: the certificate cannot be read: {error}") from None
