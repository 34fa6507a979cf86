"""A CA and its certificates, made with the openssl command for one test run, so that the repository holds no secret."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import NamedTuple


class Issued(NamedTuple):
    cert: str
    key: str


class Authority:
    """A CA in `folder`; `issue` makes certificates of one day."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self.folder = folder
        self.name = name
        self.ca_file = str(folder / f"{name}.pem")
        self._key = str(folder / f"{name}.key")
        _openssl(
            *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1"),
            *("-subj", f"/CN={name}", "-keyout", self._key, "-out", self.ca_file),
            *("-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign,cRLSign"),
        )

    def issue(self, common_name: str, alternative: str = "IP:127.0.0.1,DNS:localhost") -> Issued:
        stem = self.folder / f"{self.name}-{common_name}"
        cert, key, request, extensions = (str(stem) + end for end in (".pem", ".key", ".csr", ".ext"))
        _openssl(
            *("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={common_name}"),
            *("-keyout", key, "-out", request),
        )
        Path(extensions).write_text(f"subjectAltName={alternative}\n")
        _openssl(
            *("x509", "-req", "-in", request, "-CA", self.ca_file, "-CAkey", self._key, "-CAcreateserial", "-days", "1"),
            *("-extfile", extensions, "-out", cert),
        )
        return Issued(cert, key)


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=60)
