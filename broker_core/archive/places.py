"""Places of tables: a folder of this host, or an object store that delta-rs reaches.

Credentials and endpoints of a store come from the environment, by the names that each cloud's own tools use (AWS_ACCESS_KEY_ID,
AWS_ENDPOINT_URL, …), from files that they name, or from the machine's role: never from a setting.
"""

from __future__ import annotations

import os
from urllib.parse import unquote, urlsplit

#: What delta-rs is told beside a URL. Who asks tries again, and says so; one attempt ends within a minute.
_LIMITS = {"timeout": "60s", "connect_timeout": "10s", "max_retries": "3", "retry_timeout": "20s"}


def is_local(url: str) -> bool:
    """Say whether a URL names a folder."""
    return "://" not in url or url.startswith("file://")


def local_path(url: str) -> str:
    """Return the folder that a URL names."""
    return unquote(urlsplit(url).path) if url.startswith("file://") else url


def storage_options(url: str) -> dict[str, str] | None:
    """Return delta-rs's options for a table at this URL; None for a folder. An endpoint may be plain HTTP where it says so."""
    if is_local(url):
        return None
    endpoint = os.environ.get("AWS_ENDPOINT_URL", os.environ.get("AWS_ENDPOINT", ""))
    return {**_LIMITS, "allow_http": "true"} if endpoint.startswith("http://") else dict(_LIMITS)
