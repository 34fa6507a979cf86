"""Azure's blob storage on loopback: Azurite, Microsoft's own emulator. It has no hierarchical namespace."""

from __future__ import annotations

import base64
import hashlib
import hmac
from datetime import datetime, timedelta, timezone
from pathlib import Path
from urllib.parse import urlencode

from pyarrow import fs

from .artemis import held_port
from .programs import Group
from .waiting import until

CONTAINER = "penstock"
#: The public account and key of Azurite.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
HOST = f"{CONTAINER}@{ACCOUNT}.dfs.core.windows.net"  # of URLs in the form of abfss://


class AzureServer:
    """Azurite's blob service in a process of its own, with one container."""

    def __init__(self, command: list[str], folder: Path) -> None:
        self.port = held_port(self)
        folder.mkdir()
        self._log = open(folder / "azurite.log", "wb")  # noqa: SIM115
        place = ["--location", str(folder), "--blobHost", "127.0.0.1", "--blobPort", str(self.port)]
        quiet = ["--silent", "--disableTelemetry", "--skipApiVersionCheck"]
        self._group = Group([*command, *place, *quiet], stdout=self._log, stderr=self._log)
        until(self._has_container, "Azurite has a container")

    def _has_container(self) -> bool:
        assert self._group.process.poll() is None, "Azurite has ended"
        address = {f"{service}_storage_authority": f"127.0.0.1:{self.port}" for service in ("blob", "dfs")}
        scheme = {f"{service}_storage_scheme": "http" for service in ("blob", "dfs")}
        try:
            fs.AzureFileSystem(ACCOUNT, account_key=KEY, **address, **scheme).create_dir(CONTAINER)
        except OSError:
            return False
        return True

    def close(self) -> None:
        self._group.kill()
        self._log.close()


def environment(port: int) -> dict[str, str]:
    """Return the environment of a client of that port, without credentials."""
    return {
        "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
        "AZURE_STORAGE_ENDPOINT": f"http://127.0.0.1:{port}/{ACCOUNT}",
    }


def signature() -> str:
    """Return a token (shared access signature) that may read and list for an hour.

    Source: "Create an account SAS" in the reference of Azure Storage's REST API, version 2019-12-12.
    """
    until_when = (datetime.now(timezone.utc) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    fields = {"sp": "rl", "ss": "b", "srt": "sco", "st": "", "se": until_when, "sip": "", "spr": "https,http", "sv": "2019-12-12"}
    text = "".join(f"{field}\n" for field in (ACCOUNT, *fields.values()))
    signed = hmac.digest(base64.b64decode(KEY), text.encode(), hashlib.sha256)
    return urlencode({name: value for name, value in fields.items() if value} | {"sig": base64.b64encode(signed).decode()})
